"""Loads themes from TOML files, those that ship and the user's own.

Every value is checked when it is loaded: Textual would find a bad one only when the running app
parses its styles. A theme reaches the widgets as CSS variables: Textual's own, and for each kind
of token `$token-<kind>` (a colour) and `$token-<kind>-style` (a text style).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta
from textual.color import Color, ColorParseError
from textual.theme import Theme

from eaglechat.settings import Problem
from eaglechat.wire.records import Origin

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FALLBACK_THEME = "eagle-dark"
REJECTED = "rejected"
_KNOWN = (origin for origin in Origin if origin is not Origin.UNKNOWN)
TOKEN_KINDS: tuple[str, ...] = (*(origin.value for origin in _KNOWN), REJECTED)
"""The kinds of tokens that a transcript distinguishes: the origins of emitted tokens, and rejected
draft tokens."""

StyleFlag = Literal["bold", "dim", "italic", "overline", "reverse", "strike", "underline"]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]

_FLAG = "|".join((*get_args(StyleFlag), "b", "i", "o", "u", "uu"))
_TEXT_STYLE = re.compile(rf"none|(?:not )?(?:{_FLAG})(?: (?:not )?(?:{_FLAG}))*")
_COLOUR_AND_ALPHA = re.compile(r"(?P<colour>.+?)(?:\s+(?P<percent>\d+(?:\.\d+)?)%)?")
_AUTO = re.compile(r"auto(?: \d+(?:\.\d+)?%)?")


class TokenStyle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The colour and text style of one kind of token. The style distinguishes it without colour."""

    colour: str
    style: tuple[StyleFlag, ...]


class TokenTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[tokens]` table: one entry for each of TOKEN_KINDS."""

    accepted: TokenStyle
    correction: TokenStyle
    bonus: TokenStyle
    plain: TokenStyle
    rejected: TokenStyle


class ThemeFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A theme's TOML file: the fields of Textual's Theme, and `[tokens]`.

    Textual derives a colour that is left out from the others.
    """

    # Textual makes a CSS class of the name.
    name: Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_-]*$")]
    primary: str
    secondary: str | None = None
    warning: str | None = None
    error: str | None = None
    success: str | None = None
    accent: str | None = None
    foreground: str | None = None
    background: str | None = None
    surface: str | None = None
    panel: str | None = None
    boost: str | None = None
    dark: bool = True
    luminosity_spread: Share = 0.15
    text_alpha: Share = 0.95
    ansi: bool = False
    variables: dict[str, object] = {}
    tokens: TokenTable


_NOT_COLOURS = {
    "name", "dark", "luminosity_spread", "text_alpha", "ansi", "variables", "tokens",
}  # fmt: skip
_COLOUR_FIELDS = tuple(field for field in ThemeFile.__struct_fields__ if field not in _NOT_COLOURS)


@dataclass(frozen=True)
class LoadedTheme:
    """A checked theme, ready for `App.register_theme`."""

    theme: Theme
    tokens: TokenTable


class _BadValueError(Exception):
    """`key` is the dotted path of the value in the file, `value` None if it is missing."""

    def __init__(self, key: str, value: Any, reason: str) -> None:
        super().__init__(reason)
        self.key, self.value, self.reason = key, value, reason


def load_themes(*directories: Path) -> tuple[list[LoadedTheme], list[Problem]]:
    """Read every `*.toml` of the directories. A theme replaces one of the same name from an earlier
    directory."""
    themes: dict[str, LoadedTheme] = {}
    problems: list[Problem] = []
    for directory in directories:
        names: dict[str, Path] = {}
        for file in sorted(directory.glob("*.toml")):
            loaded = read_theme(file)
            if isinstance(loaded, Problem):
                problems.append(loaded)
                continue
            name = loaded.theme.name
            if name in names:
                reason = f"{names[name].name} beside it has this name already"
                problems.append(_problem(file, "name", reason, name))
                continue
            names[name] = file
            themes[name] = loaded
    return list(themes.values()), problems


def choose_theme(name: str, loaded: Sequence[LoadedTheme]) -> Theme | None:
    """The theme with this name, else the shipped dark one, else any."""
    themes = {theme.theme.name: theme.theme for theme in loaded}
    return themes.get(name) or themes.get(FALLBACK_THEME) or next(iter(themes.values()), None)


def read_theme(file: Path) -> LoadedTheme | Problem:
    """Read and check one theme file. Only the first problem is told."""
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
        try:
            checked = msgspec.convert(raw, ThemeFile)
        except msgspec.ValidationError as error:
            raise _located(str(error), raw) from error
        return LoadedTheme(_theme(checked), checked.tokens)
    except _BadValueError as bad:
        return _problem(file, bad.key, bad.reason, bad.value)
    except (OSError, ValueError, RecursionError) as error:
        return _problem(file, "", f"cannot be read ({getattr(error, 'strerror', None) or error})")


def _problem(file: Path, key: str, reason: str, value: Any = None) -> Problem:
    given = "" if value is None else f"= {value!r}: "
    return Problem(file, key, f"{given}{reason}; the theme is skipped")


def token_variable_defaults(themes: Iterable[LoadedTheme], dark: bool) -> dict[str, str]:
    """Token variables for Textual's own themes, which have none: those of the first dark or light
    theme given."""
    for loaded in themes:
        if loaded.theme.dark == dark:
            return _token_variables(loaded.tokens)
    return {}


def _located(message: str, raw: Mapping[str, Any]) -> _BadValueError:
    """Turn msgspec's message "what - at `$.path`" into the key, its value and a plain reason."""
    what, _, path = message.partition(" - at `$")
    keys = re.findall(r"[^.\[\]`]+", path)
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return _BadValueError(".".join([*keys, missing[1]]), None, "is missing")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what):
        keys.append(unknown[1])
        return _BadValueError(".".join(keys), _value_at(raw, keys), "is not a key of a theme")
    value = _value_at(raw, keys)
    if "enum value" in what:
        flags = ", ".join(get_args(StyleFlag))
        return _BadValueError(".".join(keys), value, f"is not a style (styles: {flags})")
    plain = what.replace("`", "").replace("object", "table")
    return _BadValueError(".".join(keys), value, plain[:1].lower() + plain[1:])


def _value_at(raw: Any, keys: Iterable[str]) -> Any:
    """The value at msgspec's path; None if a key itself contains a dot or a bracket."""
    for key in keys:
        try:
            raw = raw[key] if isinstance(raw, Mapping) else raw[int(key)]
        except (LookupError, TypeError, ValueError):
            return None
    return raw


def _theme(file: ThemeFile) -> Theme:
    fields = {name: getattr(file, name) for name in ThemeFile.__struct_fields__ if name != "tokens"}
    for name in _COLOUR_FIELDS:
        if fields[name] is not None:
            _colour(name, fields[name])
    for kind in TOKEN_KINDS:
        _colour(f"tokens.{kind}.colour", getattr(file.tokens, kind).colour)
    known = Theme(**{**fields, "variables": {}}).to_color_system().generate()
    variables = {
        name: _variable(name, value, known.get(name)) for name, value in file.variables.items()
    }
    return Theme(**{**fields, "variables": {**variables, **_token_variables(file.tokens)}})


def _token_variables(tokens: TokenTable) -> dict[str, str]:
    variables = {}
    for kind in TOKEN_KINDS:
        token: TokenStyle = getattr(tokens, kind)
        variables[f"token-{kind}"] = token.colour
        variables[f"token-{kind}-style"] = " ".join(token.style) or "none"
    return variables


def _colour(key: str, given: str, text: str | None = None) -> Color:
    """Parse a colour. `text` is the part of the value `given` that names it, by default all."""
    try:
        return Color.parse(given if text is None else text)
    except ColorParseError as error:
        hint = f"; did you mean {error.suggested_color!r}?" if error.suggested_color else ""
        raise _BadValueError(key, given, f"is not a colour{hint}") from error


def _variable(name: str, value: object, default: str | None) -> str:
    """Check one entry of `[variables]` against Textual's default for it."""
    key = f"variables.{name}"
    if default is None:
        raise _BadValueError(key, value, "is not a variable of Textual's themes")
    if not isinstance(value, str):
        raise _BadValueError(key, value, "is not a string")
    if "style" in name:
        if not _TEXT_STYLE.fullmatch(value):
            flags = ", ".join(get_args(StyleFlag))
            raise _BadValueError(key, value, f"is not a text style (none, or of: {flags})")
        return value
    if value == default or (default.startswith("auto") and _AUTO.fullmatch(value)):
        return value
    parts = _COLOUR_AND_ALPHA.fullmatch(value.strip())
    if parts is None:
        raise _BadValueError(key, value, "is not a colour")
    colour = _colour(key, value, parts["colour"])
    # As one value without a space it is valid wherever a style uses the variable.
    return (colour.with_alpha(float(parts["percent"]) / 100) if parts["percent"] else colour).hex
