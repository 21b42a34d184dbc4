"""What the commands on models share: what is on this machine, and how it is listed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eaglechat import paths, settings
from eaglechat.cli.status import complain
from eaglechat.hub import catalogue
from eaglechat.hub.local import installed, library
from eaglechat.hub.local.model import LocalModel
from eaglechat.hub.local.pairs import CataloguePair


def on_this_machine() -> tuple[list[LocalModel], list[CataloguePair]]:
    """The models here, and the pairs of the catalogue. Prints what is wrong in config.toml and
    catalogue.toml."""
    configured, problems = settings.load(paths.config_file())
    entries, of_catalogue = catalogue.load()
    for problem in (*problems, *of_catalogue):
        complain(str(problem))
    models = library.scan(configured.library.folders)
    return models, installed.statuses(entries, models)


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """The rows with their cells below each other; `right`: the columns of figures."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
