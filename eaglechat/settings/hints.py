"""Reads the type annotations of the model of the settings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta


@cache
def hints_of(table: type[msgspec.Struct]) -> dict[str, Any]:
    """The type annotation of each key of a table."""
    return get_type_hints(table, include_extras=True)


def members_of(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type, without their annotations."""
    bare = _bare(hint)
    if get_origin(bare) not in (Union, UnionType):
        return (bare,)
    return tuple(one for member in get_args(bare) for one in members_of(member))


def metas_of(hint: Any) -> Iterator[Meta]:
    """The Meta annotations of a type and of the members of a union, the outermost last."""
    if get_origin(hint) is Annotated:
        inner, *metas = get_args(hint)
        yield from metas_of(inner)
        yield from (meta for meta in metas if isinstance(meta, Meta))
    elif get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from metas_of(member)


def extra_of(hint: Any) -> dict[str, Any]:
    """The `extra` entries of all Meta annotations of a setting."""
    return {key: value for meta in metas_of(hint) for key, value in (meta.extra or {}).items()}


def words_of(hint: Any) -> tuple[str, ...]:
    """The words that a setting accepts: all its values, or those instead of a number."""
    members = members_of(hint)
    return tuple(w for one in members if get_origin(one) is Literal for w in get_args(one))


def kind_of(hint: Any) -> type:
    """bool, int, float, str or tuple; str if the setting accepts only words."""
    types = [one for one in members_of(hint) if get_origin(one) is not Literal]
    kind = types[0] if types else str
    found: type = get_origin(kind) or kind
    return found


def _bare(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint
