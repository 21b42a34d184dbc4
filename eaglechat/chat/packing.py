"""Rounds as bytes: as the protocol writes them, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from eaglechat.wire.records import Round

DECIMALS = 3
"""Of measurements: of milliseconds, and of probabilities. All digits would take twice the room."""


def pack(rounds: Sequence[Round]) -> bytes:
    """Pack consecutive rounds. What auto expected of each length is kept for the last one only."""
    kept = [*map(_without_expected, rounds[:-1]), *rounds[-1:]]
    records = _rounded(msgspec.to_builtins(kept))
    return zlib.compress(msgspec.json.encode(records), zlib.Z_BEST_COMPRESSION)


def unpack(packed: bytes) -> list[Round]:
    """The rounds. Raises ValueError if the bytes are damaged."""
    try:
        raw = zlib.decompress(packed)
        if raw.startswith(b"["):
            return msgspec.json.decode(raw, type=list[Round])
        return msgspec.convert(_of_columns(msgspec.msgpack.decode(raw)), list[Round])
    except (zlib.error, LookupError, TypeError, AttributeError, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error


def encodable(text: str) -> str:
    """The text with `?` for each half of a character in UTF-16: no file can hold those."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DECIMALS)
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [*map(_rounded, value)] if isinstance(value, list | tuple) else value


def _without_expected(round_: Round) -> Round:
    auto = round_.auto
    return round_ if auto is None else replace(round_, auto=replace(auto, tokens_per_second=()))


# Rounds of earlier programs: a column for each field of their records


_AS_EMITTED = -1
"""In place of the id of a drafted token that was emitted at its place of the round."""


def _of_columns(columns: list[Any]) -> list[Any]:
    records = _values(columns)
    for record in records:
        for drafted, token in zip(record["drafted"], record["tokens"], strict=False):
            if drafted["id"] == _AS_EMITTED:
                drafted["id"], drafted["text"] = token["id"], token["text"]
    return records


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
    elif kind in ("lists", "texts"):
        lengths = _values(parts[0]) if kind == "lists" else parts[0]
        joined = _values(values) if kind == "lists" else values
        values = [joined[a:b] for a, b in pairwise(accumulate(lengths, initial=0))]
    elif kind == "steps":
        values = [step / 10**DECIMALS for step in values]
    elif kind == "few":
        values = [parts[0][place] for place in values]
    elif kind == "rising":
        values = [*accumulate(values)]
    return values
