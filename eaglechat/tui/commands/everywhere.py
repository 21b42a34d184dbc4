"""The commands that hold everywhere, in dialogs, and in lists that typing filters."""

from __future__ import annotations

from eaglechat.tui.commands.command import Command

APP = (
    Command(
        id="app.leader",
        title="More commands",
        help="All commands of this screen, each one key away",
        scopes=("app",),
        keys=("ctrl+g",),
        priority=True,
        footer="More",
        slash=None,
    ),
    Command(
        id="app.help",
        title="Help",
        help="All keys of this screen, and what the words mean",
        scopes=("app",),
        keys=("leader h",),
        aliases=("f1", "leader question_mark"),
        priority=True,
    ),
    Command(
        id="app.palette",
        title="Command palette",
        help="Find a command by its name",
        scopes=("app",),
        keys=("ctrl+p",),
        action="command_palette",
        priority=True,
    ),
    Command(
        id="app.settings",
        title="Settings",
        help="Change the settings",
        scopes=("app",),
        keys=("leader comma",),
        aliases=("f9",),
        priority=True,
    ),
    Command(
        id="app.downloads",
        title="Downloads",
        help="Downloads and conversions in progress",
        scopes=("app",),
        keys=("leader d",),
        priority=True,
    ),
    Command(
        id="app.load_newest",
        title="Load the new pair",
        help="Load the pair that was installed last",
        scopes=("app",),
        keys=("leader n",),
        aliases=("f10",),
        priority=True,
    ),
    Command(
        id="app.theme",
        title="Theme",
        help="Choose a theme",
        scopes=("app",),
        keys=("leader k",),
        action="change_theme",
        priority=True,
    ),
    Command(
        id="app.screenshot",
        title="Screenshot",
        help="Save the screen as an SVG file",
        scopes=("app",),
        keys=("leader z",),
        priority=True,
    ),
    Command(
        id="app.quit",
        title="Quit",
        help="Leave eaglechat; the chat is saved",
        scopes=("app",),
        keys=("ctrl+q",),
        priority=True,
        footer="Quit",
    ),
)

DIALOGS = (
    Command(
        id="dialog.back",
        title="Back",
        help="Go back; downloads continue",
        scopes=("dialog",),
        keys=("escape",),
        footer="Back",
    ),
    Command(
        id="confirm.other",
        title="Other button",
        help="Move to the other button",
        scopes=("confirm",),
        keys=("left", "right"),
    ),
)

LISTS = (
    Command(
        id="list.choose",
        title="Choose",
        help="Choose the highlighted row",
        scopes=("list",),
        keys=("enter",),
        action="submit",
        footer="Choose",
    ),
    Command(
        id="list.up",
        title="Up",
        help="Up a row",
        scopes=("list",),
        keys=("up",),
        action="row('cursor_up')",
    ),
    Command(
        id="list.down",
        title="Down",
        help="Down a row",
        scopes=("list",),
        keys=("down",),
        action="row('cursor_down')",
    ),
    Command(
        id="list.page_up",
        title="Page up",
        help="Up a page",
        scopes=("list",),
        keys=("pageup",),
        action="row('page_up')",
    ),
    Command(
        id="list.page_down",
        title="Page down",
        help="Down a page",
        scopes=("list",),
        keys=("pagedown",),
        action="row('page_down')",
    ),
    Command(
        id="list.clear",
        title="Clear the filter",
        help="Clear the filter",
        scopes=("list",),
        keys=("escape",),
        action="empty",
    ),
)
