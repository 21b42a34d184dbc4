"""Flags that several commands share: the pair, the server, the settings."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from eaglechat import paths
from eaglechat.cli.status import CommandError, WrongUsageError, report
from eaglechat.settings import config_file
from eaglechat.settings.config_file import parse_assignment
from eaglechat.settings.description import Range, SettingDoc, describe, find, parse, written
from eaglechat.settings.model import SERVER_KEY, Settings


def add_pair_options(parser: argparse.ArgumentParser) -> None:
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
    group.add_argument(
        "--draft", type=_model, metavar="FILE", help="its draft: its GGUF, or its name"
    )


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


def add_setting_options(parser: argparse.ArgumentParser, *tables: str) -> None:
    """Add the flags of the settings in these tables, and `-o TABLE.KEY=VALUE` for all of them."""
    for table in tables:
        flagged = [doc for doc in describe() if doc.table == table and doc.flag]
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


def value_of(table: str, key: str) -> Callable[[str], Any]:
    """An argparse type for the values of a setting."""
    doc = find(table, key)
    return lambda text: _value(doc, text)[1]


def load_settings(args: argparse.Namespace) -> tuple[Settings, list[config_file.Problem]]:
    """The settings of config.toml, overridden by the flags; and the problems found in the file."""
    loaded, problems = config_file.load(paths.config_file())
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
