"""Which pair the flags of a command name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eaglechat import paths
from eaglechat.cli.parsing import did_you_mean
from eaglechat.cli.status import CommandError, WrongUsageError, complain
from eaglechat.hub import catalogue
from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.hub.local.pairs import Pair, builtin_pair, inspect, pair_of_files, pair_of_server
from eaglechat.hub.references import InvalidReferenceError, parse
from eaglechat.links.http.address import same_server
from eaglechat.settings import config_file
from eaglechat.settings.model import ServerSettings, Settings, key_variable

if TYPE_CHECKING:
    # It brings huggingface_hub, which the menu does without.
    from eaglechat.hub.local.model import LocalModel


def choose_pair(args: argparse.Namespace, settings: Settings | None = None) -> Pair:
    """The pair that the flags name, else the built-in one. Raises CommandError if it cannot run.

    With `engine.command` the engine may run on another machine, so the files are not checked here.
    """
    if settings is not None and (served := served_pair(args, settings)):
        return served
    library = PairLibrary(paths.state_dir())
    pair = chosen_pair(args, library) or builtin_pair()
    if settings is None or not settings.engine.command:
        status = inspect(pair)
        if status.problem:
            raise CommandError(f"{pair.name} cannot run: {status.problem}")
    return library.as_kept(pair)


def served_pair(args: argparse.Namespace, settings: Settings) -> Pair | None:
    """The pair that stands for the server named by the flags, or None if they name none.

    --server is the name of an entry in config.toml, or an address. An address that is the same as
    an entry's uses that entry with its key. EAGLECHAT_SERVER_KEY is sent to the given address only.
    """
    if getattr(args, "server", None) is None:
        return None
    known = (one for one in settings.server if one.name == args.server)
    there = (one for one in settings.server if same_server(one.url, args.server))
    server = next(known, None) or next(there, None)
    if server is None:
        name = args.server.split("://")[-1].split("@")[-1].strip("/")
        server = ServerSettings(name=name or "server", url=args.server, key_env=key_variable())
    return pair_of_server(server, args.model or "")


def chosen_pair(args: argparse.Namespace, library: PairLibrary) -> Pair | None:
    """The pair that the flags name, or None if they name none. Raises CommandError."""
    if args.target is not None:
        return _pair_of(args.target, args.draft)
    if args.pair is None:
        return None
    pair = library.find(args.pair)
    if pair is None or (pair.source == "recent" and not pair.target.exists()):
        from eaglechat.hub.local.library import pair_of_models  # brings huggingface_hub

        models = _models_here()
        if (model := _named(models, args.pair)) is not None:
            return pair_of_models(model)
    if pair is None:
        known = [pair.name for pair in library.pairs()]
        names = [*(one.name for one in catalogue.load()[0]), *(one.name for one in models)]
        near = did_you_mean(args.pair, [*known, *names])
        raise CommandError(
            f"there is no pair named {args.pair!r}; known: {', '.join(known)}, and those that "
            f"`eaglechat models` lists{near}"
        )
    return pair


def _pair_of(target: str, draft: str | None) -> Pair:
    """The pair of two files, or of two models by name. Raises CommandError for a name that no model
    here has; a path may be on the engine's machine."""
    given = {text: paths.expanded(text) for text in (target, draft) if text is not None}
    models = [] if all(path.is_file() for path in given.values()) else _models_here()
    found = {text: None if path.is_file() else _named(models, text) for text, path in given.items()}
    for text, model in found.items():
        if model is None and not given[text].is_file():
            _check_is_path(text, models)
    files = {text: model.path if model else given[text] for text, model in found.items()}
    names = [model.short_name if model else given[text].stem for text, model in found.items()]
    name = " + ".join(names) if any(found.values()) else ""
    return pair_of_files(files[target], files[draft] if draft is not None else None, name)


def _check_is_path(text: str, models: Sequence[LocalModel]) -> None:
    """Raise CommandError for what is no path, but the name of a model that is not here."""
    if text.lower().endswith(".gguf") and "://" not in text:
        return
    try:
        reference = parse(text)
    except InvalidReferenceError as error:
        near = did_you_mean(text, [one.name for one in models])
        why = f"there is no model named {text!r}; `eaglechat models` lists what is here{near}"
        raise CommandError(str(error).rstrip(".") if "/" in text else why) from error
    if reference.repo and not paths.expanded(text).exists():
        raise CommandError(
            f"{text} is neither a file nor a model on this machine; `eaglechat pull {reference}` "
            "downloads it if the Hub has it"
        )


def say_if_named(prompt: str) -> None:
    """Say so if a prompt is the name of a model here, which was perhaps meant to reply."""
    if re.fullmatch(r"[^\s:/.]+[:/.]\S+", prompt) is None:
        return
    from eaglechat.hub.local.library import find

    if find(_models_here(), prompt):
        complain(
            f"{prompt} is sent as the prompt; `eaglechat run --target {prompt} PROMPT` sends a "
            "prompt to this model"
        )


def _models_here() -> list[LocalModel]:
    from eaglechat.hub.local.library import scan

    return scan(config_file.load(paths.config_file())[0].library.folders)


def _named(models: Sequence[LocalModel], name: str) -> LocalModel | None:
    """The model with a name; None if there is none. Raises WrongUsageError if it means several, and
    CommandError if it is not complete."""
    from eaglechat.hub.local.library import find, told_apart
    from eaglechat.hub.local.model import ModelKind

    found = find(models, name)
    if len(found) > 1:
        raise WrongUsageError(f"{name} could be {told_apart(found)}; name one of them")
    if found and found[0].kind is ModelKind.UNFINISHED:
        raise CommandError(f"{name} is not complete. {(found[0].problem or '').rstrip('.')}")
    return found[0] if found else None
