"""The chat: transcript, prompt, speculation panel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Footer

from eaglechat.chat import requests, wording
from eaglechat.chat.conversation import Controls, Conversation, Run
from eaglechat.chat.history import ChatLog, SavedChat, new_log, reopened_log
from eaglechat.chat.numbers import numbers_of
from eaglechat.chat.recorder import ChatRecorder
from eaglechat.hub.local.pair import Pair
from eaglechat.links.base import Died, Lifecycle
from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.palette import ChatControls
from eaglechat.tui.commands.registry import key_of, with_keys
from eaglechat.tui.navigation import LoadAgain, OpenBench, OpenMenu, OpenPastChats, Resume
from eaglechat.tui.screens.base import PromptScreen, TitleBar, TooSmall
from eaglechat.tui.services.pace import drawing_pace
from eaglechat.tui.services.services import Services
from eaglechat.tui.services.settings import SettingsChange
from eaglechat.tui.widgets.panel.panel import SpeculationPanel
from eaglechat.tui.widgets.prompt import Prompt
from eaglechat.tui.widgets.status_line import StatusLine
from eaglechat.tui.widgets.transcript.reply import Reply
from eaglechat.tui.widgets.transcript.token_styles import Legend
from eaglechat.tui.widgets.transcript.transcript import Transcript
from eaglechat.wire import protocol
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, Round

NUMBERS_PER_SECOND, FEWEST_NUMBERS_PER_SECOND = 8, 2
SAVES_PER_SECOND = 1
PANEL_FROM = (100, 34)
"""Width and height of the smallest terminal that shows the panel beside the chat."""
TABLE_FROM = 48
"""Height from which the panel has room for the table of the automatic draft length."""


class ChatScreen(PromptScreen[None]):
    """A chat with a loaded pair, new or reopened."""

    CSS_PATH = "chat.tcss"
    BINDINGS = bindings_of("chat")
    COMMANDS = {ChatControls}

    def __init__(
        self,
        services: Services,
        pair: Pair,
        info: protocol.PairInfo,
        saved: SavedChat | None = None,
    ) -> None:
        # Until the first resize tells, the terminal counts as small.
        super().__init__(classes="-folded")
        self._services = services
        self._pair = pair
        self._info = info
        self._saved = saved
        self._opened = False
        self._engine_gone = False
        self._stopping = False
        self._reply: Reply | None = None
        self._request_id = 0
        self._heard: list[protocol.Answer] = []

    def compose(self) -> ComposeResult:
        interface = self._services.settings.current.interface
        self._controls = requests.first_controls(self._services.settings.current, self._pair)
        yield TitleBar(wording.pair_in_short(self._info, self._pair.name), "ready")
        with Horizontal(id="body"):
            with Vertical(id="conversation"):
                transcript = Transcript(id="transcript")
                transcript.show_rejected = interface.show_rejected
                transcript.token_colours = interface.token_colours
                yield transcript
                yield StatusLine(id="status")
                yield Legend()
                yield Prompt(
                    id="prompt",
                    placeholder=with_keys(
                        "Ask something. {prompt.send} sends, {prompt.newline}: new line"
                    ),
                )
            yield SpeculationPanel(self._controls, id="panel")
        yield Footer(show_command_palette=False)
        yield TooSmall()

    def on_mount(self) -> None:
        self.set_class(not self._services.settings.current.interface.show_panel, "-panel-hidden")
        self._services.settings.changed.subscribe(self, self._settings_changed)
        self._open(self._saved)
        self._unwatch = self._services.engine.watch(self._follow_engine)
        self._numbers_pace = drawing_pace(FEWEST_NUMBERS_PER_SECOND)
        self.set_interval(1 / NUMBERS_PER_SECOND, self._follow_numbers)
        self.set_interval(1 / SAVES_PER_SECOND, self._save_partial)
        self._take_typed()

    def on_unmount(self) -> None:
        self._unwatch()

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        folded = width < PANEL_FROM[0] or height < PANEL_FROM[1]
        self.set_class(folded, "-folded")
        self.set_class(not folded and height >= TABLE_FROM, "-tall")

    @property
    def conversation(self) -> Conversation:
        return self._conversation

    @property
    def controls(self) -> Controls:
        return self._controls

    @property
    def _transcript(self) -> Transcript:
        return self.query_one("#transcript", Transcript)

    @property
    def _prompt(self) -> Prompt:
        return self.query_one("#prompt", Prompt)

    # Opening and leaving

    def _open(self, saved: SavedChat | None) -> None:
        """Begin a new chat, or go on with a saved one."""
        self._opened = True
        self._transcript.clear()
        messages = saved.messages if saved else []
        self._conversation = Conversation(
            [protocol.Message(role=line.role, content=line.content) for line in messages],
            saved.first_turn if saved else 0,
        )
        log = reopened_log(saved) if saved else self._new_log()
        first_turn = self._conversation.first_turn
        self._recorder = ChatRecorder(log, self._say_not_saved, first_turn)
        for line in messages:
            if line.role == "user":
                self._transcript.add_user(line.content)
                self._prompt.remember(line.content)
            else:
                self._transcript.add_reply(line.content)
        self._transcript.mark_window(first_turn)
        if saved:
            self._prompt.replace_all(saved.unsent)
        if not messages:
            self._transcript.add_notice(wording.greeting(self._info, self._pair.note))
        self._show_numbers()

    def _new_log(self) -> ChatLog:
        pair = self._pair
        return new_log(self._services.chats_dir, pair.name, pair.target, pair.draft)

    @property
    def _files(self) -> tuple[str, str | None]:
        """The pair's files as a chat's header names them."""
        return str(self._pair.target), str(self._pair.draft) if self._pair.draft else None

    def _say_not_saved(self, sentence: str) -> None:
        self.notify(sentence, severity="error", markup=False)

    def leave(self, *, keep_prompt: bool = False) -> None:
        """Put on disk what is not there yet, with what stands in the prompt unless that stays."""
        if not self._opened:
            return
        if self._conversation.running is not None:
            self._services.engine.send(protocol.Cancel(id=self._request_id))
            if run := self._conversation.abandon():
                self._recorder.ended(run)
        self._recorder.left("" if keep_prompt else self._prompt.text)

    def action_new_chat(self) -> None:
        self.leave(keep_prompt=True)
        self._restart(None)

    def _restart(self, saved: SavedChat | None) -> None:
        self._reply = None
        self._stopping = False
        self._open(saved)

    def action_menu(self) -> None:
        self.go(OpenMenu())

    def action_past_chats(self) -> None:
        self.go(OpenPastChats(self._resume))

    def _resume(self, chat: SavedChat) -> None:
        if (chat.header.target, chat.header.draft) == self._files and not self._engine_gone:
            self.leave()
            self._restart(chat)
        else:
            self.go(Resume(chat))

    # Asking

    def _take_typed(self) -> None:
        """What was typed while the models were loading."""
        typed = self._services.typeahead.take()
        self._prompt.type_in(typed.text)
        if typed.is_sent and self._prompt.text == typed.text:
            self._prompt.action_send()

    @on(Prompt.Sent)
    def _prompt_sent(self, event: Prompt.Sent) -> None:
        text = event.text.strip()
        if not text:
            self.notify(with_keys("Write something first; {prompt.send} sends it."))
        elif self._engine_gone:
            self.notify(wording.engine_gone(key_of))
        elif self._conversation.running is not None:
            self.notify(
                with_keys("A reply is being written: {chat.stop} stops it. Your text stays here.")
            )
        else:
            self._prompt.take()
            self._ask(text)

    def _ask(self, text: str) -> None:
        settings = self._services.settings.current
        chat = self._conversation.ask(
            text,
            sampling=requests.sampling(settings, self._controls),
            speculation=requests.speculation(settings, self._controls),
            system_prompt=settings.generation.system_prompt,
            max_tokens=settings.generation.max_tokens or None,
        )
        self._recorder.asked(text)
        self._transcript.add_user(text)
        self._begin(chat)

    def action_compare(self) -> None:
        off = wording.speculation_off(self._info, self._controls, None, is_comparison=False)
        reason = self._conversation.cannot_compare(off)
        if self._engine_gone:
            reason = wording.engine_gone(key_of)
        if reason is not None:
            self.notify(reason)
            return
        chat = self._conversation.compare()
        self._transcript.add_notice(
            "Compare: the same prompt, sampling and seed once more, without speculation. "
            "This does not become part of the conversation."
        )
        self._begin(chat)

    def _begin(self, chat: protocol.Chat) -> None:
        self._stopping = False
        self._reply = self._transcript.begin_reply()
        self._transcript.anchor()
        self._request_id = self._services.engine.request(chat, self._hear)
        self.refresh_bindings()
        self._show_numbers()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # Dim where there is nothing to stop.
        if action == "stop" and self._conversation.running is None:
            return None
        return True

    def action_stop(self) -> None:
        if self._conversation.running is not None and not self._stopping:
            self._stopping = True
            self._services.engine.send(protocol.Cancel(id=self._request_id))
            self._show_numbers()

    # What the engine says

    def _hear(self, event: protocol.Answer) -> None:
        """Take an event; all of a frame are shown together."""
        if not self._heard:
            self.call_later(self._show_heard)
        self._heard.append(event)

    def _follow_engine(self, news: Lifecycle) -> None:
        if isinstance(news, Died) and self.is_open:
            self._show_heard()
            self._died(news)

    def _show_heard(self) -> None:
        heard, self._heard = self._heard, []
        rounds: list[Round] = []
        for event in heard:
            run = self._conversation.running
            if run is None or event.id != self._request_id:
                continue
            if isinstance(event, protocol.RoundDone):
                self._conversation.add_round(event.round)
                rounds.append(event.round)
            elif isinstance(event, protocol.WindowMoved):
                self._conversation.add_window(event.window)
            elif isinstance(event, protocol.PrefillProgress):
                self._conversation.add_prefill(event.prefill)
            elif isinstance(event, protocol.SpeculationStopped):
                run.speculation_stopped = event.off.reason
                self._transcript.add_notice(f"Speculation is off: {event.off.reason}", "warning")
            elif isinstance(event, protocol.Done):
                self._show_rounds(rounds)
                self._done(event)
            elif isinstance(event, protocol.Error):
                self._show_rounds(rounds)
                self._failed(event)
        self._show_rounds(rounds)
        self._show_window()

    def _show_window(self) -> None:
        self._transcript.mark_window(self._conversation.first_turn)
        self._recorder.window(self._conversation.first_turn)

    def _show_rounds(self, rounds: list[Round]) -> None:
        if rounds and self._reply is not None:
            self._reply.add_rounds(rounds)
        rounds.clear()

    def _done(self, event: protocol.Done) -> None:
        run = self._conversation.finish(event.end)
        note = wording.finish_note(event.end, self._info.n_ctx, is_comparison=run.is_comparison)
        self._ended(run, note)
        if run.is_comparison:
            result = self._conversation.comparison
            text = wording.comparison_result(result) if result else wording.NOTHING_COMPARED
            self._transcript.add_notice(text)

    def _failed(self, event: protocol.Error) -> None:
        self._ended(self._conversation.fail(), "")
        self._transcript.add_notice(wording.sentence(event.message), "error")

    def _died(self, event: Died) -> None:
        self._engine_gone = True
        if run := self._conversation.abandon():
            self._ended(run, "the engine stopped here")
        self._transcript.add_notice(wording.died_in_chat(event, key_of), "error")
        self._show_numbers()

    def _ended(self, run: Run, note: str) -> None:
        """Close the running reply on the screen and on disk."""
        self._stopping = False
        if self._reply is not None:
            self._reply.finish(run.end, note)
            self._reply = None
        self._recorder.ended(run)
        if run.taken_back is not None:
            self._transcript.turn_taken_back()
            if self._prompt.text:
                self._prompt.remember(run.taken_back)
            else:
                self._prompt.replace_all(run.taken_back)
        self.refresh_bindings()
        self._show_numbers()

    def action_load_again(self) -> None:
        """After the engine died: load the pair again and go on."""
        if not self._engine_gone:
            self.notify("The models are loaded.")
            return

        self.go(LoadAgain(self._pair, self._loaded_again))

    def _loaded_again(self, info: protocol.PairInfo) -> None:
        self._info = info
        self._engine_gone = False
        self._transcript.add_notice("The models are loaded again. The chat goes on.")
        self._show_numbers()
        self._take_typed()

    # Controls

    @on(SpeculationPanel.ControlsChanged)
    def _controls_changed(self, event: SpeculationPanel.ControlsChanged) -> None:
        self.turn(event.controls)

    def turn(self, controls: Controls) -> None:
        """Put controls in force, in the running reply from its next round on."""
        change = requests.change(self._controls, controls)
        run = self._conversation.running
        if change is not None and run is not None and not run.is_comparison:
            run.changed.update(requests.changed_names(change))
            self._services.engine.send(change)
        self._controls = controls
        self.query_one("#panel", SpeculationPanel).show_controls(controls)
        self._show_numbers()

    def action_control(self, name: str, value: Any) -> None:
        self.turn(replace(self._controls, **{name: value}))

    def action_draft_length(self, step: int) -> None:
        now = requests.length_in_force(self._controls, self._conversation.shown)
        wanted = min(max(now + step, 0), N_DRAFT_MAX_LIMIT)
        self.turn(replace(self._controls, n_draft_max=wanted))

    def action_auto_length(self) -> None:
        self._keep_length(
            requests.length_in_force(self._controls, self._conversation.shown)
            if self._controls.n_draft_max == protocol.AUTO
            else protocol.AUTO
        )

    def _keep_length(self, n_draft_max: int | protocol.Auto) -> None:
        self.turn(replace(self._controls, n_draft_max=n_draft_max))

    def action_bench(self) -> None:
        reason = wording.cannot_bench(
            self._info, self._conversation.running, self._engine_gone, key_of
        )
        if reason is not None:
            self.notify(reason, markup=False)
        else:
            self.go(OpenBench(self._pair, self._info, self._keep_length))

    def action_toggle_speculation(self) -> None:
        self.turn(replace(self._controls, enabled=not self._controls.enabled))

    def _settings_changed(self, change: SettingsChange) -> None:
        before, after = change.before, change.after
        self.turn(requests.follow_settings(self._controls, before, after))
        if before.interface != after.interface:
            self._transcript.show_rejected = after.interface.show_rejected
            self._transcript.token_colours = after.interface.token_colours
            self.set_class(not after.interface.show_panel, "-panel-hidden")

    # Views

    def action_toggle_panel(self) -> None:
        self.toggle_class("-panel-open" if self.has_class("-folded") else "-panel-hidden")
        self._show_numbers()

    def action_page(self, direction: int) -> None:
        if direction < 0:
            self._transcript.scroll_page_up()
        else:
            self._transcript.scroll_page_down()

    def action_copy(self) -> None:
        self._transcript.copy_reply()

    def action_toggle_view(self, name: str) -> None:
        setattr(self._transcript, name, not getattr(self._transcript, name))

    def _follow_numbers(self) -> None:
        if self._numbers_pace.is_due():
            self._show_numbers()

    def _show_numbers(self) -> None:
        numbers = numbers_of(self._conversation, self._controls, self._info)
        self.query_one("#panel", SpeculationPanel).show(numbers)
        self.query_one("#status", StatusLine).show(numbers)
        state = with_keys("engine stopped: {chat.load_again}") if self._engine_gone else "ready"
        if (run := self._conversation.running) is not None:
            state = "stopping…" if self._stopping else wording.progress(run)
        self.query_one(TitleBar).show(state=state)

    def _save_partial(self) -> None:
        if self._conversation.running is not None:
            self._recorder.writing(self._conversation.running)
