"""The settings: one typed model, from which the TOML file's validation, the settings screen and
the documentation are made."""

from eaglechat.settings.config_file import Problem, from_mapping, load
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
