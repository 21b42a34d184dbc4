"""Packs a GGUF's metadata fields as they stand in the file."""

from __future__ import annotations

import struct
from typing import Any

import gguf

from eaglechat.hub.convert.errors import ConversionError

_T = gguf.GGUFValueType
_FORMATS = {_T.UINT32: "<I", _T.INT32: "<i", _T.UINT64: "<Q", _T.FLOAT32: "<f", _T.BOOL: "<?"}


def pack(
    key: str, value: Any, kind: gguf.GGUFValueType, element: gguf.GGUFValueType = _T.STRING
) -> bytes:
    """A field; `element` is the type of an array's values. Raises ConversionError."""
    try:
        return _pack(key, value, kind, element)
    except (struct.error, OverflowError) as error:
        shown = str(value)[:40]
        raise ConversionError(f"{key} cannot be {shown}: a GGUF has no room for it") from error


def _pack(key: str, value: Any, kind: gguf.GGUFValueType, element: gguf.GGUFValueType) -> bytes:
    packed = _text(key) + struct.pack("<I", kind)
    if kind is _T.ARRAY:
        packed += struct.pack("<IQ", element, len(value))
        return packed + b"".join(_value(item, element) for item in value)
    return packed + _value(value, kind)


def _value(value: Any, kind: gguf.GGUFValueType) -> bytes:
    return _text(value) if kind is _T.STRING else struct.pack(_FORMATS[kind], value)


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return struct.pack("<Q", len(encoded)) + encoded
