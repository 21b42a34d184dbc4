"""Loading a pair: progress, a way out at any moment, and what went wrong if it did."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Button, ProgressBar, Static

from eaglechat.chat import wording
from eaglechat.hub.local.pair import Pair
from eaglechat.links.base import Died, EngineStartError, Lifecycle, Ready
from eaglechat.tui.screens.base import EagleModal, TooSmall
from eaglechat.tui.services.services import Services
from eaglechat.wire import protocol

_STAGES = {
    "target": "Loading the target",
    "draft": "Loading the draft",
    "context": "Making room for the context",
}


class LoadingScreen(EagleModal[protocol.PairInfo | None]):
    """Dismisses with what was loaded, or None when the user went back."""

    CSS_PATH = "loading.tcss"

    BINDINGS = [
        Binding(
            "escape", "leave", "Cancel", id="loading.cancel", tooltip="Stop loading and go back"
        ),
    ]

    def __init__(self, services: Services, pair: Pair) -> None:
        super().__init__()
        self._services = services
        self._pair = pair
        self._request_id = 0

    def compose(self) -> ComposeResult:
        with Vertical(id="loading", classes="dialog") as dialog:
            dialog.border_title = f"Loading {self._pair.name}"
            yield Static(f"target  {self._pair.target.name}", classes="muted", markup=False)
            draft = self._pair.draft.name if self._pair.draft else "none"
            yield Static(f"draft   {draft}", classes="muted", markup=False)
            yield Static("", id="stage", markup=False)
            yield ProgressBar(total=1.0, show_eta=False, id="progress")
            with VerticalScroll(id="trouble"):
                yield Static("", id="what-happened", classes="problem", markup=False)
                yield Static("", id="what-to-do", markup=False)
            with Horizontal(classes="buttons"):
                yield Button("Try again", id="again", variant="primary", compact=True)
                yield Button("Cancel", id="cancel", compact=True)
        yield TooSmall()

    def on_mount(self) -> None:
        self._unwatch = self._services.engine.watch(self._follow_engine)
        self._load()

    def on_unmount(self) -> None:
        self._unwatch()

    def _follow_engine(self, news: Lifecycle) -> None:
        if not self.is_open:
            return
        if isinstance(news, Ready):
            self._check(news.hello)
        elif isinstance(news, Died):
            self._fail(wording.engine_stopped(news), "died")

    def _hear(self, event: protocol.Answer) -> None:
        if event.id != self._request_id or not self.is_open:
            return
        if isinstance(event, protocol.Loading):
            self._progress(event.stage, event.fraction)
        elif isinstance(event, protocol.Loaded):
            self.dismiss(event.pair)
        elif isinstance(event, protocol.Error):
            self._fail(event.message, event.code)

    def _check(self, hello: protocol.Hello) -> None:
        if hello.protocol != protocol.PROTOCOL_VERSION:
            self._fail(
                f"the engine speaks version {hello.protocol} of the protocol (eaglechat "
                f"{hello.eaglechat}), this program speaks {protocol.PROTOCOL_VERSION}",
                "protocol",
            )

    def action_leave(self) -> None:
        self.leave()
        self.dismiss(None)

    def leave(self) -> None:
        """Stop the load."""
        if self._request_id:
            self._services.engine.send(protocol.Cancel(id=self._request_id))
            # In case the load was done before the cancel came.
            self._services.engine.unload()
        self._request_id = 0

    @on(Button.Pressed, "#cancel")
    def _cancel_pressed(self) -> None:
        self.action_leave()

    @on(Button.Pressed, "#again")
    def _load(self) -> None:
        self.remove_class("-failed")
        self.query_one("#cancel", Button).label = "Cancel"
        self.query_one("#cancel", Button).focus()
        self._progress("engine", 0.0)
        try:
            self._services.engine.start()
        except EngineStartError as error:
            self._fail(str(error), "start")
            return
        load = protocol.Load(
            target=str(self._pair.target),
            draft=str(self._pair.draft) if self._pair.draft else None,
            options=self._services.settings.current.to_load_options(),
        )
        self._request_id = self._services.engine.request(load, self._hear)

    def _progress(self, stage: str, fraction: float) -> None:
        self.query_one("#stage", Static).update(_STAGES.get(stage, "Starting the engine"))
        self.query_one("#progress", ProgressBar).update(progress=fraction)

    def _fail(self, message: str, code: str) -> None:
        self._request_id = 0
        self.add_class("-failed")
        self.query_one("#what-happened", Static).update(wording.sentence(message))
        self.query_one("#what-to-do", Static).update(wording.what_to_do(code))
        self.query_one("#cancel", Button).label = "Back"
        self.query_one("#again", Button).focus()
