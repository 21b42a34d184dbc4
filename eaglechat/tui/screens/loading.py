"""Loading a pair: shows progress, can be cancelled at any moment, and says what went wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import TextArea

from eaglechat import paths
from eaglechat.chat.controls import first_speculation
from eaglechat.hub.local import passes
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.links.base import EngineStartError, Lifecycle, wrong_version
from eaglechat.links.crashes import starts_again
from eaglechat.tui.commands.keys import ENTER, bindings_of, moves, with_keys
from eaglechat.tui.screens.dialogs import Ask, TextDialog
from eaglechat.tui.screens.prompt_screen import PromptScreen
from eaglechat.tui.services.services import Services
from eaglechat.tui.widgets.prompt.prompt import Prompt
from eaglechat.tui.widgets.readouts import MUTED, Part
from eaglechat.wire import protocol
from eaglechat.wire.worker import Died
from eaglechat.words import wording
from eaglechat.words.bars import bar

if TYPE_CHECKING:
    from eaglechat.hub.local.forms import LoadFile

_STAGES = {
    "copy": "Measuring which form of the target drafts fastest here (only once)",
    "target": "Loading the target",
    "draft": "Loading the draft",
    "context": "Allocating the context",
}

_WHAT_TO_DO = {
    "preflight": "Choose other files in the menu.",
    "load": "A smaller context (engine.n_ctx) or fewer layers on the GPU (engine.n_gpu_layers) "
    "need less memory; both are in the settings. The engine's log says more.",
    "rpc": "Start ggml-rpc-server there, or change engine.rpc_servers in the settings.",
    "program": "Change engine.llama_server in the settings and start eaglechat again; if it is "
    "empty, eaglechat's own engine runs the pairs.",
    "settings": "Change it in the settings, under engine.",
    "native_library": "Run “eaglechat doctor”: it names what is missing.",
    "start": "Check engine.command in the settings.",
    "protocol": "Install the same version of eaglechat on both machines.",
    "died": "Try again; if it happens again, “eaglechat doctor” says what is wrong here.",
    "server": "Check the server, and its entry in config.toml if it has one, and try again.",
    "missing": "Choose another model of the server: --model, or model in its entry.",
    "which_model": "Then start again.",
}
"""Advice to the user for each error code."""


class _LeftError(Exception):
    """The load that the form is chosen for was cancelled."""


_BAR = 40
_LOW = 20
"""Below this height there is no room for the names of the files."""


class LoadingScreen(TextDialog[None], PromptScreen[None]):
    """Calls `then` with the pair and what was loaded of it: it opens the chat in place of this
    screen. What is typed meanwhile waits in `services.typeahead`."""

    CSS_PATH = "loading.tcss"
    BINDINGS = [*bindings_of("loading"), *moves({"enter": "again"})]

    def __init__(
        self, services: Services, pair: Pair, then: Callable[[Pair, protocol.PairInfo], None]
    ) -> None:
        super().__init__()
        self._services = services
        self._pair = pair
        self._then = then
        self._loaded: protocol.PairInfo | None = None
        self._request_id = 0
        self._restarts: list[str] = []
        """A sentence for each crash of the engine in this load: what is left out since."""
        self._copying = 0
        """The number of the load whose target's form is being chosen. It grows when a load is
        cancelled, so that the choice of an earlier one stops."""

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield Prompt(
            id="prompt",
            placeholder=with_keys("Type ahead: {prompt.send} sends it once the models are loaded"),
        )

    def on_mount(self) -> None:
        self._services.away.show(f"loading {self._pair.name}")
        typed = self._services.typeahead.take()
        self.prompt.replace_all(self.prompt.marks.text(typed.parts))
        self._send_later(typed.is_sent)
        self._unwatch = self._services.engine.watch(self._follow_engine)
        self._load()

    def on_unmount(self) -> None:
        self._unwatch()

    def _follow_engine(self, news: Lifecycle) -> None:
        if not self.is_open:
            return
        if isinstance(news, protocol.Hello):
            if wrong := wrong_version(news):
                self._fail(wrong, "protocol")
        elif isinstance(news, Died):
            self._fail(wording.engine_stopped(news), "died")

    def _hear(self, event: protocol.Answer) -> None:
        if event.id != self._request_id or not self.is_open:
            return
        step = event.step if isinstance(event, protocol.Progress) else None
        if isinstance(step, protocol.Loading):
            self._progress(step.stage, step.fraction)
        elif isinstance(step, protocol.Restarting):
            self._restarts.append(starts_again(step.crash, step.leave_out, step.log))
            self._progress("engine", 0.0)
        elif isinstance(event, protocol.Loaded):
            self._loaded = event.pair
            if not self._services.settings.current.engine.command:
                passes.note(paths.state_dir(), event.pair)
            self._hand_over()
        elif isinstance(event, protocol.Error):
            self._fail(event.message, event.code)

    # What is typed

    @on(Prompt.Sent)
    def _sent(self, event: Prompt.Sent) -> None:
        if self.has_class("-failed"):
            self._load()
            return
        if not event.text.strip():
            self.notify(with_keys(wording.WRITE_FIRST))
        self._send_later(bool(event.text.strip()))

    @on(TextArea.Changed)
    def _typing(self) -> None:
        self.prompt.set_class(not self.prompt.text, "-empty")
        if self.prompt.text != self._sent_text:
            self._send_later(False)

    def _send_later(self, is_sent: bool) -> None:
        self._sent_text = self.prompt.text if is_sent else None
        said = "Your question will be sent once the models are loaded" if is_sent else None
        self.prompt.border_title = said

    @on(events.ScreenResume)
    def _hand_over(self) -> None:
        """Let `then` go on, once the keys that are queued here are in the prompt, and no screen
        lies above."""
        if self._loaded is None or not self.is_on_top:
            return
        if self.message_queue_size or self.prompt.message_queue_size:
            self.call_later(self.prompt.call_later, self._hand_over)
            return
        loaded, self._loaded = self._loaded, None
        self._keep_typed()
        self._then(self._pair, loaded)

    def _keep_typed(self) -> None:
        typeahead = self._services.typeahead
        typeahead.parts = self.prompt.marks.parts(self.prompt.text)
        typeahead.is_sent = self._sent_text is not None

    # The load

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        has_failed = self.has_class("-failed")
        can = {"again": has_failed, "alone": has_failed and self._pair.draft is not None}
        return can.get(action, True) and super().check_action(action, parameters)

    def action_again(self) -> None:
        self._load()

    def action_alone(self) -> None:
        self._pair = pair_of_files(self._pair.target, None)
        self._load()

    def action_log(self) -> None:
        lines = "\n".join(self._services.engine.log_tail())
        self.open(Ask("The last lines of the engine's log", lines or "It is empty."))

    def action_back(self) -> None:
        # A question that was meant for these models is not sent to others.
        self._send_later(False)
        self.leave()
        self.dismiss(None)

    def leave(self) -> None:
        """Cancel the load. What was typed waits for the next."""
        self._keep_typed()
        if self._request_id:
            self._services.engine.send(protocol.Cancel(id=self._request_id))
            # In case the pair was loaded before the engine read the cancel.
            self._services.engine.unload()
        self._copying += 1
        self._request_id, self._loaded = 0, None

    def _load(self) -> None:
        self.remove_class("-failed")
        self.head(f"{'Connecting to' if self._pair.server else 'Loading'} {self._pair.name}")
        self.offer("{dialog.back} cancels")
        self._progress("engine", 0.0)
        try:
            self._services.engine.use(self._pair.server)
            self._services.engine.start()
        except EngineStartError as error:
            self._fail(str(error), "start")
            return
        self._copying += 1
        if self._pair.reencode:
            self._copy(self._copying)
        else:
            self._request(self._pair.to_load[0])

    def _copy(self, load: int) -> None:
        # Imported here because only the first load of such a pair needs it.
        from eaglechat.hub.local.forms import target_to_load

        def follow(fraction: float) -> None:
            if load != self._copying or not self.is_running:
                raise _LeftError
            self.call_later(self._show_copying, load, fraction)

        settings = self._services.settings.current

        def copy() -> None:
            with suppress(_LeftError):
                found = target_to_load(self._pair, settings, follow)
                self.later(self._copied, load, found)

        self.in_background(copy)

    def _show_copying(self, load: int, fraction: float) -> None:
        if load == self._copying:
            self._progress("copy", fraction)

    def _copied(self, load: int, file: LoadFile) -> None:
        if load != self._copying:
            return
        if file.problem:
            self.notify(file.problem, severity="warning")
        if file.note:
            self._pair = replace(self._pair, note=file.note)
        self._request(str(file.target))

    def _request(self, target: str) -> None:
        load = protocol.Load(
            target=target,
            draft=self._pair.to_load[1],
            options=self._services.settings.current.to_load_options(),
            speculation=first_speculation(self._services.settings.current, self._pair),
        )
        self._request_id = self._services.engine.request(load, self._hear)

    def _progress(self, stage: str, fraction: float) -> None:
        starting = "Asking it" if self._pair.server else "Starting the engine"
        restarts = "".join(f"{wording.sentence(one)}\n" for one in self._restarts)
        cells = min(_BAR, self.app.size.width - 16)
        filled = (bar(fraction, cells), "$primary on $foreground 12%")
        said = _STAGES.get(stage, starting)
        self._show((restarts, MUTED), f"{said}\n", filled, f" {fraction:4.0%}")

    def _show(self, *said: Part) -> None:
        """Show what is said, below what is loaded."""
        pair, names = self._pair, ""
        if pair.server is not None:
            names = f"server  {pair.server.url}\nmodel   {pair.model or 'the one it has'}\n\n"
        elif self.app.size.height >= _LOW:
            # Without a file, the target may draft with heads of its own.
            draft = f"draft   {pair.draft.name}\n" if pair.draft else ""
            names = f"target  {pair.target.name}\n{draft}\n"
        self.show(Content.assemble((names, MUTED), *said))

    def _fail(self, message: str, code: str) -> None:
        self._request_id = 0
        code = "server" if self._pair.server else code
        self.add_class("-failed")
        self.head(f"Cannot load {self._pair.name}")
        alone = "{loading.alone} without draft, " if self._pair.draft else ""
        # Below a load that begins in the menu is the menu.
        back = "menu" if len(self.app.screen_stack) == 2 else "back"
        self.offer(f"{ENTER} tries again, {alone}{{loading.log}} log, {{dialog.back}} {back}")
        # The message says the same, and needs the room.
        self._restarts.clear()
        advice = _WHAT_TO_DO.get(code, "The engine's log says more.")
        self._show((wording.sentence(message), "$text-error"), f"\n\n{advice}")
        self.refresh_bindings()
