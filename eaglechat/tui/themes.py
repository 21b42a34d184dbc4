"""Themes from TOML files, those that ship and the user's own, and how tokens are drawn in them.

Every value is checked when it is loaded: Textual would find a bad one only when the running app
parses its styles. A theme reaches the widgets as CSS variables: Textual's own, and for each kind
of token `$token-<kind>` (a colour) and `$token-<kind>-style` (a text style).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from textual.app import App
from textual.color import Color, ColorParseError
from textual.content import Content
from textual.css.errors import UnresolvedVariableError
from textual.css.tokenizer import TokenError
from textual.style import Style
from textual.theme import BUILTIN_THEMES, Theme

from eaglechat.settings.config_file import Problem

FALLBACK_THEME = "eagle-dark"
MUTED = "$foreground-muted"
Part = Content | str | tuple[str, str]
"""A piece of a text that is drawn: plain, or with its style."""
REJECTED = "rejected"
NGRAM_KIND = "n-gram"
"""The kind of accepted tokens that n-grams drafted: drawn as accepted and underlined."""
GUESSED = "guessed"
"""The kind of text that a drafter guessed, in the live view: in the colour of accepted tokens."""
_TOKEN = "token-"
"""Begins the names of the variables of tokens."""

TEXT_CONTRAST, MUTED_CONTRAST = 4.5, 3.0
"""The least contrast of a text with what is behind it, and of a muted one (WCAG 2)."""
_GROUNDS = ("background", "surface", "panel")
_TEXTS = (
    "foreground", "primary", "secondary", "accent", "text-warning", "text-error", "text-success",
    "text-accent",
)  # fmt: skip
"""The variables in which text is written."""
_ON_FOOTER = ("footer-key-foreground", "footer-description-foreground")
_BLACK, _WHITE = Color(0, 0, 0), Color(255, 255, 255)
_MIXES = 20

StyleFlag = Literal["bold", "dim", "italic", "overline", "reverse", "strike", "underline"]

# Textual makes a CSS class of the name.
_NAME = re.compile("[A-Za-z][A-Za-z0-9_-]*")
_FLAG = "|".join((*get_args(StyleFlag), "b", "i", "o", "u", "uu"))
_TEXT_STYLE = re.compile(rf"none|(?:not )?(?:{_FLAG})(?: (?:not )?(?:{_FLAG}))*")


class TokenStyle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The colour and text style of one kind of token. The style distinguishes it without colour."""

    colour: str
    style: tuple[StyleFlag, ...]


class TokenTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[tokens]` table: the origins of tokens, and rejected draft tokens."""

    accepted: TokenStyle
    correction: TokenStyle
    bonus: TokenStyle
    plain: TokenStyle
    rejected: TokenStyle


TOKEN_KINDS = TokenTable.__struct_fields__
"""The kinds of tokens that a transcript distinguishes."""


@dataclass(kw_only=True)
class ThemeFile(Theme):
    """A theme's TOML file. Textual derives a colour that is left out from the others."""

    tokens: TokenTable


def load_themes(*directories: Path) -> tuple[list[Theme], list[Problem]]:
    """Read every `*.toml` of the directories. A theme replaces one of the same name from an earlier
    directory."""
    themes: dict[str, Theme] = {}
    problems: list[Problem] = []
    for directory in directories:
        names: dict[str, str] = {}
        for file in sorted(directory.glob("*.toml")):
            loaded = read_theme(file)
            if isinstance(loaded, Problem):
                problems.append(loaded)
            elif loaded.name in names:
                reason = f"{loaded.name!r} is the name of {names[loaded.name]} beside it already"
                problems.append(_problem(file, "name", reason))
            else:
                names[loaded.name], themes[loaded.name] = file.name, loaded
    return list(themes.values()), problems


def choose_theme(name: str, loaded: Sequence[Theme]) -> Theme:
    """The theme with this name, of the loaded ones or Textual's, else a dark one."""
    themes = {**BUILTIN_THEMES, **{theme.name: theme for theme in loaded}}
    return themes.get(name) or themes.get(FALLBACK_THEME) or themes["textual-dark"]


def read_theme(file: Path) -> Theme | Problem:
    """Read and check one theme file. Only the first problem is told."""
    try:
        raw = msgspec.toml.decode(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return _problem(file, "", f"cannot be read ({getattr(error, 'strerror', None) or error})")
    try:
        return _theme(raw)
    except ValueError as error:
        what, _, path = str(error).partition(" - at `$")
        what = what.replace("Object", "table").replace("object", "table")
        return _problem(file, path.strip(".`"), f"is wrong: {what}")


def _problem(file: Path, key: str, reason: str) -> Problem:
    return Problem(file, key, f"{reason}; the theme is skipped")


def token_variable_defaults(themes: Iterable[Theme], dark: bool) -> dict[str, str]:
    """Token variables for Textual's own themes, which have none: those of the first dark or light
    theme given."""
    given = next((theme.variables for theme in themes if theme.dark == dark), {})
    return {name: value for name, value in given.items() if name.startswith(_TOKEN)}


def readable(variables: Mapping[str, str], given: Container[str] = ()) -> dict[str, str]:
    """A theme's variables, with which text can be read on each of its grounds: a colour that has
    too little contrast is mixed with white, on a light background with black. Colours of tokens
    that are `given` stay."""
    changed = dict(variables)
    if not variables["background"].startswith("#"):
        return changed  # The terminal chooses its colours.
    grounds = [Color.parse(variables[name]) for name in _GROUNDS]
    tokens = [name for kind in TOKEN_KINDS if (name := f"{_TOKEN}{kind}") in variables]
    for name in (*_TEXTS, *(one for one in tokens if one not in given)):
        changed[name] = _mixed(variables[name], grounds, TEXT_CONTRAST)
    changed["foreground-muted"] = _mixed(variables["foreground-muted"], grounds, MUTED_CONTRAST)
    for name in _ON_FOOTER:
        footer = [Color.parse(variables["footer-background"])]
        changed[name] = _mixed(variables[name], footer, TEXT_CONTRAST)
    return changed


def _mixed(colour: str, grounds: Sequence[Color], least: float) -> str:
    """The colour with as little white or black in it as gives this contrast on each ground."""
    ink = Color.parse(colour)
    far = max((_WHITE, _BLACK), key=lambda one: contrast(one, grounds[0]))
    for share in range(_MIXES):
        mixed = ink.blend(far, share / _MIXES, ink.a)
        if all(contrast(mixed, ground) >= least for ground in grounds):
            return mixed.hex
    return far.hex


def contrast(ink: Color, ground: Color) -> float:
    """The contrast ratio of WCAG 2, from 1 to 21."""
    one, other = _luminance(ground + ink), _luminance(ground)
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def _luminance(colour: Color) -> float:
    red, green, blue = (
        one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4
        for one in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _theme(raw: dict[str, Any]) -> Theme:
    """Raises ValueError, which names what is wrong."""
    if unknown := raw.keys() - {field.name for field in fields(ThemeFile)}:
        raise ValueError(f"a theme has no {min(unknown)!r}")
    theme = msgspec.convert(raw, ThemeFile)
    for key in ("luminosity_spread", "text_alpha"):
        if not 0.0 <= getattr(theme, key) <= 1.0:
            raise ValueError(f"{getattr(theme, key)} is not between 0 and 1 - at `$.{key}")
    if not _NAME.fullmatch(theme.name):
        raise ValueError(f"{theme.name!r} has more than letters, digits, - and _ - at `$.name")
    for key, value in vars(theme).items():
        if isinstance(value, str) and key != "name":
            setattr(theme, key, _colour(value, key))
    known = replace(theme, variables={}).to_color_system().generate()
    for name, value in theme.variables.items():
        if name not in known:
            raise ValueError(f"{name} is not a variable of Textual's themes - at `$.variables")
        if "style" in name:
            if not _TEXT_STYLE.fullmatch(value):
                raise ValueError(f"{value!r} is not a text style - at `$.variables.{name}")
        elif value != known[name]:
            theme.variables[name] = _colour(value, f"variables.{name}", known[name])
    for kind in TOKEN_KINDS:
        token: TokenStyle = getattr(theme.tokens, kind)
        theme.variables[f"{_TOKEN}{kind}"] = _colour(token.colour, f"tokens.{kind}.colour")
        theme.variables[f"{_TOKEN}{kind}-style"] = " ".join(token.style) or "none"
    return theme


def _colour(value: str, key: str, default: str = "") -> str:
    """A colour as one value without a space, which is valid wherever a style uses it; or an
    automatic one, where the default is one. Raises ValueError."""
    try:
        colour = Style.parse(value).foreground
    except (ColorParseError, TokenError, UnresolvedVariableError) as error:
        raise ValueError(f"{value!r} is not a colour: {error} - at `$.{key}") from error
    if colour is None or (colour.auto and not default.startswith("auto")):
        raise ValueError(f"{value!r} is not a colour - at `$.{key}")
    return value if colour.auto else colour.hex


# How tokens are drawn


def token_look(app: App[Any], kind: str) -> str:
    if kind == NGRAM_KIND:
        return "bold underline $token-accepted"
    if kind == GUESSED:
        return f"{'dim ' if app.no_color else ''}$token-accepted"
    style = app.theme_variables[f"token-{kind}-style"]
    return f"{'' if style == 'none' else style} $token-{kind}"


def legend(app: App[Any], no_origins: str | None, *, are_rejected_known: bool) -> Content:
    """The kinds of tokens in one line, each in its own style; or why the origins of tokens are
    unknown. `are_rejected_known` is whether the engine reports the rejected ones."""
    if no_origins:
        return Content(f"origins {no_origins}")
    accepted, *others = TOKEN_KINDS
    return Content(" · ").join(
        Content(f"{kind}: not reported")
        if kind == REJECTED and not are_rejected_known
        else Content.styled(kind, token_look(app, kind))
        for kind in (accepted, NGRAM_KIND, *others)
    )
