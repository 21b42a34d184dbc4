"""Rounds as bytes: one column for each field of their records, compressed.

To pack, no field is named: one that a record gets later is kept as well, and has its default in
rounds from before.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgspec

from eaglechat.wire.records import Round

STEPS = 1000
"""Measurements are rounded to thousandths: of a millisecond, of a probability."""
_AS_EMITTED = -1
"""In chats that were written before, in place of the id of a drafted token that was emitted at its
place of the round."""


def pack(rounds: Sequence[Round]) -> bytes:
    """Pack consecutive rounds. What auto expected of each length is kept for the last one only."""
    records = msgspec.to_builtins(rounds)
    for record in records[:-1]:
        if record["auto"] is not None:
            record["auto"]["tokens_per_second"] = ()
    return zlib.compress(msgspec.msgpack.encode(_column(records)), zlib.Z_BEST_COMPRESSION)


def unpack(packed: bytes) -> list[Round]:
    """The rounds. Raises ValueError if the bytes are damaged."""
    try:
        records = _values(msgspec.msgpack.decode(zlib.decompress(packed)))
        for record in records:
            for drafted, token in zip(record["drafted"], record["tokens"], strict=False):
                if drafted["id"] == _AS_EMITTED:
                    drafted["id"], drafted["text"] = token["id"], token["text"]
        return msgspec.convert(records, list[Round])
    except (zlib.error, LookupError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def encodable(text: str) -> str:
    """The text with `?` for each half of a character in UTF-16: no file can hold those."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _column(values: list[Any]) -> list[Any]:
    """Values of one kind, of which some may be None, in the form that `_values` reads."""
    known = [value for value in values if value is not None]
    first = known[0] if known else 0
    if len(known) < len(values):
        return ["some", [value is not None for value in values], _column(known)]
    if isinstance(first, dict):
        columns = {name: _column([value[name] for value in values]) for name in first}
        return ["records", columns]
    if isinstance(first, list | tuple):
        flat = [item for value in values for item in value]
        return ["lists", _column([len(value) for value in values]), _column(flat)]
    if isinstance(first, float) and all(map(math.isfinite, values)):
        return ["steps", [round(value * STEPS) for value in values]]
    return ["plain", [*map(encodable, values)] if isinstance(first, str) else values]


def _values(column: list[Any]) -> list[Any]:
    kind, *parts = column
    values: list[Any] = parts[-1]
    if kind == "some":
        known = iter(_values(values))
        values = [next(known) if is_known else None for is_known in parts[0]]
    elif kind == "records":
        columns: dict[str, Any] = parts[0]
        rows = zip(*map(_values, columns.values()), strict=True)
        values = [dict(zip(columns, row, strict=True)) for row in rows]
    elif kind == "lists":
        values = cut(_values(values), _values(parts[0]))
    elif kind == "steps":
        values = [step / STEPS for step in values]
    # The other kinds are in chats that were written before: zlib needs no help with those values.
    elif kind == "few":
        values = [parts[0][place] for place in values]
    elif kind == "texts":
        values = cut(values, parts[0])
    elif kind == "rising":
        values = [*accumulate(values)]
    return values


def cut(joined: Any, lengths: list[int]) -> list[Any]:
    """Slices of these lengths."""
    ends = [0, *accumulate(lengths)]
    return [joined[start:end] for start, end in pairwise(ends)]
