"""Delete a model, or a pair of the catalogue, from this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eaglechat.cli.status import FAILED, INTERRUPTED, OK, CommandError, WrongUsageError, complain

if TYPE_CHECKING:
    from pathlib import Path

    from eaglechat.hub.catalogue import CatalogueEntry
    from eaglechat.hub.local.library import LocalModel
    from eaglechat.hub.local.pair import Pair


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="a model or a pair as `eaglechat models` lists it, or a path"
    )
    parser.add_argument(
        "--yes", action="store_true", help="do not ask; needed where there is no terminal to ask on"
    )


def run(args: argparse.Namespace) -> int:
    from eaglechat import paths, settings
    from eaglechat.hub import catalogue
    from eaglechat.hub.local import library, pairs
    from eaglechat.hub.local.installed import status

    loaded, _ = settings.load(paths.config_file())
    models = library.scan(loaded.library.folders)
    entries, _ = catalogue.load()
    entry = next((e for e in entries if e.name == args.name), None)
    if entry is not None:
        found, kept = _of_pair(entry, entries, models)
        for sentence in kept:
            complain(sentence)
        if kept and not found:
            return FAILED
    else:
        found = library.find(models, args.name)
    if not found:
        raise CommandError(_not_here(args.name))
    if entry is None and len(found) > 1:
        # Two versions of a file have one name: only their paths differ.
        same = len({model.name for model in found}) == 1
        names = ", ".join(str(model.path) if same else model.name for model in found)
        raise WrongUsageError(f"{args.name} could be {names}; name one of them")
    own = [entry.name] if entry is not None else []
    known = [here.pair for here in map(status, entries) if here.pair is not None]
    known += pairs.PairLibrary(paths.state_dir()).pairs()
    return _delete(found, [pair for pair in known if pair.name not in own], args.yes)


def _not_here(name: str) -> str:
    from eaglechat.hub.local.pairs import BUILTIN_NAME, BUILTIN_TARGET_PACKAGE

    if name == BUILTIN_NAME:
        package = BUILTIN_TARGET_PACKAGE.replace("_", "-")
        return f"{name} is built in: `pip uninstall {package}` removes its target"
    return f"{name} is not on this machine; `eaglechat models` lists what is"


def _delete(models: Sequence[LocalModel], pairs: Sequence[Pair], unasked: bool) -> int:
    from eaglechat import paths
    from eaglechat.chat.history.listing import count_of
    from eaglechat.hub.local import removal
    from eaglechat.hub.units import format_bytes
    from eaglechat.tui.texts.removal import consequences

    try:
        planned = removal.plan_removal(models)
    except OSError as error:
        raise _undeletable(error) from error
    for model in models:
        print(f"{model.name}  {format_bytes(model.size_bytes)}  {model.path}")
    for sentence in consequences(planned, pairs, count_of(paths.chats_dir(), planned.takes)):
        print(sentence)
    freed = format_bytes(planned.freed_bytes)
    if not unasked and not sys.stdin.isatty():
        raise WrongUsageError(
            "there is no terminal to ask on, so nothing was deleted; --yes deletes"
        )
    try:
        if not unasked and not _agreed(f"Delete, freeing {freed}?"):
            print("Nothing was deleted.")
            return OK
        removal.remove(planned)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        raise _undeletable(error) from error
    print(f"Deleted; {freed} freed.")
    return OK


def _undeletable(error: OSError) -> CommandError:
    return CommandError(f"{error.filename} cannot be deleted: {error.strerror}")


def _agreed(question: str) -> bool:
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        # Ctrl+D leaves the cursor behind the question.
        print()
        return False


def _of_pair(
    entry: CatalogueEntry, entries: list[CatalogueEntry], models: list[LocalModel]
) -> tuple[list[LocalModel], list[str]]:
    """What is here of a pair, and in sentences what of it stays: what another installed pair needs,
    and what is Ollama's."""
    from eaglechat.hub.local.installed import status
    from eaglechat.hub.local.library import ModelKind
    from eaglechat.hub.local.stores import Source

    needed: set[Path | None] = set()
    for other in entries:
        here = status(other)
        if other is not entry and here.pair is not None:
            needed |= {here.target, here.draft}
    here = status(entry)
    # A target by its path was not downloaded for the pair.
    target = None if entry.target.path else here.target
    own = {target, here.draft, here.checkpoint} - {None}
    repos = {entry.target.repo, entry.draft.repo, entry.draft.checkpoint} - {""}
    found = [
        model
        for model in models
        if any(one.path in own - needed for one in model.everywhere)
        or (model.kind is ModelKind.UNFINISHED and model.repo in repos)
    ]
    kept = [f"{path} is kept: another installed pair uses it" for path in own & needed if path]
    kept += [
        f"{model.name} is kept: it is Ollama's, and `ollama rm {model.name}` removes it"
        for model in found
        if model.source is Source.OLLAMA
    ]
    return [model for model in found if model.source is not Source.OLLAMA], kept
