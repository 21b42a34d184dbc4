"""Converts EAGLE-3 checkpoints to GGUF drafts."""

from eaglechat.hub.convert.api import ConversionReport, convert
from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.output.files import DIRECT_TYPES, TYPES, Progress

__all__ = [
    "DIRECT_TYPES",
    "TYPES",
    "ConversionError",
    "ConversionReport",
    "Progress",
    "convert",
]
