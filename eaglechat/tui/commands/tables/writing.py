"""The commands of the prompt, and of what a question is asked with."""

from __future__ import annotations

from eaglechat.tui.commands.command import Argument, Command

WRITING = (
    Command(
        id="chat.editor",
        title="Write in an editor",
        help="Open what is written in $VISUAL or $EDITOR",
        scopes=("chat",),
        keys=("ctrl+e", "leader semicolon"),
        priority=True,
    ),
    Command(
        id="chat.context",
        title="Context",
        help="What each turn takes of the context, what leaves it next, and what is left",
        scopes=("chat",),
        keys=("leader q",),
        priority=True,
    ),
    Command(
        id="chat.role",
        title="Role",
        help="Ask in a role: a system prompt with its sampling",
        scopes=("chat",),
        keys=("leader l",),
        action="role({})",
        priority=True,
        argument=Argument(text="the name of a role", is_optional=True),
    ),
    Command(
        id="chat.write_role",
        title="Write a role",
        help="Write a role, or change it, in $VISUAL or $EDITOR",
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
        id="prompt.open_part",
        title="Open a paste or a file",
        help="Show all of the paste or file at the cursor, or of the last one",
        scopes=("prompt",),
        keys=("leader apostrophe",),
    ),
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
)
