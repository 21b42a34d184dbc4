"""The settings: one typed model, from which the TOML file's validation, the settings screen and
the documentation are made."""

from eaglechat.settings.config_file import Problem as Problem
from eaglechat.settings.config_file import load as load
from eaglechat.settings.description import SettingDoc as SettingDoc
from eaglechat.settings.description import describe as describe
from eaglechat.settings.description import find as find
from eaglechat.settings.model import TABLES as TABLES
from eaglechat.settings.model import GenerationSettings as GenerationSettings
from eaglechat.settings.model import InterfaceSettings as InterfaceSettings
from eaglechat.settings.model import Settings as Settings
