"""Says what installing a pair takes, before anything is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from eaglechat import paths
from eaglechat.hub import fit
from eaglechat.hub.errors import HubError
from eaglechat.hub.facts import Facts
from eaglechat.hub.local.bandwidth import measured
from eaglechat.hub.units import format_bytes
from eaglechat.links.base import Lifecycle, Ready
from eaglechat.tui.commands.registry import ENTER
from eaglechat.tui.screens.base import EagleModal, TooSmall, Update
from eaglechat.tui.screens.dialogs import OTHER_BUTTON
from eaglechat.tui.services.services import Services
from eaglechat.tui.widgets.frame import Frame, clickable
from eaglechat.tui.widgets.readouts import MUTED, Part
from eaglechat.words import drafting

if TYPE_CHECKING:
    from eaglechat.hub.catalogue import CatalogueEntry
    from eaglechat.hub.downloads.install import Plan


class PlanScreen(EagleModal[bool]):
    """Dismisses with True if the installation was started."""

    CSS_PATH = "plan.tcss"

    BINDINGS = OTHER_BUTTON

    def __init__(self, services: Services, entry: CatalogueEntry) -> None:
        super().__init__()
        self._services = services
        self._entry = entry
        self._plan: Plan | None = None
        self._facts: Facts | None = None

    def compose(self) -> ComposeResult:
        with Frame(classes="dialog", id="plan") as dialog:
            dialog.border_title = f"Install {self._entry.name}"
            dialog.border_subtitle = clickable(f"{ENTER} presses, {{dialog.back}} back")
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
            # Now it is known how much memory there is.
            self._show_memory()

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
        self.in_background(lambda: self._start(plan))

    def _ask(self) -> None:
        self.query_one("#go", Button).disabled = True
        self.query_one("#what", Static).update("Asking the Hub for the files…")
        self.in_background(self._ask_hub)

    # In the background

    def _ask_hub(self) -> Iterator[Update]:
        services = self._services
        desk, n_ctx = services.desk, services.settings.current.engine.n_ctx
        try:
            plan = desk.plan(self._entry, n_ctx)
            yield partial(self._take_plan, plan, desk.free_bytes(), desk.endpoint)
            entry = plan.entry
            facts = desk.known_facts(entry, n_ctx) or desk.ask_facts(entry, n_ctx)
            yield partial(self._take_facts, facts)
        except (HubError, ValueError) as error:
            yield partial(self._fail, str(error))

    def _start(self, plan: Plan) -> Iterator[Update]:
        try:
            self._services.desk.start(plan)
        except HubError as error:
            yield partial(self._fail, str(error))
        except OSError as error:
            yield partial(self._fail, f"Cannot add the pair to your catalogue: {error}.")
        else:
            yield partial(self.dismiss, True)

    # What came of it

    def _take_plan(self, plan: Plan, free: int, endpoint: str) -> None:
        self._plan = plan
        self.query_one("#what", Static).update(_description(plan, free, endpoint))
        go = self.query_one("#go", Button)
        go.label = "Resume" if 0 < plan.bytes_missing < plan.bytes_total else "Download"
        go.disabled = False
        go.focus()

    def _take_facts(self, facts: Facts) -> None:
        self._facts = facts
        self._show_memory()

    def _show_memory(self) -> None:
        """The memory, by model, and what drafts."""
        facts = self._facts
        if facts is None or facts.memory is None:
            return
        machine = self._services.engine.machine
        judged = fit.judge(facts.memory, machine)
        speed = fit.estimate(facts.reads, facts.memory, machine, measured(paths.state_dir()))
        drafters = facts.drafters or ()
        shares = drafting.shares(facts.memory, drafters)
        drafted = f"Drafted by: {drafting.badge(drafters)}.\n" if drafters else ""
        memory = self.query_one("#memory", Static)
        said = f"{drafted}Memory: {judged.text}. With KV caches: {shares}."
        memory.update(f"{said}\nSpeed: {speed}." if speed else said)
        memory.set_class(judged.fits is False, "problem")

    def _fail(self, sentence: str) -> None:
        self.query_one("#trouble", Static).update(sentence)
        if self._plan is None:
            self.query_one("#what", Static).update("")
        go = self.query_one("#go", Button)
        go.label = "Try again"
        go.disabled = False
        go.focus()


def _description(plan: Plan, free: int, endpoint: str) -> Content:
    parts: list[Part] = []
    if plan.entry.target.path:
        parts += [("Target", "bold"), f"  {plan.entry.target.path}", (", on this machine\n", MUTED)]
    for role, files in (("Target", plan.target), ("Draft", plan.draft)):
        if not files:
            continue
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
    entry = plan.entry
    figures = [f"{entry.speed_up:.2f}x as fast as plain decoding"] if entry.speed_up else []
    if published := ", ".join([*figures, *filter(None, [entry.acceptance])]):
        parts.append(f"Published: {published}.\n")
    for said in filter(None, (entry.title, entry.note)):
        parts.append((f"{said}\n", MUTED))
    for repo in plan.gated:
        parts += [
            (f"{repo} is gated: ", "$text-warning"),
            f"accept its licence at {endpoint}/{repo}, then log in with `hf auth login` "
            "or set HF_TOKEN.\n",
        ]
    return Content.assemble(*parts)
