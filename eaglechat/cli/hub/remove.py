"""Delete a model, or a pair of the catalogue, from this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from eaglechat import paths
from eaglechat.chat.store import ChatStore
from eaglechat.cli.hub.here import on_this_machine
from eaglechat.cli.status import FAILED, INTERRUPTED, OK, CommandError, WrongUsageError, complain
from eaglechat.hub.local import library, removal
from eaglechat.hub.local.library import copy_of
from eaglechat.hub.local.model import LocalModel, Source
from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.hub.local.pairs import BUILTIN_NAME, BUILTIN_TARGET_PACKAGE, CataloguePair, Pair
from eaglechat.hub.units import format_bytes
from eaglechat.words.removal import consequences, what_goes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="a model or a pair as `eaglechat models` lists it, or a path"
    )
    parser.add_argument(
        "--yes", action="store_true", help="do not ask; needed where there is no terminal to ask on"
    )


def run(args: argparse.Namespace) -> int:
    models, known = on_this_machine()
    pair = next((one for one in known if one.name == args.name), None)
    found = library.copies(models, args.name)
    if pair is not None:
        of_pair, kept = _of_pair(pair, known, models)
        others = [str(one.path) for one in found if one.path not in {m.path for m in of_pair}]
        if others and of_pair:
            own = [str(model.path) for model in of_pair]
            raise WrongUsageError(
                f"{args.name} could be the pair ({', '.join(own)}) or {', '.join(others)}; name "
                "one of the files"
            )
        for sentence in kept:
            complain(sentence)
        if kept and not of_pair:
            return FAILED
        found = of_pair or found
    if not found:
        raise CommandError(_not_here(args.name))
    if pair is None and len(found) > 1:
        names = library.told_apart(found)
        raise WrongUsageError(f"{args.name} could be {names}; name one of them")
    users = [one.pair for one in known if one.pair is not None]
    users += PairLibrary(paths.state_dir()).pairs()
    name = pair.name if pair is not None else None
    return _delete(found, [user for user in users if user.name != name], args.yes)


def _not_here(name: str) -> str:
    if name == BUILTIN_NAME:
        package = BUILTIN_TARGET_PACKAGE.replace("_", "-")
        return f"{name} is built in: `pip uninstall {package}` removes its target"
    if Path(name).exists():
        return f"{name} is no model by this name: name it as `eaglechat models` lists it"
    return f"{name} is not on this machine; `eaglechat models` lists what is"


def _delete(models: Sequence[LocalModel], pairs: Sequence[Pair], unasked: bool) -> int:
    try:
        planned = removal.plan_removal(models)
    except OSError as error:
        raise _undeletable(error) from error
    print("\n".join(what_goes(planned)))
    n_chats = ChatStore(paths.chats_file()).count_with(planned.takes)
    for sentence in consequences(planned, pairs, n_chats):
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
        freed = format_bytes(removal.remove(planned))
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
    pair: CataloguePair, pairs: Sequence[CataloguePair], models: Sequence[LocalModel]
) -> tuple[list[LocalModel], list[str]]:
    """What is here of a pair, and in sentences what of it stays: what another installed pair needs,
    and what is Ollama's."""
    others = [other for other in pairs if other is not pair and other.pair is not None]
    needed = {path for other in others for path in (other.target, other.draft) if path is not None}
    # A target by its path was not downloaded for the pair.
    target = None if pair.entry.target.path else pair.target
    own = {target, pair.draft, pair.checkpoint, *pair.begun}
    found: dict[Path, LocalModel] = {}
    kept: dict[Path, str] = {}
    for model in models:
        for one in model.everywhere:
            if one.path not in own or one.path in found:
                continue
            copy = copy_of(model, one)
            if one.source is Source.OLLAMA:
                kept[one.path] = (
                    f"{one.name} is kept: it is Ollama's, and `ollama rm {one.name}` removes it"
                )
            elif any(map(removal.plan_removal([copy]).takes, needed)):
                kept[one.path] = f"{one.path} is kept: another installed pair uses it"
            else:
                found[one.path] = copy
    return [*found.values()], [*kept.values()]
