"""The settings: one typed model validates the TOML file, drives the screens, documents itself."""

from eaglechat.settings.description import SettingDoc, describe, find
from eaglechat.settings.model import (
    TABLES,
    EngineSettings,
    GenerationSettings,
    InterfaceSettings,
    LibrarySettings,
    Settings,
    SpeculationSettings,
)
from eaglechat.settings.reading import Problem, from_mapping, load

__all__ = [
    "TABLES",
    "EngineSettings",
    "GenerationSettings",
    "InterfaceSettings",
    "LibrarySettings",
    "Problem",
    "SettingDoc",
    "Settings",
    "SpeculationSettings",
    "describe",
    "find",
    "from_mapping",
    "load",
]
