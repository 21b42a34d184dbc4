"""Search the Hub for a pair: a target or a draft, then its quantisation, then what makes it fast.

With a model that is known, only the last of these: everything that can draft for it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import on
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input

from eaglechat.hub import fit
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.fit import Machine, Quantisation
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import CataloguePair, pair_of_files
from eaglechat.hub.references import (
    InvalidReferenceError,
    ModelFiles,
    parse,
    whole_models,
)
from eaglechat.hub.units import format_bytes
from eaglechat.tui.screens.dialogs import ListDialog
from eaglechat.tui.screens.hub.downloads import DownloadsScreen
from eaglechat.tui.screens.hub.plan import PlanScreen
from eaglechat.tui.services.services import Services
from eaglechat.tui.widgets.filter import Row
from eaglechat.tui.widgets.readouts import MUTED, Part
from eaglechat.words import ways, wording

if TYPE_CHECKING:
    from eaglechat.hub.downloads.client import RemoteRepo
    from eaglechat.hub.downloads.find_drafts import Target, Way

DEBOUNCE_S = 0.4
_WORDS = "a model, a draft, an author, user/repo or an address"
_COLOURS = {"fits": "$text-success", "tight": "$text-warning", "too large": "$text-error"}


@dataclass(frozen=True)
class Step:
    """What a question found: things to choose from, a row each."""

    heading: str
    rows: Sequence[tuple[Any, Content | Row]] = ()
    choose: Callable[[Any], object] = lambda _: None
    best: Any = None
    """The one that is highlighted at first; None for the first row."""
    is_of_words: bool = False
    """Typing searches for other words, in place of filtering the rows: the Hub chose these by the
    words, which need not be in their names."""


_BEGIN = Step("Type the name of a model to chat with, or of a draft.", is_of_words=True)


class SearchScreen(ListDialog[Pair, Any]):
    """Dismisses with a pair to load, which it may have installed, or None."""

    HEADING = "Search the Hub"
    KEYS = "{list.choose} chooses, {dialog.back} a step back"
    PLACEHOLDER = _WORDS
    SAYS = _BEGIN.heading

    def __init__(
        self,
        services: Services,
        words: str = "",
        of: Path | CatalogueEntry | None = None,
        *,
        here_only: bool = False,
    ) -> None:
        """`of`: find drafts for this target, instead of searching for one; with `here_only`, ask
        the Hub nothing."""
        super().__init__()
        self._here_only = here_only
        self._typed_before, self._of = words, of
        self._services = services
        self._steps: list[Step] = []
        self._number = 0
        """Of the last question. An answer to one before it comes too late."""
        self._soon: Timer | None = None

    @property
    def _step(self) -> Step:
        return self._steps[-1] if self._steps else _BEGIN

    def on_mount(self) -> None:
        self.words.value = self._typed_before
        if (of := self._of) is not None:
            self.head("Find drafts")
            self._ask("Looking for drafts…", lambda: self._find_drafts(of))

    # Asking

    @on(Input.Changed, "#filter")
    def _typed(self) -> None:
        if not self._step.is_of_words:
            self._show_step()
        elif self._of is None:
            self._abandon()
            self._steps.clear()
            self._show_step()
            self._soon = self.set_timer(DEBOUNCE_S, self._search)

    def _search(self) -> None:
        words = self.words.value.strip()
        if words and not self._steps:
            self._ask(f"Searching the Hub for “{words}”…", lambda: self._find_repos(words))

    def _abandon(self) -> None:
        """Ignore the answer to the question before."""
        if self._soon is not None:
            self._soon.stop()
        self._number += 1
        self.rows.loading = False

    def on_unmount(self) -> None:
        self._number += 1

    def _ask(self, said: str, question: Callable[[], Iterator[Step]]) -> None:
        """Ask in a thread. The first answer is a step, and each that follows takes its place."""
        self._abandon()
        number, depth = self._number, len(self._steps)
        self.say(said)
        self.rows.loading = True

        def take(step: Step) -> None:
            if number == self._number:
                self.rows.loading = False
                self._take_step(step, depth)

        def fail(error: Exception) -> None:
            if number == self._number:
                self.rows.loading = False
                self.say(wording.sentence(str(error)), bad=True)

        def answer() -> None:
            for step in question():
                if number != self._number:
                    return
                self.later(take, step)

        self.in_background(answer, fails=fail)

    def _find_repos(self, words: str) -> Iterator[Step]:
        from eaglechat.hub.downloads import targets

        hits = targets.search(self._services.desk.hub, words)
        none = "The Hub has no GGUF and no draft by this name."
        heading = "Targets, and drafts" if hits else none
        yield Step(heading, [*map(_repo_row, hits)], self._ask_for_files, is_of_words=True)

    def _find_models(self, repo: str, draft: str) -> Iterator[Step]:
        """The quantisations of a target, which is for this `draft` if one is named; or of a draft,
        the repositories with targets for it."""
        from eaglechat.hub.downloads import quantisations, targets

        desk, n_ctx = self._services.desk, self._services.settings.current.engine.n_ctx
        listing = desk.hub.repo(repo)
        repo = listing.repo
        if targets.is_draft(listing):
            made_for, hits = targets.of_draft(desk.hub, listing, desk.catalogue()[0])
            which = f"for {', '.join(made_for)}"
            which += ". Which target?" if hits else ", of which the Hub has no GGUF."
            if not made_for:
                which = "and does not say for which model: search for the model instead."
            said = f"{repo} is a draft{' ' if made_for else ', '}{which}"
            yield Step(said, [*map(_repo_row, hits)], lambda hit: self._ask_for_files(hit, repo))
            return
        weighed = quantisations.weigh(desk.hub, listing, whole_models(listing.paths), n_ctx)
        machine = self._services.engine.machine
        best = fit.best(weighed, machine)
        suits = f" {best.name} suits this machine." if best else ""
        which = f"Which quantisation of {repo}?{suits}"
        cells = max((len(one.name) for one in weighed), default=0)
        yield Step(
            which if weighed else f"{repo} has no complete GGUF model.",
            [(one, _quantisation_row(one, cells, machine)) for one in weighed],
            lambda one: self._ask(
                f"Reading the header of {one.name}, and those of drafts for it…",
                lambda: self._find_drafts((listing, one.model), draft),
            ),
            best,
        )

    def _find_drafts(
        self, of: Path | CatalogueEntry | tuple[RemoteRepo, ModelFiles], wanted: str = ""
    ) -> Iterator[Step]:
        from eaglechat.hub.downloads import targets
        from eaglechat.hub.downloads.find_drafts import find_drafts
        from eaglechat.hub.local.library import built_in_draft

        desk, folders = self._services.desk, self._services.settings.current.library.folders
        catalogue, models = desk.catalogue()[0], [*desk.models(folders), built_in_draft()]
        if isinstance(of, Path):
            target = targets.of_file(of, catalogue, models)
        elif isinstance(of, tuple):
            target = targets.of_repo(desk.hub, *of)
        else:
            offer = next(offer for offer in catalogue if offer.name == of.name)
            target = targets.of_entry(desk.hub, offer, catalogue, models)
        for found in find_drafts(desk.hub, target, catalogue, models, wanted):
            said = f"What can make {target.name} faster."
            asked = found.asking or found.trouble
            yield Step(
                said if self._here_only or not asked else f"{said} {asked}",
                [(way, Row(partial(_way, way), height=None)) for way in found.ways],
                lambda way: self._take(target, way, catalogue),
            )
            if self._here_only:
                break

    # What came of it

    def _take_step(self, step: Step, depth: int) -> None:
        if len(self._steps) > depth:
            # There are more ways now. What was highlighted stays it, unless it is the first.
            before, self._steps[-1] = self.highlighted, step
            is_first = not self.things or before is self.things[0]
            same = (way for way, _ in step.rows if not is_first and _is_same(way, before))
            self._show_step(next(same, None))
        else:
            self._steps.append(step)
            if not step.is_of_words:
                self.words.clear()
            self._show_step()

    def _show_step(self, highlight: Any = None) -> None:
        step, words = self._step, self.words
        if highlight is None and not words.words:
            highlight = step.best
        self.fill(step.rows if step.is_of_words else self.fitting(step.rows), highlight)
        words.placeholder = _WORDS if step.is_of_words and self._of is None else "type to filter"
        self.say(step.heading)

    # Choosing

    def choose(self, thing: Any) -> None:
        if thing is None:
            self._take_words()
        else:
            self._step.choose(thing)

    def _ask_for_files(self, repo: str, draft: str = "") -> None:
        self._ask(f"Asking for the files of {repo}…", lambda: self._find_models(repo, draft))

    def _take_words(self) -> None:
        """Without a chosen row: open what is typed if it is a reference, else search for it."""
        words = self.words.value.strip()
        if not words:
            self.say("Type the name of a model first.", bad=True)
            return
        if self._steps or "/" not in words:
            self._search()
            return
        try:
            reference = parse(words)
        except InvalidReferenceError as error:
            self.say(str(error), bad=True)
            return
        if reference.path:
            self.say("That is a file here: its path in the menu opens it.", bad=True)
            return
        self._ask_for_files(reference.repo)

    def _take(self, target: Target, way: Way, catalogue: Sequence[CataloguePair]) -> None:
        if not way.fits:
            self.say(f"{ways.name(way)} cannot be taken: {way.problem}.", bad=True)
        elif way.where == "training":
            command = ways.command(target, way)
            self.say(f"In a terminal: {command}" if command else "Download the model first.")
        elif target.path is not None and not way.needs_download:
            self.dismiss(self._pair_here(target.path, way.path, target.name, ways.name(way)))
        else:
            from eaglechat.hub.downloads.find_drafts import pair_up

            self._install(pair_up(target, way, catalogue))

    def _pair_here(self, target: Path, draft: Path | None, *names: str) -> Pair:
        """A pair of two files; if one is known, that, which may have settings of its own."""
        for pair in self._services.pairs.pairs():
            if (pair.target, pair.draft) == (target, draft):
                return pair
        return pair_of_files(target, draft, " + ".join(names if draft else names[:1]))

    def _install(self, entry: CatalogueEntry) -> None:
        downloads = DownloadsScreen(self._services, entry.name)
        plan = PlanScreen(self._services, entry)
        self.open(plan, lambda _started: self.open(downloads, self.dismiss))

    def action_back(self) -> None:
        self._abandon()
        if len(self._steps) > 1:
            self._steps.pop()
            self._show_step()
        else:
            self.dismiss(None)


def _is_same(way: Way, other: Way | None) -> bool:
    """Whether it is the same way, of which more may be known by now."""
    return other is not None and ways.name(way) == ways.name(other)


def _repo_row(hit: RemoteRepo) -> tuple[str, Content]:
    facts = [f"{hit.downloads:,} downloads", hit.licence or "", "gated" if hit.gated else ""]
    about = " · ".join(filter(None, facts))
    return hit.repo, Content.assemble((hit.repo, "bold"), (f"  {about}", MUTED))


def _quantisation_row(one: Quantisation, cells: int, machine: Machine) -> Content:
    judged = fit.judge(one.need, machine)
    size = f"{format_bytes(one.need.target_weights):>8}"
    parts: list[Part] = [(f"{one.name:<{cells}}", "bold"), (f"  {size}", MUTED)]
    if judged.word is not None:
        parts.append((f"  {judged.word}", _COLOURS[judged.word]))
    parts.append((f"  {judged.text}", MUTED))
    return Content.assemble(*parts)


def _way(way: Way, width: int) -> Content:
    marks = {True: ("● ", "$text-success"), False: ("✗ ", "$text-error"), None: ("? ", MUTED)}
    # What has to be trained first is nothing that is ready.
    mark = ("○ ", MUTED) if way.where == "training" else marks[way.fits]
    parts: list[Part] = [mark, (ways.name(way), "bold")]
    reported = f"reported: {way.reported}" if way.reported else ""
    style = "$text-warning" if way.warning else MUTED
    about = " · ".join(filter(None, (ways.facts(way), ways.judgement(way))))
    for text, look in ((about, style), (reported, MUTED)):
        # Whole: the reason, and the source of a figure, are what is asked for here.
        lines = textwrap.wrap(text, max(width - 2, 20), break_on_hyphens=False)
        parts += [part for line in lines for part in ("\n  ", (line, look))]
    return Content.assemble(*parts)
