"""JSON of a checkpoint, typed."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from eaglechat.hub.convert.errors import ConversionError

T = TypeVar("T")


def decode(data: bytes | msgspec.Raw, shape: type[T], what: str) -> T:
    """`data` as a `shape`. Raises ConversionError, which calls the data `what`."""
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConversionError(f"{what} is damaged: {error}") from error
