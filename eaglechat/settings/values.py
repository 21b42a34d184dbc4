"""Parses values of settings from text, checks them, and writes them as text."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from eaglechat.settings.description import SettingDoc
from eaglechat.wire.load_options import TENSOR_SPLIT_REFUSED

_NOUNS = {int: "a whole number", float: "a number"}


class WrongValueError(ValueError):
    """A value that its setting does not accept. The text says which values it does, such as
    “9.0 must be between 0 and 5”."""


def check(doc: SettingDoc, value: Any) -> Any:
    """Convert a value to the type of its setting. Raises WrongValueError."""
    return _checked(doc, value, _shown(value))


def parse(doc: SettingDoc, text: str) -> Any:
    """Parse a value that was typed or given to a flag. Raises WrongValueError."""
    if doc.kind is str and not doc.choices:
        return check(doc, text)
    text = text.strip()
    value = text if text in doc.words else _parsed(doc, text)
    return _checked(doc, value, f'"{text}"' if isinstance(value, str) else text)


def written(value: Any) -> str:
    """A value as the user would type it. A list is written as in TOML and JSON; an empty list is
    an empty text."""
    if isinstance(value, tuple | list):
        # `default` is for dates, which a list in config.toml may hold and JSON does not have.
        return json.dumps(list(value), ensure_ascii=False, default=str) if value else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def wanted(doc: SettingDoc) -> str:
    """The values that a setting accepts, such as “a number between 0 and 5” or “f16 or q8_0”."""
    return _wanted(doc, _NOUNS.get(doc.kind, ""))


def _checked(doc: SettingDoc, value: Any, shown: str) -> Any:
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise WrongValueError("this is not text in UTF-8")
    try:
        return msgspec.convert(value, doc.hint)
    except msgspec.ValidationError:
        if doc.name == "engine.split_mode" and value == "tensor":
            raise WrongValueError(f"tensor cannot be used: {TENSOR_SPLIT_REFUSED}") from None
        numbers = int if doc.kind is int else int | float
        noun = "" if _is_number(value, numbers) else _NOUNS.get(doc.kind, "")
        raise WrongValueError(f"{shown} must be {_wanted(doc, noun)}") from None


def _is_number(value: Any, numbers: Any) -> bool:
    return isinstance(value, numbers) and not isinstance(value, bool)


def _parsed(doc: SettingDoc, text: str) -> Any:
    """The text as a value of the setting's type, or the text itself if it cannot be one."""
    try:
        if doc.kind is int:
            return int(text)
        if doc.kind is float:
            return float(text)
        if doc.kind is bool:
            return {"on": True, "true": True, "off": False, "false": False}.get(text, text)
        if doc.kind is tuple:
            listed = text.startswith("[") or doc.item_kind is str
            return json.loads(text if listed else f"[{text}]") if text else []
    except ValueError:
        pass
    return text


def _wanted(doc: SettingDoc, noun: str) -> str:
    """`noun` is the kind of number; empty if the value is such a number but out of range."""
    if doc.choices:
        return _either(doc.choices)
    if doc.kind is tuple:
        most = f"at most {doc.most_items} " if doc.most_items is not None else ""
        items = "strings" if doc.item_kind is str else f"numbers {doc.range}".strip()
        return f"a list of {most}{items}, such as {written(doc.example)}"
    if doc.kind not in _NOUNS:
        return "true or false" if doc.kind is bool else "text"
    comma = "," if noun and doc.range.maximum is None else ""
    alternative = f", or {_either(doc.words)}" if doc.words else ""
    return f"{noun}{comma} {doc.range}".strip() + alternative


def _either(words: tuple[str, ...]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _shown(value: Any) -> str:
    """A value as it is written in config.toml."""
    if isinstance(value, bool | list | tuple):
        return written(value) or "[]"
    if isinstance(value, str):
        return f'"{value}"'
    return "a table" if isinstance(value, dict) else str(value)
