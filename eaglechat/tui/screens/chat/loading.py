"""Loads the pair of a chat: shows how far that is, can be cancelled at any moment, and says what
went wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from eaglechat import paths
from eaglechat.chat.controls import first_controls
from eaglechat.hub.local import passes
from eaglechat.hub.local.pairs import Pair
from eaglechat.links.base import Lifecycle
from eaglechat.links.crashes import starts_again
from eaglechat.tui.commands.keys import ENTER
from eaglechat.tui.screens.base import EagleScreen, Frame
from eaglechat.tui.services.services import Services
from eaglechat.tui.themes import MUTED, Part
from eaglechat.wire import protocol
from eaglechat.wire.errors import EngineError
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
    "died": "Try again; if it happens again, “eaglechat doctor” says what is wrong here.",
    "server": "Check the server, and its entry in config.toml if it has one, and try again.",
    "missing": "Choose another model of the server: --model, or model in its entry.",
    "which_model": "Then start again.",
}
"""Advice to the user for each error code."""

_BAR = 40
_LOW = 20
"""Below this height there is no room for the names of the files."""


class _LeftError(Exception):
    """The load that the form is chosen for was cancelled."""


class Loading(Frame):
    """Is shown in place of the transcript, and the screen has the class `-loading`, until the pair
    is loaded or the load is cancelled."""

    def __init__(
        self,
        screen: EagleScreen[Any],
        services: Services,
        pair: Pair,
        loaded: Callable[[Pair, protocol.PairInfo], None],
    ) -> None:
        """`loaded` gets what was loaded, without the draft if the user chose so."""
        super().__init__(id="loading", classes="dialog")
        self._of, self._services, self._loaded = screen, services, loaded
        self._text = Static(markup=False, classes="above")
        self._why = Static(markup=False)
        """What is loaded, and the end of a log; how far that is, or why it failed."""
        self.pair = pair
        self._number, self._request_id = 0, 0
        """The number grows with each load and its end: the choice of a form for an earlier one
        stops."""
        self._stage, self._fraction = "engine", 0.0
        self._restarts: list[str] = []
        """A sentence for each crash of the engine in this load: what is left out since."""
        self._failure: tuple[str, str] | None = None
        """Its message and code."""

    def compose(self) -> ComposeResult:
        yield self._text
        yield self._why

    def on_mount(self) -> None:
        self._unwatch = self._services.engine.watch(self._follow_engine)

    def on_unmount(self) -> None:
        self._unwatch()

    @property
    def is_open(self) -> bool:
        """Whether a pair is being loaded, or could not be."""
        return self._of.has_class("-loading")

    @property
    def has_failed(self) -> bool:
        return self.is_open and self._failure is not None

    def begin(self) -> None:
        """Load the pair, or try again."""
        self._number += 1
        self._failure, self._stage, self._fraction = None, "engine", 0.0
        self._restarts.clear()
        self._of.add_class("-loading")
        self._services.away.show(f"loading {self.pair.name}")
        self._draw()
        try:
            self._services.engine.use(self.pair.server)
            self._services.engine.start()
        except EngineError as error:
            self._fail(str(error), "start")
            return
        if self.pair.reencode:
            self._copy(self._number)
        else:
            self._request(self.pair.to_load[0])

    def cancel(self) -> None:
        if self._request_id:
            self._services.engine.send(protocol.Cancel(id=self._request_id))
            # In case the pair was loaded before the engine read the cancel.
            self._services.engine.unload()
        self._close()

    def _close(self) -> None:
        self._number, self._request_id = self._number + 1, 0
        self._of.remove_class("-loading")

    def _copy(self, load: int) -> None:
        """Choose the form of the target that drafts fastest here, then load it."""
        # Imported here because only the first load of such a pair needs it.
        from eaglechat.hub.local.forms import target_to_load

        def follow(fraction: float) -> None:
            if load != self._number or not self.is_running:
                raise _LeftError
            self._of.later(self._progress, "copy", fraction, load)

        def copied(file: LoadFile) -> None:
            if load != self._number:
                return
            if file.problem:
                self.notify(file.problem, severity="warning")
            if file.note:
                self.pair = replace(self.pair, note=file.note)
            self._request(str(file.target))

        settings = self._services.settings.current

        def copy() -> None:
            with suppress(_LeftError):
                self._of.later(copied, target_to_load(self.pair, settings, follow))

        self._of.in_background(copy)

    def _request(self, target: str) -> None:
        settings = self._services.settings.current
        controls = first_controls(settings, self.pair)
        load = protocol.Load(
            target=target,
            draft=self.pair.to_load[1],
            options=settings.to_load_options(),
            speculation=msgspec.convert(controls, protocol.Speculation, from_attributes=True),
        )
        self._request_id = self._services.engine.request(load, self._hear)

    def _hear(self, event: protocol.Answer) -> None:
        if event.id != self._request_id:
            return
        step = event.step if isinstance(event, protocol.Progress) else None
        if isinstance(step, protocol.Loading):
            self._progress(step.stage, step.fraction, self._number)
        elif isinstance(step, protocol.Restarting):
            self._restarts.append(starts_again(step.crash, step.leave_out, step.log))
            self._progress("engine", 0.0, self._number)
        elif isinstance(event, protocol.Loaded):
            if not self._services.settings.current.engine.command:
                passes.note(paths.state_dir(), event.pair)
            self._close()
            self._loaded(self.pair, event.pair)
        elif isinstance(event, protocol.Error):
            self._fail(event.message, event.code)

    def _follow_engine(self, news: Lifecycle) -> None:
        if self.is_open and isinstance(news, Died):
            self._fail(wording.engine_stopped(news), "died")

    def _fail(self, message: str, code: str) -> None:
        self._number, self._request_id = self._number + 1, 0
        self._failure = message, "server" if self.pair.server else code
        self._draw()
        self._of.refresh_bindings()

    # What is seen

    def _progress(self, stage: str, fraction: float, load: int) -> None:
        if load == self._number:
            self._stage, self._fraction = stage, fraction
            self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        name, does = self.pair.name, "Connecting to" if self.pair.server else "Loading"
        self.set_class(self._failure is not None, "-failed")
        if self._failure is None:
            self.border_title = f"{does} {name}"
            self.offer("{chat.stop} cancels")
            log, why = "", self._so_far()
        else:
            message, code = self._failure
            self.border_title = f"Cannot load {name}"
            alone = "{loading.alone} without draft, " if self.pair.draft else ""
            self.offer(f"{ENTER} tries again, {alone}{{loading.log}} log, {{chat.stop}} back")
            advice = _WHAT_TO_DO.get(code, "The engine's log says more.")
            log, _, reason = message.rpartition("\n")
            why = [(wording.sentence(reason), "$text-error"), f"\n\n{advice}"]
        above = [one for one in ((self._names(), MUTED), (log, "$text-error")) if one[0]]
        self._text.display = bool(above)
        self._text.update(Content("\n\n").join(Content.styled(*one) for one in above))
        self._why.update(Content.assemble(*why))
        if self._failure is not None:
            self.call_after_refresh(self.scroll_to_widget, self._why, animate=False, top=True)

    def _so_far(self) -> list[Part]:
        starting = "Asking it" if self.pair.server else "Starting the engine"
        restarts = "".join(f"{wording.sentence(one)}\n" for one in self._restarts)
        cells = max(1, min(_BAR, self.content_size.width - len(" 100%")))
        filled = (bar(self._fraction, cells), "$primary on $foreground 12%")
        stage = _STAGES.get(self._stage, starting)
        return [(restarts, MUTED), f"{stage}\n", filled, f" {self._fraction:4.0%}"]

    def _names(self) -> str:
        pair = self.pair
        if pair.server is not None:
            return f"server  {pair.server.url}\nmodel   {pair.model or 'the one it has'}"
        if self.app.size.height < _LOW:
            return ""
        # Without a file, the target may draft with heads of its own.
        draft = f"\ndraft   {pair.draft.name}" if pair.draft else ""
        return f"target  {pair.target.name}{draft}"
