"""What servers write as JSON, read as far as it is understood: each server has fields, and types of
fields, of its own, and none of them is worth a reply."""

from __future__ import annotations

import json
import math
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import msgspec

Answer = TypeVar("Answer")
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


def fitted(value: Any, kind: type[Answer]) -> Answer:
    """`value` as an object of this type. A field that does not fit keeps its default, and an item
    that does not fit is left out of a list of structs. Numbers may be texts; counts may not have a
    fraction. Raises ValueError if nothing fits."""
    return cast(Answer, _fitted(value, kind))


def _fitted(value: Any, kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        # Of the types here, each is one type or None.
        (kind,) = (one for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is list and isinstance(value, list):
        (item,) = get_args(kind)
        is_struct = _is_struct(item)
        return [_fitted(one, item) for one in value if not is_struct or isinstance(one, dict)]
    if _is_struct(kind) and isinstance(value, dict):
        return _struct(value, kind)
    found = msgspec.convert(value, kind, strict=False)
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError("not a number")
    return min(max(found, 0), _MOST) if kind is int else found


def _struct(value: dict[str, Any], kind: Any) -> Any:
    fields = {}
    for field in msgspec.structs.fields(kind):
        given = value.get(field.encode_name)
        if field.required and given is None:
            raise ValueError(f"no field {field.encode_name}")
        if given is not None:
            try:
                fields[field.name] = _fitted(given, field.type)
            except ValueError:
                if field.required:
                    raise
    return kind(**fields)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
