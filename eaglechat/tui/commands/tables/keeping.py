"""The commands that work on chats on disk: find, name, pin, delete, export."""

from __future__ import annotations

from eaglechat.tui.commands.command import Argument, Command

KEEPING = (
    Command(
        id="chats.search",
        title="Find in all chats",
        help="Find a title or a passage in all chats",
        scopes=("chat",),
        keys=("leader f",),
        action="find_all({})",
        priority=True,
        argument=Argument(text="some words", is_optional=True),
        slash="find",
    ),
    Command(
        id="chat.find",
        title="Find in this chat",
        help="Find a passage in the open chat, or close the line for it and stay",
        scopes=("chat",),
        keys=("leader slash",),
        priority=True,
        slash=None,
    ),
    Command(
        id="chat.export",
        title="Export",
        help="Write the chat to a file: Markdown, JSON, or a page in the colours of the tokens",
        scopes=("chat",),
        keys=("leader w",),
        action="export({})",
        priority=True,
        argument=Argument(words=("markdown", "json", "html"), is_optional=True),
    ),
    Command(
        id="find.next",
        title="Next place",
        help="Show the next place",
        scopes=("find",),
        keys=("enter", "down"),
    ),
    Command(
        id="find.previous",
        title="Previous place",
        help="Show the place before",
        scopes=("find",),
        keys=("up",),
    ),
    Command(
        id="find.back",
        title="Back",
        help="Close the line, and go back to where you were",
        scopes=("find",),
        keys=("escape",),
    ),
    Command(
        id="chats.rename",
        title="Rename",
        help="Change the title of the highlighted chat",
        scopes=("chats",),
        keys=("ctrl+r",),
        priority=True,
    ),
    Command(
        id="chats.pin",
        title="Pin",
        help="Keep the highlighted chat at the top of the list, or no longer",
        scopes=("chats",),
        keys=("leader asterisk",),
        priority=True,
    ),
    Command(
        id="chats.remove",
        title="Delete",
        help="Delete the highlighted chat; for a month it can be brought back",
        scopes=("chats",),
        keys=("ctrl+d",),
        priority=True,
    ),
    Command(
        id="chats.undo_delete",
        title="Undo a deletion",
        help="Bring back the chat that was deleted last",
        scopes=("chats",),
        keys=("leader backspace",),
        priority=True,
    ),
    Command(
        id="chats.thought",
        title="Search the reasoning",
        help="Find what models thought too, or no longer",
        scopes=("chats",),
        keys=("leader i",),
        priority=True,
    ),
)
