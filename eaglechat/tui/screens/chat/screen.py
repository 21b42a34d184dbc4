"""The chat screen: transcript, prompt and speculation panel. It draws a ChatSession and is the view
that the session reports to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
from textual import events, getters, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.timer import Timer
from textual.widgets import Static

from eaglechat.chat.controls import CONTROLS, LATER
from eaglechat.chat.saved_chat import SavedChat
from eaglechat.chat.search import Spot
from eaglechat.chat.session import ChatSession, Severity
from eaglechat.chat.turns import Question, Reply, TurnId
from eaglechat.chat.writing.question import QuestionParts, text_of
from eaglechat.chat.writing.roles import NO_ROLE, find_role, load_roles
from eaglechat.hub.local.pairs import Pair, pair_of_files, pair_of_server
from eaglechat.links.http.address import same_server
from eaglechat.settings.description import parse as parse_value
from eaglechat.settings.model import PanelPlace, Settings, View
from eaglechat.tui.commands import slash
from eaglechat.tui.commands.keys import (
    bindings_of,
    key_of,
    moves,
    name_of,
    run_own_key,
    short_key_of,
    with_keys,
)
from eaglechat.tui.commands.table import BY_ID, Command, commands_of
from eaglechat.tui.screens.base import EagleScreen, TitleBar, TooSmall
from eaglechat.tui.screens.chat.inside import InsideScreen
from eaglechat.tui.screens.chat.loading import Loading
from eaglechat.tui.screens.chat.seen import SeenScreen, prompt_seen
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.screens.roles import RolesScreen
from eaglechat.tui.services import desktop
from eaglechat.tui.services.desktop import in_editor
from eaglechat.tui.services.services import Services
from eaglechat.tui.themes import legend
from eaglechat.tui.widgets.find_bar import FindBar
from eaglechat.tui.widgets.key_line import KeyLine, offer
from eaglechat.tui.widgets.panel.knob import OFF_AND_ON, Knob
from eaglechat.tui.widgets.panel.measures import StatusLine
from eaglechat.tui.widgets.panel.panel import SpeculationPanel
from eaglechat.tui.widgets.prompt.prompt import Prompt
from eaglechat.tui.widgets.transcript.markdown import cannot_open, shown_address
from eaglechat.tui.widgets.transcript.transcript import Transcript
from eaglechat.wire import protocol
from eaglechat.words import context, numbers, wording
from eaglechat.words.export import Format
from eaglechat.words.neutral import neutralise
from eaglechat.words.timeline import entries, entries_of, progress

NUMBERS_EVERY_S = 0.25
"""While a reply is written, the figures are drawn with a frame of its text, so often at most."""
PANEL_FROM: dict[PanelPlace, tuple[int, int]] = {"beside": (100, 34), "below": (80, 34)}
"""The least width and height, in cells, of a terminal that has room for the panel there."""
_NO_TURNS = "Nothing has been asked in this chat yet."
_EDITING = "Editing: {prompt.send} sends it, {chat.stop} cancels"
_OF_A_TURN = {
    "chat.edit": "edit",
    "chat.again": "again",
    "chat.copy": "copy",
    "chat.inspect": "inside",
}
"""What is offered while a turn is selected."""
_WAIT_FOR_THE_PAIR = {
    one.call().partition("(")[0]
    for one in commands_of("chat")
    if one.id not in ("chat.stop", "chat.menu", "menu.library")
}
"""The actions of the commands that an empty chat has only once its pair is loaded."""


@dataclass(frozen=True)
class Editing:
    """An earlier question that the user is rewriting in the prompt."""

    question: TurnId
    original: str
    before: str
    """The text of the prompt before the question was put there."""


class ChatScreen(EagleScreen[None]):
    """A chat, new or resumed, that loads its pair. What is typed goes to the prompt, whatever has
    the focus, also while the pair is loaded."""

    CSS_PATH = "chat.tcss"
    AUTO_FOCUS = ""
    BINDINGS = [
        *bindings_of("chat", "loading"),
        # While a reply is written Ctrl+C stops it, whatever is selected.
        *moves(
            {
                "pageup": "transcript('action_page_up')",
                "pagedown": "transcript('action_page_down')",
                "ctrl+home": "transcript('action_scroll_home')",
                "ctrl+end": "transcript('action_scroll_end')",
                "ctrl+c": "session('stop')",
            },
            priority=True,
        ),
        *moves({"ctrl+c,super+c": "screen.copy_text"}),
    ]

    session: ChatSession
    """Made when the screen is composed, before its widgets."""
    transcript, prompt = getters.query_one(Transcript), getters.query_one(Prompt)

    def __init__(
        self,
        services: Services,
        pair: Pair,
        saved: SavedChat | None = None,
        *,
        only_reads: bool = False,
    ) -> None:
        """`only_reads` loads nothing: the models are gone."""
        super().__init__()
        self.services = services
        self._pair, self._saved, self._only_reads = pair, saved, only_reads
        self.load = Loading(self, services, pair, self._loaded)
        # First, it is drawn when its widgets are there.
        self._is_to_draw = self._has_changed = True
        self._numbers_at = 0.0
        """The time at which the figures were drawn last."""
        self._late_numbers: Timer | None = None
        self.editing: Editing | None = None
        self._queued: str | None = None
        """The text of the prompt that is sent as soon as the reply ends; None if none is."""
        self._warned_about = ""
        """The question that the user was last warned about, because it would fill the context."""

    def compose(self) -> ComposeResult:
        services = self.services
        self.session = ChatSession(
            services.engine,
            self,
            pair=self._pair,
            settings=lambda: services.settings.current,
            store=services.chats,
            roles_dir=self._roles_dir,
            speeds=services.pairs.speeds,
            saved=self._saved,
        )
        # Waiting for the first resize event would wrap and draw everything twice.
        self._fit(self.app.size)
        settings = services.settings.current
        prompt = Prompt(
            in_background=self.in_background,
            may_be_command=lambda: self.editing is None,
            choices=self._choices,
            n_ctx=lambda: self.session.n_ctx,
            placeholder=with_keys(
                "Ask something.  / commands  @ files  " + short_key_of("app.help") + " help"
            ),
        )
        yield TitleBar(self._pair.name, program="")
        with Horizontal(id="body"):
            with Vertical(id="conversation"):
                transcript = Transcript(id="transcript")
                transcript.view = settings.interface.view
                yield transcript
                yield Vertical(self.load, id="load")
                below = f"↓ new text below: {name_of('ctrl+end')}"
                end = "screen.transcript('action_scroll_end')"
                yield Static(f"[@click={end}]{below}[/]", id="new-below")
                find = FindBar(transcript, lambda: self.session.turns.path, prompt)
                with Horizontal(id="finding"):
                    yield find
                    yield find.found
                yield StatusLine(self.session)
                yield Static(id="legend", classes="muted")
                yield prompt.completions
                yield prompt
            yield SpeculationPanel(self.session)
        yield KeyLine(self.offers)
        yield TooSmall()

    def on_mount(self) -> None:
        interface = self.services.settings.current.interface
        self.set_class(not interface.show_panel, "-panel-hidden")
        self.set_class(interface.view == "trace", "-trace")
        self.services.settings.changed.subscribe(self, self._settings_changed)
        self.watch(self.transcript, "selected", self._follow_selection, init=False)
        new_below = self.query_one("#new-below")
        self.watch(self.transcript, "has_new_below", partial(setattr, new_below, "display"))
        if self._only_reads:
            self.session.only_read()
        else:
            self.load.begin()
        self._show_opened()
        self._show_spot(self._saved.opened_at if self._saved else None)
        self._take_typed_ahead()
        self.set_interval(1.0, self.save)

    # Loading the pair

    def _loaded(self, pair: Pair, info: protocol.PairInfo) -> None:
        pairs = self.services.pairs
        pairs.remember(pair)
        if pairs.problem:
            self.notify(pairs.problem, severity="warning")
        served = pair_of_server(pair.server, info.target.path) if pair.server else pair
        self.session.loaded(self.services.as_chosen(served), info)

    def action_load_again(self) -> None:
        """Load the pair again after the engine process has ended, and continue the chat."""
        if not self.session.is_engine_gone:
            self.notify("The models are loaded.")
        elif self.load.has_failed or not self.load.is_open:
            self.load.pair = self.session.pair
            self.load.begin()
            self.changed()

    def _end_load(self) -> None:
        """Cancel a load that runs, or close one that failed."""
        if self._is_first_load:
            self.action_menu()
            return
        self.load.cancel()
        self._queue(None)

    def action_alone(self) -> None:
        self.load.pair = pair_of_files(self.load.pair.target, None)
        self.load.begin()

    def action_log(self) -> None:
        lines = "\n".join(self.services.engine.log_tail())
        self.open(Ask("The last lines of the engine's log", lines or "It is empty."))

    @property
    def _is_first_load(self) -> bool:
        """Whether the chat has never had its models, nor was opened to be read without them."""
        return self.session.info is None and not self._only_reads

    @property
    def _is_waiting(self) -> bool:
        """Whether there is nothing in the chat yet, and its pair is being loaded."""
        return self._is_first_load and not self.session.turns

    def on_unmount(self) -> None:
        self.session.close()

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size)
        self.changed()

    def _settings_changed(self, change: tuple[Settings, Settings]) -> None:
        before, after = change
        self.session.follow_settings(before, after)
        interface = after.interface
        self.transcript.view = interface.view
        self.set_class(interface.view == "trace", "-trace")
        # A panel that a key hid stays away when another setting changes.
        if interface.show_panel != before.interface.show_panel:
            self.set_class(not interface.show_panel, "-panel-hidden")
        self._fit(self.size)
        self.changed()

    async def typed(self, event: events.Key) -> None:
        if event.is_printable and event.character:
            if event.key not in self.active_bindings:
                event.stop()
                self.prompt.type_in(event.character)
        else:
            await run_own_key(self.prompt, event)

    def on_paste(self, event: events.Paste) -> None:
        if not self._has_opened:
            self.prompt.type_in(event.text)

    def say(self, sentence: str) -> None:
        self.notify(with_keys(sentence))

    # Drawing the session

    def changed(self) -> None:
        self._has_changed = True
        self.grew()

    def grew(self) -> None:
        if not self._is_to_draw:
            self._is_to_draw = True
            self.call_later(self._draw)

    def _draw(self) -> None:
        self._is_to_draw = False
        if not self.is_open:
            return
        session = self.session
        if self._has_changed:
            self._has_changed = False
            shown = [*entries(session)]
            for place, entry in enumerate(shown):
                if entry.kind in get_args(Severity):
                    shown[place] = replace(entry, text=with_keys(entry.text))
            self.transcript.show(shown)
            self.show_numbers()
            title = _EDITING if self.editing is not None else None
            if self._queued is not None and self.load.is_open:
                title = "Your question will be sent once the models are loaded"
            elif self._queued is not None:
                title = "Sent when the reply ends; {chat.stop} keeps it here"
            self.prompt.border_title = with_keys(title) if title else None
            self.refresh_bindings()
        elif session.running is not None:
            for entry in entries_of(session, session.running.turn):
                self.transcript.follow(entry)
            wait = self._numbers_at + NUMBERS_EVERY_S - time.monotonic()
            if wait <= 0:
                self.show_numbers()
            elif self._late_numbers is None:
                # In case no frame follows soon.
                self._late_numbers = self.set_timer(wait + NUMBERS_EVERY_S, self.show_numbers)
        if self._queued is not None and session.running is None and not self.load.is_open:
            queued = self._queued
            self._queue(None)
            if self.prompt.text == queued and not session.is_engine_gone:
                self.call_later(self._send, queued)

    def show_numbers(self) -> None:
        """Bring the panel, the status line, the legend and the titles up to date at once."""
        self._numbers_at = time.monotonic()
        if self._late_numbers is not None:
            self._late_numbers.stop()
            self._late_numbers = None
        session = self.session
        self.query_one(SpeculationPanel).show()
        self.query_one(StatusLine).refresh()
        is_told = wording.not_reported(session.hello, "own") is None
        if self.has_class("-trace"):
            kinds = legend(self.app, numbers.unreported(session), are_rejected_known=is_told)
            self.query_one("#legend", Static).update(kinds, layout=False)
        doing, state = None, "ready"
        if session.running is not None:
            state = doing = "stopping…" if session.is_stopping else progress(session.running)
        elif self.load.is_open:
            state = "loading"
        elif session.info is None:
            state = with_keys("read-only: {chat.load_again} loads the models")
        elif session.is_engine_gone:
            state = with_keys("engine stopped: {chat.load_again}")
        subject = wording.pair_in_short(session.info, session.pair.name)
        if session.role:
            subject += f" · role {session.role.name}"
        if not (self._shows_panel or self.load.is_open):
            state += f"   ctx {numbers.room(session)}"
        if session.recorder.is_behind:
            state = f"not saved   {state}"
        title = self.query_one(TitleBar)
        title.subject, title.state = subject, state
        if not self.load.is_open:
            self.services.away.follow(doing, session.pair.name)

    # The panel, which lies beside the transcript, below it, or in a small terminal over it

    def _fit(self, size: Size) -> None:
        """Put the panel where the settings want it if a terminal of this size has room there."""
        place = self.services.settings.current.interface.panel
        width, height = PANEL_FROM[place]
        is_folded = size.width < width or size.height < height
        self.set_class(is_folded, "-folded")
        # In both it is as wide as the screen.
        self.set_class(is_folded or place == "below", "-panel-flat")

    def action_toggle_panel(self) -> None:
        if self._is_covered:
            self._uncovered()
            return
        self.toggle_class("-panel-open" if self.has_class("-folded") else "-panel-hidden")
        self.changed()

    @property
    def _is_covered(self) -> bool:
        """Whether the panel lies over the transcript."""
        return self.has_class("-folded") and self.has_class("-panel-open")

    @property
    def _shows_panel(self) -> bool:
        is_away = self.has_class("-folded") or self.has_class("-panel-hidden")
        return self._is_covered or not is_away

    def _uncovered(self) -> Transcript:
        """The transcript, for a command that moves in it: a panel that lies over it is closed."""
        if self._is_covered:
            self.remove_class("-panel-open")
            if self.focused is not self.prompt:
                self.prompt.take_focus()
            self.changed()
        return self.transcript

    def on_knob_changed(self, event: Knob.Changed) -> None:
        name = event.knob.id or ""
        self.action_control(name, parse_value(CONTROLS[name].doc, event.word))

    def action_switch(self, name: str) -> None:
        self.action_control(name, not getattr(self.session.controls, name))

    def action_control(self, name: str, value: Any) -> None:
        session = self.session
        session.change_controls(msgspec.structs.replace(self.session.controls, **{name: value}))
        if getattr(self.session.controls, name) != value:
            return  # The session has said why not.
        if why := numbers.without_effect(session).get(name):
            self.say(f"{numbers.label(name)} has no effect: {why}.")
        elif not self._shows(name):
            is_live = session.running is not None and session.can.own
            since = "round" if is_live and name not in LATER else "reply"
            word = CONTROLS[name].word(value)
            word = wording.NAMES.get(word, word)
            self.say(f"From the next {since} on: {numbers.label(name)} {word}.")

    def _shows(self, name: str) -> bool:
        """Whether the panel or the status line shows what a control is."""
        panel = self.query_one(SpeculationPanel)
        is_in_line = name in ("enabled", "n_draft_max") and self.query_one(StatusLine).display
        return is_in_line or (panel.display and panel.knob(name).display)

    def action_session(self, does: str, *values: Any) -> None:
        getattr(self.session, does)(*values)

    # Turns. Commands work on the selected one, or else on the last one

    def action_select_turn(self, by: int) -> None:
        ids = [turn.id for turn in self.session.turns.path]
        if not ids:
            self.notify(_NO_TURNS)
            return
        transcript = self._uncovered()
        selected = transcript.selected
        place = ids.index(selected) + by if selected in ids else len(ids) + min(by, 0)
        if place < len(ids):
            transcript.select(ids[max(place, 0)])
            transcript.take_focus()
        else:
            transcript.selected = None
            transcript.action_scroll_end()

    def _follow_selection(self, selected: TurnId | None) -> None:
        if selected is None and self.focused is self.transcript:
            self.prompt.take_focus()
        self.refresh_bindings()

    def _turn_to_change(self) -> TurnId | None:
        """The turn a command works on. In an empty chat it tells the user so and returns None."""
        last = self.session.turns.last
        if last is None:
            self.notify(_NO_TURNS)
        return self.transcript.selected or (last.id if last else None)

    def action_step(self, by: int) -> None:
        """Show another version of the selected turn, or of the last one that has several."""
        turns = self.session.turns
        several = (one.id for one in reversed(turns.path) if len(turns.siblings(one.id)) > 1)
        id = self.transcript.selected or next(several, None) or self._turn_to_change()
        if id is not None:
            self.action_step_of(id, by)

    def action_step_of(self, id: TurnId, by: int) -> None:
        """Show an older or newer version of a turn, where the turn is on the screen."""
        transcript = self.transcript
        row, is_selected = transcript.row_in_sight(id), transcript.selected is not None
        sibling = self.session.step(id, by)
        if sibling is None:
            return
        self._draw()
        if is_selected:
            transcript.selected = sibling
        transcript.reveal(sibling, row=row)

    def action_turn(self, does: str) -> None:
        if (id := self._turn_to_change()) is not None and getattr(self.session, does)(id):
            self.transcript.selected = None

    def action_undo_delete(self) -> None:
        id = self.session.undo_delete()
        if id is not None:
            self._draw()
            self.transcript.reveal(id)

    # Reading

    def action_transcript(self, does: str) -> None:
        getattr(self._uncovered(), does)()

    def action_copy(self) -> None:
        """Copy the selected turn, or the last reply as far as it has been generated."""
        turns, selected = self.session.turns, self.transcript.selected
        turn = turns.last_reply if selected is None else turns.find(selected)
        if isinstance(turn, Question | Reply) and turn.text:
            kind = "reply" if isinstance(turn, Reply) else "question"
            desktop.copy(self.app, neutralise(turn.text), f"the {kind}")
        else:
            self.notify("There is no reply to copy yet.", severity="warning")

    def action_view(self, view: View | None) -> None:
        """Show replies in this view; without one, in the next."""
        if view is None:
            views = get_args(View)
            view = views[(views.index(self.transcript.view) + 1) % len(views)]
        self.services.settings.change("interface", "view", view)

    @on(Transcript.LinkChosen)
    def _link_chosen(self, event: Transcript.LinkChosen) -> None:
        reason = cannot_open(event.address)
        if reason is not None:
            self.notify(reason, severity="warning")
        else:
            question = Ask("Open this address?", shown_address(event.address), "opens it")
            self.open(question, lambda _yes: self.app.open_url(event.address))

    def action_inspect(self) -> None:
        turns, selected = self.session.turns, self.transcript.selected
        turn = turns.find(selected) if selected is not None else turns.last_reply
        reply = turn if isinstance(turn, Reply) else turns.last_reply
        if reply is None or not reply.recording.rounds:
            self.notify("There are no rounds to show: nothing has been generated here yet.")
        else:
            last = len(reply.recording.rounds) - 1
            self.open(InsideScreen(self.session, self.services.settings, reply.id, last))

    @on(Transcript.RoundChosen)
    def _round_chosen(self, event: Transcript.RoundChosen) -> None:
        inside = InsideScreen(self.session, self.services.settings, event.turn, event.index)
        self.open(inside)

    def _show_spot(self, spot: Spot | None) -> None:
        """Show what a search found in the saved chat, on any branch."""
        if spot is not None and self.session.choose(spot.turn):
            self._draw()
            self._uncovered().reveal(spot.turn, spot.span, in_reasoning=spot.in_reasoning)

    def action_find(self) -> None:
        bar = self.query_one(FindBar)
        if bar.is_open:
            bar.close()
        else:
            bar.open()

    # Asking

    @on(Prompt.Sent)
    async def _prompt_sent(self, event: Prompt.Sent) -> None:
        await self._send(event.text)
        self.prompt.is_waiting, self._has_opened = False, not self.is_on_top

    async def _send(self, typed: str) -> None:
        text = slash.literal(typed) if self.editing is None else typed
        if text is None:
            await self._run_typed(typed)
        elif self.load.has_failed:
            self.load.begin()
            self.changed()
        elif self.prompt.being_read:
            self.notify(f"{', '.join(self.prompt.being_read)}: still being read.")
        elif not text.strip():
            self.notify(with_keys("Write something first; {prompt.send} sends it."))
        elif self.load.is_open or self.session.running is not None:
            self._queue(typed)
        elif (full := context.warning(self._context_use(text))) and self._warned_about != text:
            # Sent again, the question is asked.
            self._warned_about = text
            self.notify(f"{full} {key_of('prompt.send')} again sends it.", severity="warning")
        elif self.editing is not None:
            if self.session.edit(self.editing.question, self.prompt.marks.parts(text)):
                self.prompt.take()
                self._end_edit()
        elif self.session.ask(self.prompt.marks.parts(text)):
            self.prompt.take()
            self.transcript.selected = None

    def _queue(self, text: str | None) -> None:
        """Send this text of the prompt when the reply ends, or the pair is loaded; None sends
        nothing then."""
        self._queued = text
        self.changed()

    @on(Prompt.Changed)
    def _prompt_changed(self) -> None:
        if self._queued is not None and self.prompt.text != self._queued:
            self._queue(None)

    def action_context(self) -> None:
        said = context.in_words(self._context_use(self.prompt.text))
        of_reply = context.of_reply(self.session)
        self.open(Ask("Context", "\n\n".join(filter(None, (said, of_reply)))))

    def _context_use(self, text: str) -> context.ContextUse:
        edited = self.editing.question if self.editing is not None else None
        return context.context_use(self.session, self.prompt.marks.parts(text), edited)

    def action_prompt(self) -> None:
        typed = text_of(self.prompt.marks.parts(self.prompt.text)).strip()

        def show(prompt: protocol.Rendered) -> None:
            if self.is_on_top:
                summary = prompt_seen(prompt, self.session.n_ctx, typed)
                self.open(SeenScreen(prompt, summary))

        self.session.show_prompt(typed, show)

    @property
    def _to_stop(self) -> tuple[str, Callable[[], object]] | None:
        """What the key that stops does now, and its name; None if there is nothing to stop."""
        if self.load.is_open:
            return "cancel", self._end_load
        if self._is_covered:
            return "close", self._uncovered
        if self._queued is not None:
            return "keep", partial(self._queue, None)
        if self.editing is not None:
            return "cancel", self._end_edit
        if self.transcript.selected is not None:
            return "deselect", partial(setattr, self.transcript, "selected", None)
        return ("stop", self.session.stop) if self.session.running is not None else None

    def action_stop(self) -> None:
        if (to_stop := self._to_stop) is not None:
            to_stop[1]()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        allowed = super().check_action(action, parameters)
        if allowed and action in _WAIT_FOR_THE_PAIR and self._is_waiting:
            return False
        if allowed and action == "alone":
            return self.load.has_failed and self.load.pair.draft is not None
        if allowed and action == "log":
            return self.load.is_open
        if allowed and action == "stop":
            return self._to_stop is not None or None
        if allowed and (action, parameters) == ("session", ("stop",)):
            return self.session.running is not None
        return allowed

    async def _run_typed(self, text: str) -> None:
        try:
            command, value = slash.parse(text)
        except slash.SlashError as error:
            self.notify(str(error), severity="warning")
            return
        self.prompt.take()
        namespace = self.app if "app" in command.scopes else self
        await self.app.run_action(command.call(value), namespace)

    def action_editor(self) -> None:
        self.save()
        text = in_editor(self.app, self.prompt.text, "question.md")
        if text is not None:
            self.prompt.replace_all(text)
            self.prompt.take_focus()

    # Editing an earlier question in the prompt

    def give_back(self, question: QuestionParts, version_of: TurnId | None) -> None:
        prompt, editing = self.prompt, self.editing
        text = slash.escaped(prompt.marks.text(question))
        if editing is None and version_of is not None:
            self._edit(self.session.turns.question(version_of), text, prompt.text)
        elif editing is None:
            prompt.put_above(text)
        elif editing.question in self.session.turns:
            # It comes back when the edit has ended.
            before = "\n\n".join(filter(None, (text, editing.before)))
            self.editing = replace(editing, before=before)
        else:
            # What is being typed is another wording of it, and a new question now.
            typed = slash.escaped(prompt.text)
            prompt.remember(text)
            self._end_edit()
            before = prompt.text
            prompt.replace_all(typed)
            prompt.put_above(before)

    def action_edit(self) -> None:
        """Edit the last question up to the turn that commands work on; while a question is edited,
        the question before it."""
        editing = self.editing
        if editing is not None and self.prompt.text != editing.original:
            self.say(_EDITING)
            return
        id = editing.question if editing else self._turn_to_change()
        if id is None:
            return
        path = self.session.turns.path_to(id)
        questions = [turn for turn in path if isinstance(turn, Question)]
        if editing is not None:
            questions.pop()
        if not questions:
            self.notify("There is no earlier question.")
            return
        before = editing.before if editing else self.prompt.text
        self._edit(questions[-1], self.prompt.marks.text(questions[-1].parts), before)

    def _edit(self, question: Question, text: str, before: str) -> None:
        """Put `text` in the prompt, to be asked in place of the question. The prompt gets `before`
        back afterwards."""
        self.editing = Editing(question.id, self.prompt.marks.text(question.parts), before)
        self.transcript.select(question.id)
        self.prompt.replace_all(text)
        self.prompt.take_focus()
        self.changed()

    def _end_edit(self) -> None:
        """Put the text from before the edit back into the prompt. An edited text that was not sent
        goes into the prompt's history."""
        if self.editing is not None:
            if self.prompt.text != self.editing.original:
                self.prompt.remember(slash.escaped(self.prompt.text))
            self.prompt.replace_all(self.editing.before)
            self.editing = None
            self.transcript.selected = None
            self.changed()

    # Opening, leaving and saving chats

    def _show_opened(self) -> None:
        self._end_edit()
        if self.query_one(FindBar).is_open:
            # The passages it found are those of the previous chat.
            self.query_one(FindBar).close()
        self.transcript.clear()
        self.set_class(bool(self.session.turns), "-reading")
        for turn in self.session.turns.path:
            if isinstance(turn, Question):
                self.prompt.remember(slash.escaped(self.prompt.marks.text(turn.parts)))
        if self.session.chat.unsent:
            self.prompt.put_above(self.prompt.marks.text(self.session.chat.unsent))
        self._draw()

    def save(self) -> None:
        was_behind = self.session.recorder.is_behind
        self.session.recorder.save(self._unsent)
        if self.session.recorder.is_behind != was_behind:
            self.changed()

    @property
    def _unsent(self) -> QuestionParts:
        """The part of the prompt that is saved: neither an unchanged earlier question nor a
        command."""
        text = self.prompt.text
        if self.editing is not None and text == self.editing.original:
            text = self.editing.before
        elif self.editing is None and slash.begins_command(text):
            # A save while a command is being typed would name the chat after the command.
            text = ""
        return self.prompt.marks.parts(text)

    def leave(self, *, ends: bool = False) -> None:
        self.load.cancel()
        if self.is_mounted:
            written = self._unsent
            if self._is_waiting and not ends:
                # It waits for the next chat, and is not sent to other models.
                self.services.typed_ahead[:], written = written, ()
            self._leave_chat(written)

    def _leave_chat(self, written: QuestionParts) -> None:
        self.session.leave(written)
        self.services.away.forget()

    @property
    def is_unsaved(self) -> bool:
        if self.is_mounted:
            self.save()
        return self.is_mounted and self.session.recorder.is_behind

    def action_new_chat(self) -> None:
        self.services.leave_chat(partial(self._open_instead, None, ()))

    def _open_instead(self, chat: SavedChat | None, written: QuestionParts) -> None:
        """Leave the chat with this text, and open a saved or a new one on the same pair."""
        self._leave_chat(written)
        self._queue(None)
        self.session.open(chat)
        self._show_opened()

    def action_menu(self) -> None:
        self.services.open_menu()

    def action_past_chats(self, words: str | None) -> None:
        from eaglechat.tui.screens.past.chats import ChatsScreen

        self.open(ChatsScreen(self.services, self.session.chat.name, words or ""), self._resume)

    def _resume(self, chat: SavedChat) -> None:
        pair, header = self.session.pair, chat.header
        server = pair.server.url if pair.server else ""
        is_same = (header.target, header.draft) == pair.to_load
        if chat.name == self.session.chat.name:
            self._show_spot(chat.opened_at)
        elif is_same and same_server(header.server, server) and not self.session.is_engine_gone:

            def resume() -> None:
                written = self._unsent
                self.prompt.clear()
                self._open_instead(chat, written)
                self._show_spot(chat.opened_at)
                self._take_typed_ahead()

            self.services.leave_chat(resume)
        else:
            self.services.resume(chat)

    def _take_typed_ahead(self) -> None:
        """Put the text that was typed before this chat was there into the prompt."""
        typed, self.services.typed_ahead[:] = tuple(self.services.typed_ahead), ()
        self.prompt.insert(self.prompt.marks.text(typed))
        self.prompt.take_focus()

    def action_export(self, format: Format | None) -> None:
        if not self.session.turns:
            self.notify("There is nothing to export yet.")
        else:
            from eaglechat.tui.screens.past.export import ExportScreen

            self.save()
            self.open(ExportScreen(self.session.recorder.reader(), format))

    # What can be done now

    def offers(self) -> Iterator[Content]:
        if self._is_waiting:
            for id in ("app.leader", "chat.menu", "app.quit"):
                yield offer(id, BY_ID[id].footer)
            return
        if self.query_one(FindBar).is_open:
            yield offer("dialog.back", "back")
            yield offer("chat.find", "stay here")
            return
        session, selected, last = self.session, self.transcript.selected, self.session.turns.last
        if (to_stop := self._to_stop) is not None:
            yield offer("chat.stop", to_stop[0])
        if self.editing is None and selected is not None:
            by_turn_key = self.focused is self.transcript
            for id, label in _OF_A_TURN.items():
                yield offer(id, label, by_turn_key=by_turn_key)
        elif session.is_engine_gone:
            if not self.load.is_open:
                yield offer("chat.load_again", "reload")
        elif (
            session.running is None
            and last is not None
            and session.cannot_continue(last.id) is None
        ):
            yield offer("chat.go_on", "continue")
        yield offer("chat.view", f"view: {self.transcript.view}")
        yield offer("chat.pane", "panel")
        if not self.has_class("-folded") and selected is None:
            yield offer("chat.less", "-")
            yield offer("chat.more", "+ length")
            yield offer("chat.auto", "auto")
        for id in ("app.leader", "chats.open", "chat.new", "chat.menu", "app.quit"):
            yield offer(id, BY_ID[id].footer)

    def state_of(self, id: str) -> str:
        controls = self.session.controls
        role = self.session.role
        length = controls.n_draft_max
        return {
            "chat.view": self.transcript.view,
            "chat.speculation": OFF_AND_ON[controls.enabled],
            "chat.ngram": OFF_AND_ON[controls.ngram],
            "chat.auto": OFF_AND_ON[length == protocol.AUTO],
            "chat.pane": OFF_AND_ON[self._shows_panel],
            "chat.role": role.name if role else NO_ROLE,
        }.get(id, "")

    # Pairs, roles, and what is faster

    def action_library(self) -> None:
        from eaglechat.tui.screens.hub.library import LibraryScreen

        self.open(LibraryScreen(self.services), self.services.load_instead)

    def _choices(self, command: Command) -> Sequence[tuple[str, str]]:
        """The names that a command takes as its value, each with a short description."""
        if command.id == "chat.role":
            return [(role.name, role.description) for role in load_roles(self._roles_dir)[0]]
        return ()

    @property
    def _roles_dir(self) -> Path:
        return self.services.settings.file.parent / "roles"

    def action_role(self, name: str | None) -> None:
        """Take another role. Without the name of one, a list opens to choose or write one."""
        if name == NO_ROLE or (name and find_role(self._roles_dir, name) is not None):
            self._take_role(name)
        else:
            self.save()
            self.open(RolesScreen(self._roles_dir, name or ""), self._take_role)

    def _take_role(self, name: str) -> None:
        role = None if name == NO_ROLE else find_role(self._roles_dir, name)
        if isinstance(role, str):
            self.notify(f"{role}.", severity="warning")
        else:
            self.session.choose_role(role)

    def action_compare(self) -> None:
        session, asked = self.session, self.session.to_compare()
        if asked is None:
            return
        from eaglechat.tui.screens.compare import CompareScreen

        def use(speculation: protocol.Speculation) -> None:
            # Plain decoding has no length or drafter of its own.
            names = ["enabled", *(["n_draft_max", "drafter"] if speculation.enabled else [])]
            chosen = {name: getattr(speculation, name) for name in names}
            session.change_controls(msgspec.structs.replace(session.controls, **chosen))

        self.open(CompareScreen(self.services, session, asked), use)
