"""The description of each setting, for the command line, the settings screen and the docs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Meta

from eaglechat.settings.hints import extra_of, hints_of, kind_of, members_of, metas_of, words_of
from eaglechat.settings.model import Settings
from eaglechat.wire.protocol import RecommendedSampling


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
        least = number_text(self.minimum)
        if self.maximum is None:
            return f"above {least}" if self.above_minimum else f"{least} or more"
        most = number_text(self.maximum)
        return (
            f"above {least} and at most {most}"
            if self.above_minimum
            else f"between {least} and {most}"
        )


@dataclass(frozen=True)
class SettingDoc:
    """One setting: its name, its values and what it does."""

    table: str
    key: str
    hint: Any
    """Its type annotation in the model."""
    kind: type
    """bool, int, float, str or tuple."""
    words: tuple[str, ...]
    """The words it accepts: all its values, or those instead of a number, such as auto."""
    range: Range
    """The range of the number, or of each number in a list."""
    default: Any
    description: str
    flag: str
    """Its flag on the command line; empty if it has none. The flag of a bool switches it off."""
    flag_help: str
    shorthand: tuple[tuple[str, Any], ...] = ()
    """More flags, which take no value, each with the value that it sets."""
    example: tuple[Any, ...] | None = None
    """An example value; set for lists only."""
    most_items: int | None = None
    is_models: bool = False
    """Whether the recommendation in the model's file applies until the user sets it."""

    @property
    def name(self) -> str:
        return f"{self.table}.{self.key}"

    @property
    def choices(self) -> tuple[str, ...]:
        """All values, if the setting accepts only words; else empty."""
        return self.words if self.kind is str else ()

    @property
    def item_kind(self) -> type:
        """The type of a list's items: str or float."""
        return kind_of(get_args(members_of(self.hint)[0])[0])


def describe() -> Iterator[SettingDoc]:
    """Every setting, in the order of the model."""
    for table, default in _tables():
        for key, hint in hints_of(type(default)).items():
            yield _doc(table, key, hint, getattr(default, key))


def find(table: str, key: str) -> SettingDoc:
    """The setting with this name. In a table whose keys are free ([keys]), every key is a setting.
    Raises KeyError if there is no such setting."""
    values = hints_of(Settings).get(table)
    if get_origin(values) is dict:
        return _doc(table, key, get_args(values)[1], None)
    return {(doc.table, doc.key): doc for doc in describe()}[table, key]


def _tables() -> Iterator[tuple[str, msgspec.Struct]]:
    """The tables with fixed keys, each with its defaults."""
    for field in msgspec.structs.fields(Settings):
        if isinstance(field.default, msgspec.Struct):
            yield field.name, field.default


def _doc(table: str, key: str, hint: Any, default: Any) -> SettingDoc:
    metas = list(metas_of(hint))
    extra = extra_of(hint)
    kind = kind_of(hint)
    description = next((m.description for m in reversed(metas) if m.description), "")
    ranged = metas if kind is not tuple else list(metas_of(get_args(members_of(hint)[0])[0]))
    return SettingDoc(
        table=table,
        key=key,
        hint=hint,
        kind=kind,
        words=words_of(hint),
        range=_range(ranged),
        default=default,
        description=description,
        flag=extra.get("flag", f"--{key.replace('_', '-')}"),
        flag_help=extra.get("flag_help", description),
        shorthand=tuple(extra.get("shorthand", {}).items()),
        example=next((tuple(m.examples[0]) for m in metas if m.examples), None),
        most_items=next((m.max_length for m in metas if m.max_length is not None), None),
        is_models=table == "generation" and key in RecommendedSampling.__struct_fields__,
    )


def _range(metas: list[Meta]) -> Range:
    return Range(
        minimum=next((v for m in metas for v in (m.ge, m.gt) if v is not None), None),
        maximum=next((m.le for m in metas if m.le is not None), None),
        above_minimum=any(m.gt is not None for m in metas),
    )


def number_text(value: float) -> str:
    """A number with thousands separators and no needless decimals."""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
