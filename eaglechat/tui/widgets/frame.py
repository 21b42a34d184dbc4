"""The frames of dialogs, and the words on them."""

from __future__ import annotations

from textual.containers import Vertical
from textual.content import Content
from textual.style import Style

from eaglechat.tui.commands.registry import BY_ID, ENTER, KEY_PLACEHOLDER, with_keys


class Frame(Vertical):
    """The titles in its border are not read as markup: they may be names that others chose."""

    def render_str(self, text_content: str | Content) -> Content:
        return Content(text_content) if isinstance(text_content, str) else text_content


def clickable(text: str) -> Content:
    """What can be done in a dialog, such as `{list.choose} loads, {dialog.back} back`, for its
    border: with the names of the keys, and a click on a part does it."""
    parts = []
    for part in text.split(", "):
        named = [id for id in KEY_PLACEHOLDER.findall(part) if id in BY_ID]
        action = f"app.run_command('{named[0]}')" if named else ""
        if part.startswith(f"{ENTER} "):
            action = "app.simulate_key('enter')"
        does = Style.from_meta({"@click": action}) if action else ""
        parts.append(Content.styled(with_keys(part), does))
    return Content(", ").join(parts)
