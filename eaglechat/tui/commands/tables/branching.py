"""The commands that work on the turns of a chat, and those that read what stands there."""

from __future__ import annotations

from eaglechat.tui.commands.command import Command

TURNS = (
    Command(
        id="chat.again",
        title="Answer again",
        help="Have the selected question, or the last, answered once more with a new seed",
        scopes=("chat",),
        keys=("leader g",),
        action="answer_again",
        priority=True,
    ),
    Command(
        id="chat.go_on",
        title="Continue the reply",
        help="Have a reply that was stopped go on where it stopped",
        scopes=("chat",),
        keys=("leader o",),
        priority=True,
    ),
    Command(
        id="chat.edit",
        title="Edit a question",
        help="Ask the selected question, or the last, in other words; again for the one before",
        scopes=("chat",),
        keys=("leader u",),
        priority=True,
    ),
    Command(
        id="chat.older_version",
        title="Older version",
        help="Show the version before of the selected turn, or of the last that has several",
        scopes=("chat",),
        keys=("leader left_square_bracket",),
        action="step(-1)",
        priority=True,
    ),
    Command(
        id="chat.newer_version",
        title="Newer version",
        help="Show the version after",
        scopes=("chat",),
        keys=("leader right_square_bracket",),
        action="step(1)",
        priority=True,
    ),
    Command(
        id="chat.delete_turn",
        title="Delete a turn",
        help="Delete the selected turn, or the last, with all that follows it",
        scopes=("chat",),
        keys=("leader x",),
        priority=True,
    ),
    Command(
        id="chat.undo_delete",
        title="Undo a deletion",
        help="Bring back what was deleted last",
        scopes=("chat",),
        keys=("leader backspace",),
        priority=True,
    ),
    Command(
        id="chat.turn_before",
        title="Turn before",
        help="Select the turn before",
        scopes=("chat",),
        keys=("leader left_parenthesis",),
        aliases=("ctrl+up",),
        action="select_turn(-1)",
        priority=True,
    ),
    Command(
        id="chat.turn_after",
        title="Turn after",
        help="Select the turn after; behind the last is the end of the chat",
        scopes=("chat",),
        keys=("leader right_parenthesis",),
        aliases=("ctrl+down",),
        action="select_turn(1)",
        priority=True,
    ),
)

READING = (
    Command(
        id="chat.copy_code",
        title="Copy a code block",
        help="Copy the last code block; again, the one before it",
        scopes=("chat",),
        keys=("leader j",),
        priority=True,
    ),
    Command(
        id="chat.open_link",
        title="Open a link",
        help="Open the last link of the chat, after showing where it leads; again, the one before",
        scopes=("chat",),
        keys=("leader greater_than_sign",),
        priority=True,
    ),
    Command(
        id="chat.beginning",
        title="Beginning",
        help="Scroll to the beginning of the chat",
        scopes=("chat",),
        keys=("leader home",),
        priority=True,
    ),
    Command(
        id="chat.latest",
        title="End",
        help="Scroll to the end of the chat, and follow it",
        scopes=("chat",),
        keys=("leader end",),
        priority=True,
    ),
    Command(
        id="transcript.copy_last",
        title="Copy the reply",
        help="Copy the last answer",
        scopes=("transcript",),
        keys=("y",),
    ),
)
