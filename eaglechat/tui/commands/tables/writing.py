"""The commands of the prompt, and of what a question is asked with."""

from __future__ import annotations

from eaglechat.tui.commands.command import Argument, Command

WRITING = (
    Command(
        id="chat.editor",
        title="Write in an editor",
        help="Edit the prompt in $VISUAL or $EDITOR",
        scopes=("chat",),
        keys=("ctrl+e", "leader semicolon"),
        priority=True,
    ),
    Command(
        id="chat.context",
        title="Context",
        help="Show what each turn takes of the context, and how much is left",
        scopes=("chat",),
        keys=("leader q",),
        priority=True,
    ),
    Command(
        id="chat.role",
        title="Role",
        help="Choose a role: a system prompt with its sampling",
        scopes=("chat",),
        keys=("leader l",),
        action="role({})",
        priority=True,
        argument=Argument(text="the name of a role", is_optional=True),
    ),
    Command(
        id="chat.write_role",
        title="Write a role",
        help="Write or change a role in $VISUAL or $EDITOR",
        scopes=("chat",),
        action="write_role({})",
        argument=Argument(text="the name of a role", is_optional=True),
    ),
    Command(
        id="chat.model",
        title="Other models",
        help="Chat with another pair",
        scopes=("chat",),
        action="model({})",
        argument=Argument(text="the name of a pair", is_optional=True),
    ),
)

PROMPT = (
    Command(
        id="prompt.send",
        title="Send",
        help="Send the prompt",
        scopes=("prompt",),
        keys=("enter",),
    ),
    Command(
        id="prompt.newline",
        title="New line",
        help="Start a new line",
        scopes=("prompt",),
        keys=("ctrl+j",),
        # Shift+Enter comes under two names: Kitty's protocol, and xterm's modifyOtherKeys.
        aliases=("shift+enter", "ctrl+enter", "alt+enter", "shift+\\r"),
    ),
    Command(
        id="prompt.open_part",
        title="Expand a paste or a file",
        help="Expand the paste or file at the cursor, or the last one",
        scopes=("prompt",),
        keys=("leader apostrophe",),
    ),
    Command(
        id="prompt.clear",
        title="Clear the prompt",
        help="Clear the prompt; undo brings its text back",
        scopes=("prompt",),
        keys=("leader delete",),
    ),
)
