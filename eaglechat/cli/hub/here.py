"""What is on this machine, for the commands on models."""

from __future__ import annotations

from eaglechat import paths
from eaglechat.cli.status import report
from eaglechat.hub import catalogue
from eaglechat.hub.local import installed, library
from eaglechat.hub.local.model import LocalModel
from eaglechat.hub.local.pairs import CataloguePair
from eaglechat.settings import config_file


def on_this_machine() -> tuple[list[LocalModel], list[CataloguePair]]:
    """The models here, and the pairs of the catalogue. Prints what is wrong in config.toml and
    catalogue.toml."""
    configured, problems = config_file.load(paths.config_file())
    entries, of_catalogue = catalogue.load()
    report((*problems, *of_catalogue))
    models = library.scan(configured.library.folders)
    return models, installed.statuses(entries, models)
