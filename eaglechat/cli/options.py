"""Options that several commands share: the pair, the server, the settings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from eaglechat import paths, settings
from eaglechat.cli.parsing import did_you_mean
from eaglechat.cli.status import CommandError, WrongUsageError, complain, report
from eaglechat.settings import SettingDoc, Settings
from eaglechat.settings.config_file import parse_assignment
from eaglechat.settings.description import Range, parse, written
from eaglechat.settings.servers import SERVER_KEY, ServerSettings, key_variable
from eaglechat.wire.protocol import Auto

if TYPE_CHECKING:
    from eaglechat.hub.local.model import LocalModel
    from eaglechat.hub.local.pair import Pair
    from eaglechat.hub.local.pair_library import PairLibrary


def add_pair_options(parser: argparse.ArgumentParser, *, draft: bool = True) -> None:
    """`draft`: whether the command also takes --draft."""
    group = parser.add_argument_group("the pair")
    group.add_argument(
        "--pair",
        metavar="NAME",
        help="a pair by name, such as smollm2-135m, or a model of `eaglechat models`",
    )
    group.add_argument(
        "--target",
        type=_model,
        metavar="FILE",
        help="the target: its GGUF, or a name as for --pair",
    )
    if draft:
        group.add_argument(
            "--draft", type=_model, metavar="FILE", help="its draft: its GGUF, or its name"
        )
    else:
        parser.set_defaults(draft=None)


def _model(text: str) -> str:
    """An argparse type for a model's name or path. It refuses an empty text, which an unset shell
    variable leaves."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; name a model or its file")
    return text


def add_server_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a server, in place of a pair")
    group.add_argument(
        "--server",
        metavar="URL",
        help="an OpenAI-compatible server, or the name of one in config.toml; "
        f"{SERVER_KEY} is sent to it as its key",
    )
    group.add_argument("--model", metavar="NAME", help="the model's name on the server")


def check_pair(args: argparse.Namespace) -> None:
    """Check the options that name a pair or a server. Raises WrongUsageError."""
    if args.draft is not None and args.target is None:
        raise WrongUsageError("--draft needs --target: a draft fits one target only")
    if args.pair is not None and args.target is not None:
        raise WrongUsageError("--pair and --target name two pairs; give one of them")
    server = getattr(args, "server", None)
    if server is not None and (args.pair is not None or args.target is not None):
        raise WrongUsageError("a server has its own models; leave out --pair and --target")
    if server is None and getattr(args, "model", None) is not None:
        raise WrongUsageError("--model needs --server: a pair is named by --pair")


def served_pair(args: argparse.Namespace, settings: Settings) -> Pair | None:
    """The pair that stands for the server named by the flags, or None if they name none.

    --server is the name of an entry in config.toml, or an address. An address that is the same as
    an entry's uses that entry with its key. EAGLECHAT_SERVER_KEY is sent to the given address only.
    """
    from eaglechat.hub.local.pair import pair_of_server
    from eaglechat.links.http.address import same_server

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
    from eaglechat.hub import catalogue
    from eaglechat.hub.local.pair_library import NotInstalledError

    if args.target is not None:
        return _pair_of(args.target, args.draft)
    if args.pair is None:
        return None
    try:
        pair = library.find(args.pair)
    except NotInstalledError as error:
        raise CommandError(str(error)) from error
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
    from eaglechat.hub.local.pairs import pair_of_files

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
    from eaglechat.hub.references import InvalidReferenceError, parse

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

    return scan(settings.load(paths.config_file())[0].library.folders)


def _named(models: Sequence[LocalModel], name: str) -> LocalModel | None:
    """The model with a name; None if there is none. Raises WrongUsageError if it means several, and
    CommandError if it is not complete."""
    from eaglechat.hub.local.library import find
    from eaglechat.hub.local.model import ModelKind

    found = find(models, name)
    if len(found) > 1:
        names = ", ".join(model.name for model in found)
        raise WrongUsageError(f"{name} could be {names}; name one of them")
    if found and found[0].kind is ModelKind.UNFINISHED:
        raise CommandError(f"{name} is not complete. {(found[0].problem or '').rstrip('.')}")
    return found[0] if found else None


def add_setting_options(parser: argparse.ArgumentParser, *tables: str) -> None:
    """Add the flags of the settings in these tables, and `-o TABLE.KEY=VALUE` for all of them."""
    for table in tables:
        flagged = [doc for doc in settings.describe() if doc.table == table and doc.flag]
        if flagged:
            add_flags(parser.add_argument_group(table), *flagged)
    parser.add_argument(
        "-o",
        dest=_OVERRIDES,
        action=_Override,
        type=partial(_assignment, tables),
        metavar="TABLE.KEY=VALUE",
        help=f"any setting of {', '.join(tables)}, as in config.toml; repeatable",
    )


def add_flags(group: argparse._ActionsContainer, *docs: SettingDoc) -> None:
    """Add the flags of these settings."""
    for doc in docs:
        how: dict[str, Any] = {"dest": _OVERRIDES, "action": _Override}
        how["help"] = help_text(doc.flag_help)
        if doc.example:
            how["help"] += f" (such as '{written(doc.example)}')"
        if doc.kind is bool:
            group.add_argument(doc.flag, nargs=0, const=(doc.name, False), **how)
        else:
            shown = _metavar(doc)
            group.add_argument(doc.flag, type=partial(_value, doc), metavar=shown, **how)
        for flag, value in doc.shorthand:
            how["help"] = f"the same as {doc.flag} {value}"
            group.add_argument(flag, nargs=0, const=(doc.name, value), **how)


_OVERRIDES = "overrides"
_METAVARS = {int: "N", float: "X", str: "TEXT", tuple: "LIST"}


class _Override(argparse.Action):
    """Stores the value of a setting by its name. Of several values the last one counts."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        _flag: str | None = None,
    ) -> None:
        name, value = values or self.const
        setattr(namespace, self.dest, {**overrides(namespace), name: value})


def overrides(args: argparse.Namespace) -> dict[str, Any]:
    """The values that flags gave to settings, by `table.key`."""
    return getattr(args, _OVERRIDES, None) or {}


def _value(doc: SettingDoc, text: str) -> tuple[str, Any]:
    """An argparse type for a setting's flag."""
    try:
        return doc.name, parse(doc, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _assignment(tables: Sequence[str], text: str) -> tuple[str, Any]:
    """An argparse type for `table.key=value`."""
    try:
        doc, value = parse_assignment(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if doc.table not in tables:
        raise argparse.ArgumentTypeError(
            f"{doc.name} does not apply to this command, which takes those of {', '.join(tables)}"
        )
    return doc.name, value


def _metavar(doc: SettingDoc) -> str:
    if doc.choices:
        return "{" + ",".join(doc.choices) + "}"
    return "|".join((_METAVARS[doc.kind], *doc.words))


def help_text(sentence: str) -> str:
    """A sentence in the style of argparse's help: lower case, no full stop."""
    first = sentence[0] if sentence[1].isupper() else sentence[0].lower()
    return (first + sentence[1:]).rstrip(".").replace("%", "%%")


def draft_length(text: str) -> int | Auto:
    """An argparse type for draft lengths."""
    length: int | Auto = _value(settings.find("speculation", "n_draft_max"), text)[1]
    return length


def load_settings(args: argparse.Namespace) -> tuple[Settings, list[settings.Problem]]:
    """The settings of config.toml, overridden by the flags; and the problems found in the file."""
    loaded, problems = settings.load(paths.config_file())
    return _overridden(args, loaded), problems


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings of config.toml, overridden by the flags. Prints the problems of the file."""
    configured, problems = load_settings(args)
    report(problems)
    return configured


def _overridden(args: argparse.Namespace, configured: Settings) -> Settings:
    for name, value in overrides(args).items():
        table, _, key = name.partition(".")
        configured = configured.with_value(table, key, value)
    return configured


def in_role(args: argparse.Namespace, configured: Settings) -> Settings:
    """The settings overridden by their role, then by the flags. Raises CommandError."""
    from eaglechat.chat.writing.roles import Role, find_role

    name = configured.generation.role
    if not name:
        return configured
    found = find_role(paths.user_roles_dir(), name)
    if not isinstance(found, Role):
        raise CommandError(found or f"there is no role {name!r} in {paths.user_roles_dir()}")
    return _overridden(args, found.applied(configured))


def number(
    kind: Callable[[str], Any], minimum: float, maximum: float | None
) -> Callable[[str], Any]:
    """An argparse type for numbers in a range."""

    def parse_number(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            noun = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f'"{text}" must be {noun}') from None
        if not (minimum <= value and (maximum is None or value <= maximum)):
            raise argparse.ArgumentTypeError(f"{text} must be {Range(minimum, maximum)}")
        return value

    return parse_number
