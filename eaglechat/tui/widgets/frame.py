"""The frames of dialogs, and the words on them."""

from __future__ import annotations

from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from eaglechat.tui.commands.registry import BY_ID, KEY_PLACEHOLDER, with_keys


class _PlainTitles(Widget):
    """The titles in its border are not read as markup: they may be names that others chose."""

    def render_str(self, text_content: str | Content) -> Content:
        return Content(text_content) if isinstance(text_content, str) else text_content


class Frame(_PlainTitles, Vertical):
    pass


class ScrolledFrame(_PlainTitles, VerticalScroll):
    pass


def clickable(text: str) -> Content:
    """What can be done in a dialog, such as `{list.choose} loads, {dialog.back} back`, for its
    border: with the names of the keys, and a click on a part does it."""
    parts = []
    for part in text.split(", "):
        named = [id for id in KEY_PLACEHOLDER.findall(part) if id in BY_ID]
        does = Style.from_meta({"@click": f"app.run_command('{named[0]}')"}) if named else ""
        parts.append(Content.styled(with_keys(part), does))
    return Content(", ").join(parts)
