"""Past chats: find one by its title or its text, then open, rename, pin, export or delete it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from textual import on
from textual.content import Content
from textual.widgets import Input

from eaglechat.chat.saved_chat import SavedChat
from eaglechat.chat.search import first_spot
from eaglechat.chat.store import KEPT_DAYS, ChatSummary, Hit
from eaglechat.chat.writing.question import typed
from eaglechat.tui.commands.keys import bindings_of, with_keys
from eaglechat.tui.screens.dialogs import Ask, ListDialog
from eaglechat.tui.screens.past.export import ExportScreen
from eaglechat.tui.services.services import Services
from eaglechat.tui.themes import MUTED
from eaglechat.tui.widgets.filter import Row
from eaglechat.words import wording
from eaglechat.words.export import Format

_TITLE = 45
"""Cells of a title above a passage, which leave room for the date."""
Found = ChatSummary | Hit


class ChatsScreen(ListDialog[SavedChat, Found]):
    """Dismisses with the chat to continue, or None. Typing finds titles and passages."""

    HEADING = "Past chats"
    KEYS = "{list.choose} opens, {chats.rename} renames, {list.remove} deletes, {app.leader} more"
    PLACEHOLDER = "search titles and messages"
    SAYS = "Reading the chats…"
    BINDINGS = bindings_of("chats")

    def __init__(self, services: Services, open_chat: str = "", words: str = "") -> None:
        """`open_chat` names the one on the screen below; the filter begins with `words`."""
        super().__init__()
        self._typed_before = words
        self._store, self._changed = services.chats, services.chats_changed
        self._open_chat, self._typed_ahead = open_chat, services.typed_ahead
        self._chats: list[ChatSummary] | None = None
        self._found: list[Hit] = []
        self._has_chosen = False
        """The choice came before there was a row."""
        self._listing = 0
        """The number of the last listing: a slower one before it comes too late."""

    def on_mount(self) -> None:
        self.words.value = self._typed_before
        self._list()
        self._changed.subscribe(self, lambda _: self._say_changed())

    # In the background

    def _list(self) -> None:
        self._listing += 1
        self.in_background(self._store.listed, partial(self._take_list, self._listing))

    def _take_list(self, listing: int, chats: list[ChatSummary]) -> None:
        if listing == self._listing:
            self._chats = chats
            self._show()
            self._choose_late()

    def _search(self) -> None:
        typed = self.words.value
        self.in_background(lambda: self._store.find(typed), partial(self._take_found, typed))

    def _take_found(self, typed: str, found: list[Hit]) -> None:
        if typed == self.words.value:
            self._found = found
            self._show()
            self._choose_late()

    def _read(self, row: ChatSummary, hit: Hit | None = None) -> None:
        words = self.words.value

        def read() -> SavedChat:
            chat = self._store.read(row.name)
            turn = chat.turns.find(hit.turn) if hit is not None else None
            if turn is not None:
                chat.turns.choose(turn.id)
                chat.opened_at = first_spot(turn, words)
            return chat

        fails = partial(self._fail, f"“{row.title}” cannot be read")
        self.in_background(read, self._open, fails)

    def _open(self, chat: SavedChat) -> None:
        self._typed_ahead += typed(self.words.take_ahead())
        self.dismiss(chat)

    def _change(self, chat: ChatSummary, change: Callable[[], object], sentence: str = "") -> None:
        fails = partial(self._fail, f"“{chat.title}” was not changed")
        self.in_background(change, lambda _: self._say_changed(sentence), fails)

    def _say_changed(self, sentence: str = "") -> None:
        if sentence:
            self.notify(sentence)
        self._list()
        self._search()

    def _fail(self, what: str, error: Exception) -> None:
        self.notify(f"{what}: {wording.why(error)}.", severity="error")
        self._list()

    # The list

    @on(Input.Changed, "#filter")
    def _typing(self) -> None:
        self._found, self._has_chosen = [], False
        self.rows.highlighted = None
        self._show()
        self._search()

    def _show(self) -> None:
        """Titles first, then passages. The highlighted row stays highlighted, or its place."""
        if self._chats is None:
            return
        before, place = self.highlighted, self.rows.highlighted or 0
        words = self.words.value.casefold().replace('"', " ").split()
        titled = [c for c in self._chats if all(w in " ".join(_words(c)).casefold() for w in words)]
        things: list[Found] = [*titled, *self._found]
        same = (thing for thing in things if _name(thing) == _name(before))
        self.fill(
            ((thing, Row(partial(self._lines, thing), height=2)) for thing in things),
            next(same, things[min(place, len(things) - 1)] if things else None),
        )
        self.say(self._count(len(titled)))

    def _lines(self, row: Found, _width: int) -> Content:
        if isinstance(row, Hit):
            text = Content(row.text)
            for start, stop in row.marks:
                text = text.stylize("bold $text-accent", start, stop)
            thought = ("reasoning: ", MUTED) if row.is_thought else ""
            title, when = wording.fitting(row.chat.title, _TITLE), _when(row.chat)
            return Content.assemble((title, "bold"), (f"  {when}", MUTED), "\n", thought, text)
        title, details = _words(row)
        states = ("open", row.name == self._open_chat), ("pinned", row.pinned)
        shown = [(f"{state}  ", "$text-accent") for state, holds in states if holds]
        return Content.assemble((title, "bold"), "\n", *shown, (details, MUTED))

    def _count(self, titled: int) -> str:
        said = wording.plural(titled, "chat")
        if not self._chats:
            said = f"No chats yet; they are saved in {self._store.file}"
        elif self.words.value.strip():
            passages = len(self._found)
            counts = [f"{said} by title"] if titled else []
            counts += [wording.plural(passages, "passage")] if passages else []
            said = ", ".join(counts) or "Nothing found"
        return said

    @property
    def _chat(self) -> ChatSummary | None:
        """The chat of the highlighted row."""
        row = self.highlighted
        return row.chat if isinstance(row, Hit) else row

    # What the keys do

    def choose(self, thing: Found | None) -> None:
        if isinstance(thing, Hit):
            self._read(thing.chat, thing)
        elif thing is not None:
            self._read(thing)
        self._has_chosen = thing is None

    def _choose_late(self) -> None:
        """Choose the first row of what came late."""
        if self._has_chosen and self.things:
            self.choose(self.highlighted)

    def action_rename(self) -> None:
        if (chat := self._chat) is None:
            return

        def rename(title: str) -> None:
            self._change(chat, partial(self._store.rename, chat.name, title))

        text = "Title; if empty, the first question."
        self.open(Ask("Rename the chat", text, written=chat.title), rename)

    def action_pin(self) -> None:
        if (chat := self._chat) is not None:
            pinned = not chat.pinned
            sentence = "Pinned to the top." if pinned else "Unpinned."
            self._change(chat, partial(self._store.pin, chat.name, pinned), sentence)

    def action_export(self, format: Format | None = None) -> None:
        if (chat := self._chat) is not None:
            self.open(ExportScreen(partial(self._store.read, chat.name), format))

    def action_remove(self) -> None:
        chat = self._chat
        if chat is None:
            return
        if chat.name == self._open_chat:
            self.notify(
                with_keys("This chat is open. Go back and start another one first ({chat.new})."),
                severity="warning",
            )
            return
        undo = with_keys(f"Deleted. {{chat.undo_delete}} restores it within {KEPT_DAYS} days.")
        self._change(chat, partial(self._store.delete, chat.name), undo)

    def action_undo_delete(self) -> None:
        def restored(name: str | None) -> None:
            self._say_changed("Restored." if name else "There is no deleted chat to restore.")

        fails = partial(self._fail, "It cannot be restored")
        self.in_background(self._store.restore, restored, fails)


def _name(row: Found | None) -> object:
    """What a row stays the same by when more is known of it."""
    return (row.chat.name, row.turn) if isinstance(row, Hit) else row and row.name


def _words(chat: ChatSummary) -> tuple[str, str]:
    """The two lines of a chat's row."""
    count = wording.plural(chat.messages, "message")
    return chat.title or "(empty)", f"{_when(chat)}  {chat.header.pair}  {count}"


def _when(chat: ChatSummary) -> str:
    return wording.ago(chat.used, time.time())
