"""What each setting is and which values it takes, for config.toml, the command line, the settings
screen and the docs: what its type in the model says, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from eaglechat.settings.model import Settings
from eaglechat.settings.said import ANY_KEY, AS_ITS_KEY, SAID, Said
from eaglechat.wire.protocol import Sampling


@dataclass(frozen=True)
class Range:
    """The range of numbers that a setting accepts. None means no limit."""

    minimum: float | None = None
    maximum: float | None = None
    above_minimum: bool = False
    """Whether the minimum itself is excluded."""

    def __bool__(self) -> bool:
        return self.minimum is not None

    def __str__(self) -> str:
        """The range in words: “between 0 and 5”, “0 or more”, “above 0 and at most 4”."""
        if self.minimum is None:
            return ""
        least = _number_text(self.minimum)
        if self.maximum is None:
            return f"above {least}" if self.above_minimum else f"{least} or more"
        most = _number_text(self.maximum)
        return (
            f"above {least} and at most {most}"
            if self.above_minimum
            else f"between {least} and {most}"
        )


def _number_text(value: float) -> str:
    """A number with thousands separators and no needless decimals."""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


@dataclass(frozen=True, kw_only=True)
class SettingDoc(Said):
    """One setting: its name, its values, and what is said of it."""

    table: str
    key: str
    hint: Any
    """Its type annotation in the model."""
    kind: type
    """bool, int, float, str or tuple."""
    item_kind: type | None
    """The type of a list's items, str or float; None if the setting is not a list."""
    words: tuple[str, ...]
    """The words it accepts: all its values, or those instead of a number, such as auto."""
    range: Range
    """The range of the number, or of each number in a list."""
    default: Any
    most_items: int | None
    follows_model: bool
    """Whether the value that the model's file recommends applies until the user sets one."""

    @property
    def name(self) -> str:
        return f"{self.table}.{self.key}"

    @property
    def choices(self) -> tuple[str, ...]:
        """All values, if the setting accepts only words; else empty."""
        return self.words if self.kind is str else ()


@cache
def describe() -> tuple[SettingDoc, ...]:
    """Every setting, in the order of the model."""
    return tuple(
        replace(doc, default=getattr(table.default, doc.key))
        for table in msgspec.structs.fields(Settings)
        if isinstance(table.default, msgspec.Struct)
        for doc in docs_of(type(table.default), table.name)
    )


def docs_of(
    struct: type[msgspec.Struct], table: str, said: Mapping[str, Said] | None = None
) -> tuple[SettingDoc, ...]:
    """Every field of a struct, in its order; the default of one that must be given is NODEFAULT.
    `said` is for a table that is not in `SAID`."""
    hints = get_type_hints(struct, include_extras=True)
    said, made = said or SAID[table], msgspec.NODEFAULT
    return tuple(
        _doc(
            table,
            field.name,
            hints[field.name],
            field.default if field.default_factory is made else field.default_factory(),
            said.get(field.name, Said()),
        )
        for field in msgspec.structs.fields(struct)
    )


def find(table: str, key: str) -> SettingDoc:
    """The setting with this name. In the table [keys] every key is a setting. Raises KeyError if
    there is no such setting."""
    if table == "keys":
        any_key: Any = get_args(get_type_hints(Settings, include_extras=True)[table])[1]
        return _doc(table, key, any_key, None, ANY_KEY)
    return {(doc.table, doc.key): doc for doc in describe()}[table, key]


def _doc(table: str, key: str, hint: Any, default: Any, said: Said) -> SettingDoc:
    types, metas = _taken_apart(hint)
    values = next((one for one in types if get_origin(one) is not Literal), str)
    kind = get_origin(values) or values
    item_types, item_metas = _taken_apart(get_args(values)[0]) if kind is tuple else ([], [])
    ranged = item_metas if kind is tuple else metas
    flag = f"--{key.replace('_', '-')}" if said.flag == AS_ITS_KEY else said.flag
    return SettingDoc(
        **vars(replace(said, flag=flag, flag_help=said.flag_help or said.description)),
        table=table,
        key=key,
        hint=hint,
        kind=kind,
        item_kind=item_types[0] if item_types else None,
        words=tuple(w for one in types if get_origin(one) is Literal for w in get_args(one)),
        range=Range(
            minimum=next((v for m in ranged for v in (m.ge, m.gt) if v is not None), None),
            maximum=next((m.le for m in ranged if m.le is not None), None),
            above_minimum=any(m.gt is not None for m in ranged),
        ),
        default=default,
        most_items=next((m.max_length for m in metas if m.max_length is not None), None),
        follows_model=table == "generation" and key in Sampling.__struct_fields__ and key != "seed",
    )


def _taken_apart(hint: Any) -> tuple[list[Any], list[Meta]]:
    """The types in a type annotation (several if it is a union), and its Meta annotations, the
    outermost last."""
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *added = get_args(hint)
        types, metas = _taken_apart(inner)
        return types, [*metas, *(meta for meta in added if isinstance(meta, Meta))]
    if origin in (Union, UnionType):
        members = [_taken_apart(member) for member in get_args(hint)]
        return [one for types, _ in members for one in types], [
            meta for _, metas in members for meta in metas
        ]
    return [hint], []


# The values of a setting


class WrongValueError(ValueError):
    """A value that its setting does not accept. The text says which values it does, such as
    “9.0 must be between 0 and 5”."""


_NOUNS = {int: "a whole number", float: "a number"}


def check(doc: SettingDoc, value: Any) -> Any:
    """Convert a value to the type of its setting. Raises WrongValueError."""
    if isinstance(value, bool | list | tuple):
        shown = written(value) or "[]"
    elif isinstance(value, str):
        shown = f'"{value}"'
    else:
        shown = "a table" if isinstance(value, dict) else str(value)
    return _checked(doc, value, shown)


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


def _checked(doc: SettingDoc, value: Any, shown: str) -> Any:
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise WrongValueError("this is not text in UTF-8")
    try:
        return msgspec.convert(value, doc.hint)
    except msgspec.ValidationError:
        if doc.name == "engine.split_mode" and value == "tensor":
            raise WrongValueError(
                "tensor cannot be used: llama.cpp's tensor split stops at an assertion when a "
                "draft reads the target's layers; use layer, row or none"
            ) from None
        numbers = int if doc.kind is int else int | float
        is_number = isinstance(value, numbers) and not isinstance(value, bool)
        raise WrongValueError(f"{shown} must be {wanted(doc, is_number=is_number)}") from None


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


def wanted(doc: SettingDoc, *, is_number: bool = False) -> str:
    """The values that a setting accepts, such as “a number between 0 and 5” or “f16 or q8_0”; of a
    value that is such a number and out of range, “between 0 and 5”."""
    if doc.choices:
        return either(doc.choices)
    if doc.kind is tuple:
        most = f"at most {doc.most_items} " if doc.most_items is not None else ""
        items = "strings" if doc.item_kind is str else f"numbers {doc.range}".strip()
        return f"a list of {most}{items}, such as {written(doc.example)}"
    if doc.kind not in _NOUNS:
        return "true or false" if doc.kind is bool else "text"
    noun = "" if is_number else _NOUNS[doc.kind]
    comma = "," if noun and doc.range.maximum is None else ""
    alternative = f", or {either(doc.words)}" if doc.words else ""
    return f"{noun}{comma} {doc.range}".strip() + alternative


def either(words: tuple[str, ...]) -> str:
    """`auto, on or off`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
