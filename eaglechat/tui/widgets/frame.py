"""The frames of dialogs."""

from __future__ import annotations

from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget


class _PlainTitles(Widget):
    """The titles in its border are not read as markup: they may be names that others chose."""

    def render_str(self, text_content: str | Content) -> Content:
        return Content(text_content) if isinstance(text_content, str) else text_content


class Frame(_PlainTitles, Vertical):
    pass


class ScrolledFrame(_PlainTitles, VerticalScroll):
    pass
