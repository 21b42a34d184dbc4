"""The commands that work on chats on disk: find, name, pin, delete, export."""

from __future__ import annotations

from eaglechat.tui.commands.command import Command

KEEPING = (
    Command(
        id="chats.search",
        title="Find in all chats",
        help="Find a title or a passage in all chats",
        scopes=("chat",),
        keys=("leader f",),
        action="past_chats",
        priority=True,
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
