"""What the converter raises."""

from __future__ import annotations


class ConversionError(ValueError):
    """The checkpoint cannot become a draft; the text is one sentence that says why."""
