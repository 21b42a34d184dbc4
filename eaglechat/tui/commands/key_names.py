"""Keys as a keyboard writes them."""

from __future__ import annotations

from eaglechat.tui.commands.command import LEADER

_NAMES = {
    "escape": "Esc",
    "plus": "+",
    "minus": "-",
    "comma": ",",
    "semicolon": ";",
    "apostrophe": "'",
    "equals_sign": "=",
    "number_sign": "#",
    "percent_sign": "%",
    "asterisk": "*",
    "full_stop": ".",
    "question_mark": "?",
    "slash": "/",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_parenthesis": "(",
    "right_parenthesis": ")",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "pageup": "PgUp",
    "pagedown": "PgDn",
}

ENTER, TAB = "Enter", "Tab"
"""Keys of buttons, fields and lists: they are the same in every program, and stay."""


def key_name(key: str, leader: str) -> str:
    """`ctrl+n` is Ctrl+N; `leader v` is the name of the leader's key, then V."""
    if key.startswith(f"{LEADER} "):
        return f"{key_name(leader, leader)} {_second(key)}"
    *modifiers, last = key.split("+")
    if len(last) == 1 and not modifiers:
        return last
    is_short = len(last) == 1 or last[1:].isdigit()
    name = _NAMES.get(last) or (last.upper() if is_short else last.capitalize())
    return "+".join([*(modifier.capitalize() for modifier in modifiers), name])


def _second(key: str) -> str:
    name = key_name(key.partition(" ")[2], "")
    return name.upper() if len(name) == 1 else name
