"""The colours of an exported page, as a theme has them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eaglechat import paths

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")
_STYLES = {
    "bold": "font-weight: bold",
    "italic": "font-style: italic",
    "underline": "text-decoration: underline",
    "overline": "text-decoration: overline",
    "strike": "text-decoration: line-through",
    "dim": "opacity: 0.75",
}


@dataclass(frozen=True)
class Look:
    """Colours as `#RRGGBB`; for each kind of token its colour and style flags."""

    background: str
    foreground: str
    surface: str
    accent: str
    tokens: Mapping[str, tuple[str, Sequence[str]]]


def shipped(name: str) -> Look:
    """The look of a shipped theme."""
    raw = tomllib.loads((paths.builtin_themes_dir() / f"{name}.toml").read_text("utf-8"))
    tokens = {kind: (one["colour"], one["style"]) for kind, one in raw["tokens"].items()}
    return Look(raw["background"], raw["foreground"], raw["surface"], raw["primary"], tokens)


def style_sheet(looks: Sequence[Look]) -> str:
    """The rules of one look; of two, the first for readers whose system is light, the second for
    those whose is dark."""
    first, *others = looks
    rules = _rules(first)
    for look in others:
        rules += f"@media (prefers-color-scheme: dark) {{\n{_rules(look)}}}\n"
    return rules


def _rules(look: Look) -> str:
    ground = f"background: {_colour(look.background)}; color: {_colour(look.foreground)}"
    rules = f"body {{ {ground} }}\n.you {{ background: {_colour(look.surface)} }}\n"
    rules += f"h1, h2, summary {{ color: {_colour(look.accent)} }}\n"
    for kind, (colour, flags) in look.tokens.items():
        styles = [_STYLES[flag] for flag in flags if flag in _STYLES]
        rules += f".{kind} {{ {'; '.join([f'color: {_colour(colour)}', *styles])} }}\n"
    return rules


def _colour(colour: str) -> str:
    """A colour that a style sheet takes, and nothing else."""
    return colour if _COLOUR.fullmatch(colour) else "inherit"
