"""Rounds as bytes: as the protocol writes them, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
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
        return msgspec.json.decode(zlib.decompress(packed), type=list[Round])
    except (zlib.error, msgspec.MsgspecError) as error:
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
