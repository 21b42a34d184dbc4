"""Delete a model, or a pair of the catalogue, from this machine."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from eaglechat.cli.status import FAILED, INTERRUPTED, OK, WRONG_USAGE, complain

if TYPE_CHECKING:
    from eaglechat.hub.catalogue.entries import Entry
    from eaglechat.hub.local.library import Model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="a model or a pair as `eaglechat models` lists it, or a path"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    from eaglechat import paths, settings
    from eaglechat.hub.catalogue import entries as catalogue
    from eaglechat.hub.local import library, removal
    from eaglechat.hub.units import format_bytes

    loaded, _ = settings.load(paths.config_file())
    models = library.scan(loaded.library.folders)
    entries, _ = catalogue.load()
    entry = next((e for e in entries if e.name == args.name), None)
    found = _of_pair(entry, entries, models) if entry else library.find(models, args.name)
    if not found:
        complain(f"{args.name} is not on this machine; `eaglechat models` lists what is")
        return FAILED
    if entry is None and len(found) > 1:
        names = ", ".join(model.name for model in found)
        complain(f"{args.name} could be {names}; name one of them")
        return WRONG_USAGE
    planned = removal.plan(found)
    for model in found:
        print(f"{model.name}  {format_bytes(model.size_bytes)}  {model.path}")
    freed = format_bytes(planned.freed_bytes)
    try:
        if not args.yes and sys.stdin.isatty() and not _agreed(f"Delete, freeing {freed}?"):
            print("Nothing was deleted.")
            return OK
        removal.execute(planned)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        complain(f"{error.filename} cannot be deleted: {error.strerror}")
        return FAILED
    print(f"Deleted; {freed} freed.")
    return OK


def _agreed(question: str) -> bool:
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _of_pair(entry: Entry, entries: list[Entry], models: list[Model]) -> list[Model]:
    """What is here of a pair, except what another installed pair needs as well."""
    from eaglechat.hub.local.installed import status
    from eaglechat.hub.local.library import Kind

    needed = set()
    for other in entries:
        here = status(other)
        if other is not entry and here.pair is not None:
            needed |= {here.target, here.draft}
    here = status(entry)
    own = {here.target, here.draft, here.checkpoint} - {None}
    for path in own & needed:
        complain(f"{path} stays: another installed pair uses it")
    repos = {entry.target.repo, entry.draft.repo, entry.draft.checkpoint}
    return [
        model
        for model in models
        if model.path in own - needed or (model.kind is Kind.UNFINISHED and model.repo in repos)
    ]
