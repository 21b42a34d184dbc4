"""The commands of the menu, and of the dialogs about models and downloads."""

from __future__ import annotations

from eaglechat.tui.commands.command import Command

MENU = (
    Command(
        id="menu.pane",
        title="Details of the pair",
        help="Show or hide the details of the highlighted pair",
        scopes=("menu",),
        keys=("leader p",),
        aliases=("f2",),
        action="details",
        priority=True,
        footer="Details",
    ),
    Command(
        id="menu.search",
        title="Search the Hub",
        help="Search the Hub for a target and drafts for it",
        scopes=("menu",),
        keys=("leader f",),
        priority=True,
    ),
    Command(
        id="menu.library",
        title="Models on this machine",
        help="Load, pair up or delete models on this machine",
        scopes=("menu",),
        keys=("leader l",),
        priority=True,
    ),
    Command(
        id="menu.files",
        title="Open GGUF files",
        help="Open a target and a draft from GGUF files",
        scopes=("menu",),
        keys=("leader o",),
        action="open_files",
        priority=True,
    ),
    Command(
        id="menu.remove",
        title="Remove from the list",
        help="Remove a recent pair from the list; its files stay",
        scopes=("menu",),
        keys=("ctrl+d",),
        action="forget",
        priority=True,
    ),
    Command(
        id="library.remove",
        title="Delete the model",
        help="Delete the highlighted model (asks first)",
        scopes=("library",),
        keys=("ctrl+d",),
        action="delete",
        priority=True,
    ),
    Command(
        id="open.parent",
        title="Parent directory",
        help="Show the parent directory",
        scopes=("open",),
        keys=("leader u",),
    ),
    Command(
        id="menu.suspend",
        title="Suspend",
        help="Suspend eaglechat; fg in the shell resumes it",
        scopes=("menu",),
        keys=("ctrl+z",),
        action="app.suspend",
    ),
)

DOWNLOADS = (
    Command(
        id="downloads.pause",
        title="Pause or resume",
        help="Pause the highlighted download, or resume it",
        scopes=("downloads",),
        keys=("space",),
    ),
    Command(
        id="downloads.cancel",
        title="Cancel",
        help="Cancel the highlighted download; its files stay in the cache",
        scopes=("downloads",),
        keys=("x", "delete"),
    ),
)
