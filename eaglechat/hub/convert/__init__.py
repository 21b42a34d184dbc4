"""Converts EAGLE-3 checkpoints to GGUF drafts."""

from eaglechat.hub.convert.api import TYPES, ConversionReport, Progress, convert
from eaglechat.hub.convert.errors import ConversionError

__all__ = ["TYPES", "ConversionError", "ConversionReport", "Progress", "convert"]
