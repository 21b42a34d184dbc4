"""The chat: transcript, prompt, speculation panel. It draws a ChatSession."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.geometry import Size

from eaglechat.chat.capability_text import not_reported
from eaglechat.chat.conversation.notices import Severity
from eaglechat.chat.conversation.session import ChatSession
from eaglechat.chat.conversation.turns import Question, TurnId
from eaglechat.chat.history.saved_chat import SavedChat
from eaglechat.chat.writing.question import QuestionParts
from eaglechat.hub.local.pair import Pair
from eaglechat.links.http.address import same_server
from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.palette import ChatControls
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.commands.slash import escaped
from eaglechat.tui.navigation import Leave, LoadAgain, OpenMenu, OpenPastChats, Resume
from eaglechat.tui.screens.base import TitleBar, TooSmall
from eaglechat.tui.screens.chat.asking import Asking
from eaglechat.tui.screens.chat.controlling import Controlling
from eaglechat.tui.screens.chat.keeping import Keeping
from eaglechat.tui.screens.chat.viewing import Viewing
from eaglechat.tui.screens.chat.writing import Writing
from eaglechat.tui.services.pace import drawing_pace
from eaglechat.tui.services.services import Services
from eaglechat.tui.services.settings import SettingsChange
from eaglechat.tui.texts import wording
from eaglechat.tui.texts.numbers import numbers_of
from eaglechat.tui.texts.replies import progress
from eaglechat.tui.texts.timeline import entries, entries_of
from eaglechat.tui.widgets.find_bar import FindBar
from eaglechat.tui.widgets.key_line import KeyLine
from eaglechat.tui.widgets.panel.panel import SpeculationPanel
from eaglechat.tui.widgets.prompt.completions import Completions
from eaglechat.tui.widgets.prompt.prompt import Prompt
from eaglechat.tui.widgets.status_line import StatusLine
from eaglechat.tui.widgets.transcript.token_styles import Legend
from eaglechat.tui.widgets.transcript.transcript import Transcript
from eaglechat.wire import protocol

NUMBERS_PER_SECOND, FEWEST_NUMBERS_PER_SECOND = 8, 2
SAVES_PER_SECOND = 1
PANEL_FROM = (100, 34)
"""Width and height of the smallest terminal that shows the panel beside the chat."""
TABLE_FROM = 48
"""Height from which the panel has room for the table of the automatic draft length."""


class ChatScreen(Asking, Controlling, Keeping, Viewing, Writing):
    """A chat with a loaded pair, new or resumed; without `info` nothing is loaded, and a chat can
    be read only."""

    CSS_PATH = "chat.tcss"
    BINDINGS = bindings_of("chat")
    COMMANDS = {ChatControls}

    def __init__(
        self,
        services: Services,
        pair: Pair,
        info: protocol.PairInfo | None,
        saved: SavedChat | None = None,
    ) -> None:
        super().__init__()
        self.services = services
        self._pair, self._info, self._saved = pair, info, saved
        self._has_session = False
        self._drawn_version = -1

    def compose(self) -> ComposeResult:
        # Before the first resize tells: all would be wrapped and drawn twice.
        self._fit(self.app.size)
        settings = self.services.settings.current
        yield TitleBar(wording.pair_in_short(self._info, self._pair.name), "ready")
        with Horizontal(id="body"):
            with Vertical(id="conversation"):
                transcript = Transcript(id="transcript")
                transcript.show_rejected = settings.interface.show_rejected
                transcript.token_colours = settings.interface.token_colours
                yield transcript
                yield FindBar()
                yield StatusLine(id="status")
                yield Legend()
                completions = Completions(id="completions")
                yield completions
                yield Prompt(
                    id="prompt",
                    completions=completions,
                    completer=self.completed,
                    placeholder=with_keys(
                        "Ask something. {prompt.send} sends, {prompt.newline}: new line"
                    ),
                )
            yield SpeculationPanel(id="panel")
        yield KeyLine()
        yield TooSmall()

    def on_mount(self) -> None:
        services = self.services
        self.set_class(not services.settings.current.interface.show_panel, "-panel-hidden")
        services.settings.changed.subscribe(self, self._settings_changed)
        self._numbers_pace = drawing_pace(FEWEST_NUMBERS_PER_SECOND)
        self.session = ChatSession(
            services.engine,
            self,
            pair=self._pair,
            info=self._info,
            settings=lambda: services.settings.current,
            chats_dir=services.chats_dir,
            roles_dir=self.roles_dir,
            saved=self._saved,
        )
        self._has_session = True
        self._show_opened()
        self.show_passage(self._saved.opened_at if self._saved else None)
        self.set_interval(1 / NUMBERS_PER_SECOND, self._follow_numbers)
        self.set_interval(1 / SAVES_PER_SECOND, self.save)
        self._take_typed()

    def on_unmount(self) -> None:
        if self._has_session:
            self.session.close()

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size)

    def _fit(self, size: Size) -> None:
        """Show as much beside the chat as a terminal of this size has room for."""
        width, height = size
        folded = width < PANEL_FROM[0] or height < PANEL_FROM[1]
        self.set_class(folded, "-folded")
        self.set_class(not folded and height >= TABLE_FROM, "-tall")

    # What the session says

    def changed(self) -> None:
        self.call_later(self.draw)

    def give_back(self, question: QuestionParts, version_of: TurnId | None) -> None:
        text = escaped(self.prompt.marks.text(question))
        if self.prompt.text and version_of is None:
            self.prompt.remember(text)
        elif version_of is not None and self.editing is None:
            self.edit(self.session.turns.question(version_of), text, self.prompt.text)
        else:
            self.prompt.replace_all(text)

    def say(self, sentence: str, severity: Severity = "information") -> None:
        if severity == "error":
            sentence = wording.sentence(sentence)
        self.notify(with_keys(sentence), severity=severity, markup=False)

    # Drawing

    def draw(self) -> None:
        """Draw what changed since the last frame."""
        if not self.is_open:
            return
        session = self.session
        session.look()
        if session.version != self._drawn_version:
            self._drawn_version = session.version
            self.transcript.show([*entries(session)])
            self.refresh_bindings()
            self._show_numbers()
        elif session.running is not None:
            for entry in entries_of(session, session.running.turn):
                self.transcript.follow(entry)

    def _follow_numbers(self) -> None:
        if self.session.running is not None and self._numbers_pace.is_due():
            self._show_numbers()

    def _show_numbers(self) -> None:
        session = self.session
        numbers = numbers_of(session)
        self.query_one("#panel", SpeculationPanel).show(numbers)
        self.query_one("#status", StatusLine).show(numbers)
        is_told = not_reported(session.hello, "draft_text") is None
        self.query_one(Legend).are_rejected_known = is_told
        unreported = numbers.unreported
        self.query_one(Legend).no_origins = f"origins {unreported}" if unreported else ""
        gone = with_keys("engine stopped: {chat.load_again}")
        state = gone if session.is_engine_gone else "ready"
        if session.running is not None:
            state = "stopping…" if session.is_stopping else progress(session.running)
        self.query_one(TitleBar).show(subject=self._subject, state=state)
        self.services.away.follow(state if session.running is not None else None, self._pair.name)

    @property
    def _subject(self) -> str:
        pair = wording.pair_in_short(self.session.info, self._pair.name)
        return f"{pair}  role {self.session.role.name}" if self.session.role else pair

    def action_toggle_panel(self) -> None:
        self.toggle_class("-panel-open" if self.has_class("-folded") else "-panel-hidden")
        self._show_numbers()

    # Opening and leaving

    def _show_opened(self) -> None:
        self.end_edit()
        if self.query_one(FindBar).is_open:
            # Its places are those of the chat before.
            self.end_finding()
        self.transcript.clear()
        for turn in self.session.turns.path:
            if isinstance(turn, Question):
                self.prompt.remember(escaped(self.prompt.marks.text(turn.parts)))
        if self.session.unsent:
            self.prompt.replace_all(self.prompt.marks.text(self.session.unsent))
        self.draw()

    def leave(self, *, keep_prompt: bool = False) -> None:
        if self._has_session:
            self.session.leave("" if keep_prompt else self.draft)

    def save(self) -> None:
        self.session.save(self.draft)

    @property
    def is_unsaved(self) -> bool:
        if self._has_session:
            self.save()
        return self._has_session and self.session.record.is_behind

    def action_new_chat(self) -> None:
        self.go(Leave(self._new_chat))

    def _new_chat(self) -> None:
        self.leave(keep_prompt=True)
        self.session.open()
        self._show_opened()

    def action_menu(self) -> None:
        self.go(OpenMenu())

    def action_past_chats(self) -> None:
        self.go(OpenPastChats(self._resume, self.session.record))

    def action_find_all(self, words: str | None) -> None:
        self.go(OpenPastChats(self._resume, self.session.record, words or ""))

    def _resume(self, chat: SavedChat) -> None:
        if chat.file == self.session.record.file:
            self.show_passage(chat.opened_at)
        elif _is_of(chat, self._pair) and not self.session.is_engine_gone:
            self.go(Leave(lambda: self._open_instead(chat)))
        else:
            self.go(Resume(chat))

    def _open_instead(self, chat: SavedChat) -> None:
        self.leave()
        self.prompt.clear()
        self.session.open(chat)
        self._show_opened()
        self.show_passage(chat.opened_at)

    def action_load_again(self) -> None:
        """After the engine died: load the pair again and go on."""
        if self.session.is_engine_gone:
            self.go(LoadAgain(self._pair, self._loaded_again))
        else:
            self.notify("The models are loaded.")

    def _loaded_again(self, info: protocol.PairInfo) -> None:
        self.query_one(TitleBar).show(subject=wording.pair_in_short(info, self._pair.name))
        self.session.loaded(info)
        self._take_typed()

    def _take_typed(self) -> None:
        """What was typed while the models were loading."""
        typed = self.services.typeahead.take()
        self.prompt.type_in(typed.text)
        if typed.is_sent and self.prompt.text == typed.text:
            self.prompt.action_send()

    def _settings_changed(self, change: SettingsChange) -> None:
        self.session.follow_settings(change.before, change.after)
        interface = change.after.interface
        if interface != change.before.interface:
            self.transcript.show_rejected = interface.show_rejected
            self.transcript.token_colours = interface.token_colours
            self.set_class(not interface.show_panel, "-panel-hidden")


def _is_of(chat: SavedChat, pair: Pair) -> bool:
    server = pair.server.url if pair.server else ""
    header = chat.header
    return (header.target, header.draft) == pair.to_load and same_server(header.server, server)
