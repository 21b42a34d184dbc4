"""What a text that is drawn is made of."""

from __future__ import annotations

from textual.content import Content

Part = Content | str | tuple[str, str]
"""A piece of a text: plain, or with its style."""
MUTED = "$foreground-muted"
