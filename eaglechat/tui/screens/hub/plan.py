"""What installing a pair takes, before anything is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Button, Static

from eaglechat.gguf.memory import MemoryNeed
from eaglechat.hub.catalogue import fit
from eaglechat.hub.catalogue.facts import Facts
from eaglechat.hub.errors import HubError
from eaglechat.hub.units import format_bytes
from eaglechat.links.base import Lifecycle, Ready
from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.key_names import ENTER
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.screens.base import EagleModal, TooSmall
from eaglechat.tui.services.background import in_background
from eaglechat.tui.services.services import Services
from eaglechat.tui.widgets.readouts import MUTED, Part

if TYPE_CHECKING:
    from eaglechat.hub.catalogue.entries import Entry
    from eaglechat.hub.downloads.install import Plan


class PlanScreen(EagleModal[bool]):
    """Dismisses with True if the installation was started."""

    CSS_PATH = "plan.tcss"

    BINDINGS = bindings_of("confirm")

    class Planned(Message):
        """The Hub named the files."""

        def __init__(self, plan: Plan, free: int, endpoint: str) -> None:
            super().__init__()
            self.plan, self.free, self.endpoint = plan, free, endpoint

    class Weighed(Message):
        """The memory the pair needs is known."""

        def __init__(self, facts: Facts) -> None:
            super().__init__()
            self.facts = facts

    class Failed(Message):
        """One sentence: what went wrong, and what to do."""

        def __init__(self, sentence: str) -> None:
            super().__init__()
            self.sentence = sentence

    class Started(Message):
        """The files are in the queue."""

    def __init__(self, services: Services, entry: Entry) -> None:
        super().__init__()
        self._services = services
        self._entry = entry
        self._plan: Plan | None = None
        self._memory: MemoryNeed | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="plan") as dialog:
            dialog.border_title = f"Install {self._entry.name}"
            dialog.border_subtitle = with_keys(f"{ENTER} presses, {{dialog.back}} back")
            with VerticalScroll(id="plan-text"):
                yield Static("Asking the Hub for the files…", id="what", markup=False)
                yield Static("", id="memory", markup=False)
                yield Static("", id="trouble", classes="problem", markup=False)
            with Horizontal(classes="buttons"):
                yield Button("Download", id="go", variant="primary", compact=True, disabled=True)
                yield Button("Back", id="back", compact=True)
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one("#back").focus()
        self._unwatch = self._services.engine.watch(self._follow_engine)
        self._ask()

    def on_unmount(self) -> None:
        self._unwatch()

    def _follow_engine(self, news: Lifecycle) -> None:
        if isinstance(news, Ready):
            # It said how much memory there is.
            self._weigh()

    def action_other(self) -> None:
        self.focus_next(Button)

    @on(Button.Pressed, "#back")
    def _back(self) -> None:
        self.dismiss()

    @on(Button.Pressed, "#go")
    def _go(self) -> None:
        self.query_one("#trouble", Static).update("")
        plan = self._plan
        if plan is None:
            self._ask()
            return
        self.query_one("#go", Button).disabled = True
        in_background(self, lambda: self._start(plan))

    def _ask(self) -> None:
        self.query_one("#go", Button).disabled = True
        self.query_one("#what", Static).update("Asking the Hub for the files…")
        in_background(self, self._questions)

    # In the background

    def _questions(self) -> Iterator[Message]:
        services = self._services
        desk, n_ctx = services.desk, services.settings.current.engine.n_ctx
        try:
            yield self.Planned(desk.plan(self._entry), desk.free_bytes(), desk.endpoint)
            facts = desk.known_facts(self._entry, n_ctx) or desk.ask_facts(self._entry, n_ctx)
            yield self.Weighed(facts)
        except (HubError, ValueError) as error:
            yield self.Failed(str(error))

    def _start(self, plan: Plan) -> Iterator[Message]:
        try:
            self._services.desk.start(plan)
        except HubError as error:
            yield self.Failed(str(error))
        except OSError as error:
            yield self.Failed(f"Cannot add the pair to your catalogue: {error}.")
        else:
            yield self.Started()

    # What came of it

    def on_plan_screen_planned(self, message: Planned) -> None:
        self._plan = message.plan
        self.query_one("#what", Static).update(
            _description(message.plan, message.free, message.endpoint)
        )
        go = self.query_one("#go", Button)
        missing = message.plan.bytes_missing
        go.label = "Resume" if 0 < missing < message.plan.bytes_total else "Download"
        go.disabled = False
        go.focus()

    def on_plan_screen_weighed(self, message: Weighed) -> None:
        self._memory = message.facts.memory
        self._weigh()

    def _weigh(self) -> None:
        if self._memory is None:
            return
        judged = fit.judge(self._memory, self._services.engine.machine)
        memory = self.query_one("#memory", Static)
        memory.update(f"Memory: {judged.text}, for both models and both KV caches.")
        memory.set_class(judged.fits is False, "problem")

    def on_plan_screen_failed(self, message: Failed) -> None:
        self.query_one("#trouble", Static).update(message.sentence)
        if self._plan is None:
            self.query_one("#what", Static).update("")
        go = self.query_one("#go", Button)
        go.label = "Try again"
        go.disabled = False
        go.focus()

    def on_plan_screen_started(self) -> None:
        self.dismiss(True)


def _description(plan: Plan, free: int, endpoint: str) -> Content:
    parts: list[Part] = []
    for role, files in (("Target", plan.target), ("Draft", plan.draft)):
        parts += [(role, "bold"), f"  {files[0].repo}\n"]
        for file in files:
            parts += [f"  {file.path}", (f"  {format_bytes(file.size)}\n", MUTED)]
    here = plan.bytes_total - plan.bytes_missing
    parts += ["\nDownload: ", (format_bytes(plan.bytes_missing), "bold")]
    if here:
        parts.append(f", {format_bytes(here)} of {format_bytes(plan.bytes_total)} are already here")
    parts.append(f". Free on the disk: {format_bytes(free)}.\n")
    if plan.converts:
        parts.append("The draft's checkpoint is then converted to GGUF (q8_0).\n")
    if plan.licences:
        said = ", ".join(f"{licence} ({repo})" for repo, licence in plan.licences)
        parts.append(f"Licence: {said}.\n")
    for repo in plan.gated:
        parts += [
            (f"{repo} is gated: ", "$text-warning"),
            f"accept its licence at {endpoint}/{repo}, then log in with `hf auth login` "
            "or set HF_TOKEN.\n",
        ]
    return Content.assemble(*parts)
