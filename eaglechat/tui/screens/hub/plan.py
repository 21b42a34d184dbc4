"""Says what installing a pair takes, before anything is downloaded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.content import Content

from eaglechat.hub import fit
from eaglechat.hub.units import format_bytes
from eaglechat.tui.commands.keys import ENTER, moves
from eaglechat.tui.screens.dialogs import TextDialog
from eaglechat.tui.services.services import Services
from eaglechat.tui.themes import MUTED, Part
from eaglechat.words import drafting, wording

if TYPE_CHECKING:
    from eaglechat.hub.catalogue import CatalogueEntry
    from eaglechat.hub.downloads.install import Facts, Plan


class PlanScreen(TextDialog[bool]):
    """Dismisses with True if the installation was started."""

    BINDINGS = moves({"enter": "go"})

    def __init__(self, services: Services, entry: CatalogueEntry) -> None:
        super().__init__()
        self._services = services
        self._entry = entry
        self._plan: Plan | None = None
        self._described = Content("Asking the Hub for the files…")
        self._facts: Facts | None = None
        self._trouble = ""
        self._is_busy = False

    def on_mount(self) -> None:
        self.frame.border_title = f"Install {self._entry.name}"
        self.scroll.focus()
        self.action_go()

    def action_go(self) -> None:
        """Ask the Hub for the plan, or start it."""
        if self._is_busy:
            return
        self._is_busy, self._trouble = True, ""
        self._draw()
        if self._plan is None:
            self.in_background(self._ask_hub, self._take_facts, self._fail)
        else:
            start = partial(self._services.desk.start, self._plan)
            self.in_background(start, lambda _: self.dismiss(True), self._fail)

    def _ask_hub(self) -> Facts | None:
        services = self._services
        desk, n_ctx = services.desk, services.settings.current.engine.n_ctx
        plan = desk.plan(self._entry, services.engine.machine, n_ctx)
        self.later(self._take_plan, plan, _description(plan, desk.free_bytes(), desk.endpoint))
        return desk.facts(plan, n_ctx)

    # What came of it

    def _take_plan(self, plan: Plan, described: Content) -> None:
        self._plan, self._described, self._is_busy = plan, described, False
        self._draw()

    def _take_facts(self, facts: Facts | None) -> None:
        self._facts = facts
        self._draw()

    def _fail(self, error: Exception) -> None:
        self._trouble, self._is_busy = str(error), False
        self._draw()

    def _draw(self) -> None:
        """The files, the memory by model and what drafts, and what went wrong."""
        plan = self._plan
        described = Content("") if plan is None and self._trouble else self._described
        parts = [described]
        if (facts := self._facts) is not None:
            judged = fit.judge(facts.memory, self._services.engine.machine)
            shares = drafting.shares(facts.memory, facts.drafters)
            drafted = f"Drafted by: {drafting.badge(facts.drafters)}.\n" if facts.drafters else ""
            said = f"{drafted}Memory: {judged.text}. With KV caches: {shares}."
            parts.append(Content.styled(said, "$text-error" if judged.fits is False else ""))
        parts.append(Content.styled(self._trouble, "$text-error"))
        self.show(Content("\n").join(filter(None, parts)))
        does = "tries again" if self._trouble else "downloads"
        if plan is not None and not self._trouble and 0 < plan.bytes_missing < plan.bytes_total:
            does = "resumes"
        can = "" if self._is_busy else f"{ENTER} {does}, "
        self.frame.offer(f"{can}{{dialog.back}} back")


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
    figures = (
        [f"{wording.times(entry.speed_up)} as fast as plain decoding"] if entry.speed_up else []
    )
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
