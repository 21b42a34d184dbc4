"""What servers write as JSON. Each has fields, and types of fields, of its own, and none of them is
worth a reply: a value is asked for by its path, and is empty if nothing of its type stands there.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

_MOST = 2**53
"""More than any count. Counts are cut to 0 ... _MOST: a server's numbers may be anything."""


def read_json(text: str | bytes) -> Any:
    """The JSON in a text. Half a surrogate pair stays one: servers that are written in JavaScript
    cut characters in two. Raises ValueError."""
    try:
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError):
            # Slower, but it also reads such halves.
            return json.loads(text)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def at(value: Any, *path: str) -> Any:
    """What stands at this path of names; None if nothing does."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def fields(value: Any, *path: str) -> dict[str, Any]:
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def text(value: Any, *path: str) -> str:
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def number(value: Any, *path: str) -> float:
    """The finite number there, which may be written as a text."""
    found = at(value, *path)
    try:
        known = 0.0 if isinstance(found, bool) else float(found)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return known if math.isfinite(known) else 0.0


def count(value: Any, *path: str) -> int:
    """The count there: a number without a fraction."""
    known = number(value, *path)
    return min(max(int(known), 0), _MOST) if known.is_integer() else 0
