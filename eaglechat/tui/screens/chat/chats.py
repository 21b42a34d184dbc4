"""Earlier chats, to go on with."""

from __future__ import annotations

from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from eaglechat.chat import wording
from eaglechat.chat.history.listing import ChatSummary, list_chats
from eaglechat.chat.history.reading import SavedChat, read_chat
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.screens.base import EagleModal, TooSmall
from eaglechat.tui.services.services import Services
from eaglechat.tui.widgets.filter import Filter


class ChatsScreen(EagleModal[SavedChat | None]):
    """Dismisses with the chat to go on with, or None. Typing filters."""

    CSS_PATH = "chats.tcss"

    class Listed(Message):
        """The list of chats was read."""

        def __init__(self, chats: list[ChatSummary]) -> None:
            super().__init__()
            self.chats = chats

    class Read(Message):
        """The chat that was chosen was read, or why it could not be."""

        def __init__(self, chat: SavedChat | None, problem: str = "") -> None:
            super().__init__()
            self.chat, self.problem = chat, problem

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._chats_dir = services.chats_dir
        self._chats: list[ChatSummary] | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="past") as dialog:
            dialog.border_title = "Past chats"
            dialog.border_subtitle = with_keys("{list.choose} opens, {dialog.back} back")
            chats = OptionList(id="list", compact=True)
            yield Filter(chats, id="filter")
            yield Static("Reading the chats…", id="none", classes="muted", markup=False)
            yield chats
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one(Filter).focus()
        self._list(self._chats_dir)

    @work(thread=True)
    def _list(self, directory: Path) -> None:
        for chats in list_chats(directory):
            self.post_message(self.Listed(chats))

    @work(thread=True, exclusive=True)
    def _read(self, file: Path) -> None:
        try:
            self.post_message(self.Read(read_chat(file)))
        except (OSError, ValueError) as error:
            self.post_message(self.Read(None, f"{file} cannot be read: {error}."))

    def on_chats_screen_listed(self, message: Listed) -> None:
        self._chats = message.chats
        self._refresh_list()

    def on_chats_screen_read(self, message: Read) -> None:
        if message.chat is not None:
            self.dismiss(message.chat)
        else:
            self.notify(message.problem, severity="error", markup=False)

    @on(Input.Changed)
    def _refresh_list(self) -> None:
        if self._chats is None:
            return
        options = self.query_one("#list", OptionList)
        options.clear_options()
        wanted = self.query_one(Filter).words
        for index, chat in enumerate(self._chats):
            text = " ".join(_words(chat)).casefold()
            if all(word in text for word in wanted):
                options.add_option(Option(_row(chat), id=str(index)))
        options.highlighted = 0 if options.option_count else None
        none = self.query_one("#none", Static)
        none.display = not options.option_count
        none.update(
            "No chat matches."
            if self._chats
            else f"No chats yet. They are saved in {self._chats_dir}."
        )

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        option = self.query_one("#list", OptionList).highlighted_option
        if option is not None and option.id is not None and self._chats is not None:
            self._read(self._chats[int(option.id)].file)


def _words(chat: ChatSummary) -> tuple[str, str]:
    """The two lines of a row."""
    if chat.header is None:
        return chat.file.name, f"cannot be read: {chat.problem}"
    when = chat.header.created[:16].replace("T", " ")
    count = wording.plural(chat.messages, "message")
    return chat.title or "(empty)", f"{when}  {chat.header.pair}  {count}"


def _row(chat: ChatSummary) -> Content:
    title, details = _words(chat)
    style = "$text-error" if chat.problem else "$foreground-muted"
    return Content.assemble((title, "bold"), "\n", (details, style))
