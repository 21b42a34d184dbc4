"""Every command of the app: its name, a sentence about it, where it holds, its keys as shipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from eaglechat.chat import controls
from eaglechat.settings.description import SettingDoc, either, parse, wanted
from eaglechat.settings.model import View

Scope = Literal[
    "app", "menu", "list", "downloads", "library", "dialog", "ask",
    "chat", "prompt", "compare", "seen", "inside", "chats", "find",
    "roles", "loading",
]  # fmt: skip
"""Screens and widgets with commands. Each makes its BINDINGS from one or more scopes."""

PLACES: tuple[frozenset[str], ...] = tuple(
    frozenset(f"app {others}".split())
    for others in (
        "menu list", "dialog list library", "dialog list roles", "dialog downloads", "dialog ask",
        "chat prompt loading", "chat list", "compare", "dialog seen",
        "dialog inside", "dialog list chats", "find",
    )
)  # fmt: skip
"""Scopes that hold at the same time. Within each of these, a key has one meaning."""

Group = Literal["Models", "Reply", "Turn", "View", "Speed", "Chat", "App"]
"""The columns of the list behind the leader's key, in their order."""

LEADER = "leader"
"""`leader v` is the key v after the key of `app.leader`."""


@dataclass(frozen=True)
class Argument:
    """The value a command takes: one of `words`, or any text if `text` is set, or what a setting
    takes, a number or one of its words."""

    words: tuple[str, ...] = ()
    text: str = ""
    """What the text is, such as “the name of a role”."""
    is_optional: bool = False
    """The command can be run without it, as by its keys."""
    setting: SettingDoc | None = None

    @property
    def accepted_values(self) -> str:
        """In words: `a whole number between 0 and 16, or auto`."""
        return wanted(self.setting) if self.setting else self.text or either(self.words)

    def parse(self, text: str) -> int | float | str:
        """The value of a typed text. Raises ValueError, which says what it can be."""
        if self.setting is not None:
            value: int | float | str = parse(self.setting, text.casefold())
            return value
        if not self.text and text.casefold() not in self.words:
            raise ValueError(f"“{text}” must be {self.accepted_values}")
        return text if self.text else text.casefold()


@dataclass(frozen=True, kw_only=True)
class Command:
    """Something the user can run by a key, from the search, or by typing a slash and its name.

    The id is `thing.verb`. Commands with the same verb do the same on different screens, and have
    the same keys.
    """

    id: str
    title: str
    help: str
    scopes: tuple[Scope, ...]
    keys: tuple[str, ...] = ()
    """Sentences name the first, which works in every terminal and on every keyboard. Some terminals
    and laptops use function keys and the like themselves."""
    action: str = ""
    """The Textual action of the screen or widget, with {} for the value; empty: the id's verb."""
    turn_key: str = ""
    """One more key, which holds while a turn is selected and the transcript has the focus."""
    group: Group | None = None
    """Its column behind the leader's key; None if no key of its begins with the leader."""
    words: tuple[str, ...] = ()
    """What else one would call it; searches find it by these, and it can be typed by them."""
    footer: str = ""
    """Its label in the bottom line; empty: it is not shown there."""
    argument: Argument | None = None
    slash: str | None = ""
    """What is typed after a slash in the prompt; empty: the id's verb, None: it cannot be typed."""

    @property
    def verb(self) -> str:
        return self.id.partition(".")[2]

    def call(self, value: int | float | str | None = None) -> str:
        """The Textual action to run, with the value if the command takes one."""
        return (self.action or self.verb).replace("{}", repr(value))

    @property
    def slash_name(self) -> str | None:
        """What is typed after a slash; None if the command cannot be typed in a chat."""
        if self.slash is None or {"app", "chat"}.isdisjoint(self.scopes):
            return None
        return self.slash or self.verb


def _c(
    id: str, title: str, help: str, scopes: str, keys: str = "", *, words: str = "", **others: Any
) -> Command:  # fmt: skip
    """A command; its scopes and words are separated by spaces, its keys by commas."""
    return Command(
        id=id,
        title=title,
        help=help,
        scopes=cast("tuple[Scope, ...]", tuple(scopes.split())),
        keys=tuple(keys.split(", ")) if keys else (),
        words=tuple(words.split()),
        **others,
    )


_SLASHES = {"n_draft_max": "n", "temperature": "temp", "thinking": "think"}
"""The short names that are typed for some controls."""


COMMANDS: tuple[Command, ...] = (
    _c("app.leader", "Commands", "All commands of this screen, each one key away", "app", "ctrl+g",
       footer="commands", slash=None, words="menu commands keys shortcuts"),
    _c("app.help", "Help", "All keys of this screen, and what the words mean", "app",
       "leader h, f1", group="App", words="keys shortcuts manual docs legend glossary ?"),
    _c("app.palette", "Search", "Find a command, a setting or a word by what it is called", "app",
       "ctrl+p", action="help", words="commands"),
    _c("app.settings", "Settings", "Change the settings", "app", "leader comma", group="App",
       words="options preferences configuration config"),
    _c("app.downloads", "Downloads", "Downloads and conversions in progress", "app", "leader d",
       group="App", words="progress conversions pull download"),
    _c("app.theme", "Theme", "Choose a theme", "app", "leader k", action="help('interface.theme')",
       group="App", words="colours colors dark light appearance"),
    _c("app.quit", "Quit", "Leave eaglechat; the chat is saved", "app", "ctrl+q", footer="quit",
       words="exit close leave bye q"),
    _c("menu.search", "Search the Hub", "Search the Hub for a target and drafts for it", "menu",
       "leader f", group="Models", words="find download pull huggingface get"),
    _c("menu.drafts", "Find drafts",
       "Find everything that can draft for the highlighted model, here and on the Hub",
       "menu library", "leader exclamation_mark", group="Models", words="pairs eagle mtp dflash"),
    _c("menu.library", "Models on this machine", "Load, pair up or delete models on this machine",
       "menu chat", "leader l", group="App",
       words="model models switch load delete files local drafts pair open path"),
    _c("library.newer", "Newer versions",
       "Ask the Hub which models are newer there, or download the highlighted one of these",
       "library", "leader u", group="Models", words="update upgrade versions"),
    _c("menu.suspend", "Suspend", "Suspend eaglechat; fg in the shell resumes it", "menu", "ctrl+z",
       action="app.suspend", words="background shell"),
    _c("downloads.pause", "Pause or resume", "Pause the highlighted download, or resume it",
       "downloads", "space"),
    _c("list.choose", "Choose", "Choose the highlighted row", "list", "enter", action="submit",
       footer="choose"),
    _c("list.remove", "Delete",
       "Delete the highlighted chat or model, forget the recent pair, or cancel the download",
       "chats library menu downloads", "ctrl+d", words="remove forget cancel trash free disk"),
    _c("dialog.back", "Back", "Back; in Compare, stop measuring", "dialog find compare", "escape",
       footer="stop, back"),
    _c("dialog.agree", "Yes", "Do what the dialog asks about", "ask", "y",
       words="ok agree confirm"),
    _c("loading.alone", "Without the draft",
       "After a load that failed, load the target without its draft", "loading", "leader b",
       group="Models"),
    _c("loading.log", "The log", "Show the last lines of the engine's log", "loading", "leader i",
       group="Models", words="trouble error"),
    _c("chat.stop", "Stop the reply", "Stop the reply and keep what is written", "chat", "escape",
       footer="stop", words="cancel abort interrupt halt"),
    _c("chat.new", "New chat", "Start a new chat; this one is saved", "chat", "ctrl+n",
       action="new_chat", footer="new", words="clear reset restart"),
    _c("chats.open", "Past chats", "Resume an earlier chat; words find it", "menu chat", "ctrl+t",
       action="past_chats({})", footer="chats", slash="chats",
       argument=Argument(text="words", is_optional=True),
       words="history resume search find past continue sessions old"),
    _c("chat.compare", "Compare",
       "Measure how much faster drafting is than plain decoding, on the last question", "chat",
       "leader c", group="Speed", words="race bench benchmark measure plain baseline speedup ab"),
    _c("compare.use", "Use the fastest",
       "Draft from now on as was fastest, or decode plainly if that was", "compare", "enter",
       footer="use fastest"),
    _c("compare.let_auto", "Auto chooses", "Let measurement choose the draft length from now on",
       "compare", "a", footer="auto"),
    _c("compare.choose", "Choose what is compared",
       "Choose draft lengths, drafters and prompts, and measure again", "compare", "c",
       footer="choose"),
    _c("compare.card", "Write a card",
       "Write what was measured to a Markdown file that others can cite", "compare", "w",
       footer="card", words="publish cite share report"),
    _c("compare.forget", "Forget the length",
       "Let the pair start with the length of the settings again, from the next chat on", "compare",
       "f"),
    _c("chat.menu", "Menu", "Save the chat and return to the menu", "chat", "ctrl+o", footer="menu",
       words="home leave"),
    _c("chat.copy", "Copy", "Copy the selected turn or the last reply; or what the model sees",
       "chat seen", "leader y", group="Reply", turn_key="y", words="clipboard yank"),
    _c("chat.thought", "Fold reasoning", "Fold or unfold the reasoning of the last reply", "chat",
       "leader z", action="transcript('fold_thought')", group="Reply",
       words="thinking thoughts fold think"),
    _c("chat.answer_now", "Answer now", "End the reasoning and let the model answer", "chat",
       "leader n", action="session('answer_now')", group="Reply", words="skip thinking"),
    _c("chat.view", "View",
       "Show replies live in two inks, as Markdown to read, or as a trace of all tokens", "chat",
       "leader v, f4", action="view({})", group="View", footer="view",
       argument=Argument(words=get_args(View), is_optional=True),
       words="markdown rendered formatted colours tokens rejected"),
    _c("chat.pane", "Panel", "Show or hide the panel", "chat", "leader p, f2",
       action="toggle_panel", group="View", footer="panel", slash="panel",
       words="sidebar statistics stats numbers info"),
    _c("chat.prompt", "Show the prompt",
       "Show what the model would read if you sent what you have typed", "chat", "leader m",
       group="View", words="template raw sees"),
    _c("chat.inspect", "Inside a round", "Look inside the rounds of the selected or last reply",
       "chat", "leader full_stop", group="Reply", turn_key="full_stop",
       words="round probabilities candidates logits inside look"),
    _c("inside.record", "Record the candidates",
       "Record the target's candidates from now on, and answer again", "inside", "i"),
    _c("chat.load_again", "Reload the models", "Reload the models after the engine stopped", "chat",
       "ctrl+l", slash="reload", words="restart engine crashed"),
    _c("chat.editor", "Write in an editor",
       "Edit the prompt, or the highlighted role, in $VISUAL or $EDITOR", "chat roles", "ctrl+e",
       words="vim nano emacs"),
    _c("chat.context", "Context", "Show what each turn takes of the context, and how much is left",
       "chat", "leader q", group="View", words="window tokens memory full ctx"),
    _c("chat.role", "Role", "Choose or write a role: a system prompt with its sampling", "chat",
       "leader t", action="role({})", group="Chat",
       argument=Argument(text="the name of a role", is_optional=True),
       words="system persona character write_role"),
    _c("chat.again", "Answer again", "Answer the selected or last question again, with a new seed",
       "chat", "leader r", action="turn('answer_again')", group="Turn", turn_key="r",
       words="retry regenerate reroll redo"),
    _c("chat.go_on", "Continue", "Continue a stopped reply where it stopped", "chat", "leader o",
       action="turn('continue_reply')", group="Reply", slash="continue"),
    _c("chat.edit", "Edit a question",
       "Edit the selected or last question; press again for the one before", "chat", "leader e",
       group="Turn", turn_key="e", words="change rewrite fork branch"),
    _c("chat.older_version", "Older version", "Show the older version of a turn", "chat",
       "leader left_square_bracket", action="step(-1)", group="Turn", slash=None,
       words="previous branch sibling"),
    _c("chat.newer_version", "Newer version", "Show the newer version of a turn", "chat",
       "leader right_square_bracket", action="step(1)", group="Turn", slash=None,
       words="next branch sibling"),
    _c("chat.delete_turn", "Delete the turn",
       "Delete the selected or last turn, and everything after it", "chat", "leader x",
       action="turn('delete')", group="Turn", words="remove"),
    _c("chat.undo_delete", "Undo a deletion", "Restore what was deleted last", "chat chats",
       "leader backspace", group="Chat", words="restore undelete"),
    _c("chat.turn_before", "Previous turn", "Select the previous turn", "chat",
       "leader left_parenthesis, ctrl+up", action="select_turn(-1)", group="Turn",
       turn_key="up", slash=None, words="select up back"),
    _c("chat.turn_after", "Next turn",
       "Select the next turn; after the last comes the end of the chat", "chat",
       "leader right_parenthesis, ctrl+down", action="select_turn(1)", group="Turn",
       turn_key="down", slash=None, words="select down"),
    _c("chat.copy_code", "Copy code", "Copy the last code block; press again for the one before",
       "chat", "leader j", action="transcript('copy_code')", group="Reply",
       words="clipboard snippet block"),
    _c("chat.open_link", "Open a link",
       "Show and open the last link; press again for the one before", "chat",
       "leader greater_than_sign", action="transcript('open_link')", group="Reply",
       words="url address browser"),
    _c("chat.speculation", "Speculation", "Switch speculation on or off", "chat", "leader s, f3",
       action="switch('enabled')", group="Speed", words="draft plain on off"),
    _c("chat.ngram", "n-grams", "Switch guesses from n-grams on or off", "chat",
       "leader number_sign", action="switch('ngram')", group="Speed", words="ngrams lookup"),
    _c("chat.auto", "Auto length",
       "Let measurement choose the draft length, or set it by hand again", "chat",
       "leader a, f12", action="session('switch_auto')", group="Speed",
       words="automatic measured faster"),
    _c("chat.less", "Draft less", "Lower n_draft_max by 1", "chat", "leader minus, f7",
       action="session('change_draft_length', -1)", group="Speed", slash=None,
       words="shorter fewer decrease"),
    _c("chat.more", "Draft more", "Raise n_draft_max by 1", "chat", "leader plus, f8",
       action="session('change_draft_length', 1)", group="Speed", slash=None,
       words="longer increase"),
    *(
        _c(f"chat.{control.name}", control.name, control.doc.description.removesuffix("."), "chat",
           action=f"control('{control.name}', {{}})", slash=_SLASHES.get(control.name, ""),
           argument=Argument(
               control.words, setting=None if control.doc.kind is str else control.doc
           ))
        for control in controls.CONTROLS.values()
        if control.doc.kind is not bool
    ),
    _c("prompt.send", "Send", "Send the prompt", "prompt", "enter", words="ask submit"),
    # Shift+Enter has two names: by Kitty's protocol, and by xterm's modifyOtherKeys.
    _c("prompt.newline", "New line", "Start a new line", "prompt",
       "ctrl+j, shift+enter, ctrl+enter, alt+enter, shift+\\r", words="line break"),
    _c("prompt.open_part", "Expand a paste",
       "Expand the paste or file at the cursor, or the last one", "prompt", "leader apostrophe",
       group="Chat", words="unfold attachment"),
    _c("chat.find", "Find in this chat",
       "Find a passage in the open chat; press again to stay at the match", "chat", "leader slash",
       group="View", slash=None, words="search grep"),
    _c("chat.export", "Export",
       "Export the chat as Markdown, JSON or a page in token colours, or copy it", "chat chats",
       "leader w", action="export({})", group="Chat",
       argument=Argument(words=("markdown", "json", "html"), is_optional=True),
       words="save write share"),
    _c("chats.rename", "Rename", "Change the title of the highlighted chat", "chats", "ctrl+r",
       words="title name"),
    _c("chats.pin", "Pin", "Pin the highlighted chat to the top of the list, or unpin it", "chats",
       "leader asterisk", group="Chat", words="star favourite"),
)  # fmt: skip
"""In the order of the bottom line, the help and the documentation."""

BY_ID: Mapping[str, Command] = {command.id: command for command in COMMANDS}

Keymap = Mapping[str, tuple[str, ...]]
"""Keys by the id of a command, which replace those it is shipped with."""


def commands_of(*scopes: Scope) -> list[Command]:
    """The commands that hold in any of these scopes."""
    return [command for command in COMMANDS if not set(scopes).isdisjoint(command.scopes)]
