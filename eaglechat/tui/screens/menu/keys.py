"""The keys of the menu. All reach it while the filter has the focus, so they avoid its own."""

from __future__ import annotations

from textual.binding import Binding, BindingType


def _key(
    keys: str, action: str, description: str, id: str, tooltip: str, *, show: bool = True
) -> Binding:
    return Binding(
        keys, action, description, show=show, id=f"menu.{id}", tooltip=tooltip, priority=True
    )


MENU_BINDINGS: list[BindingType] = [
    _key("f2", "details", "Details", "details", "Show all that is known of the pair, or the list"),
    _key("ctrl+f", "search", "Search", "search", "Search the Hub for a target and drafts for it"),
    _key("ctrl+l", "library", "Library", "library", "Load, pair up or delete what is here"),
    _key("ctrl+g", "app.downloads", "Downloads", "downloads", "What is being downloaded"),
    _key(
        "ctrl+o",
        "open_files",
        "Open",
        "open",
        "Choose a target and a draft among the GGUF files on this machine",
        show=False,
    ),
    _key("ctrl+t", "past_chats", "Chats", "chats", "Go on with an earlier chat", show=False),
    _key("f5", "forget", "Forget", "forget", "Drop a recent pair; its files stay", show=False),
]
