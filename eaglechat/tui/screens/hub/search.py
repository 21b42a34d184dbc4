"""Search the Hub for a pair: a target or a draft, then its quantisation, then what makes it fast.

With a model that is known, only the last of these: everything that can draft for it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

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
from eaglechat.tui.widgets.readouts import MUTED, Part
from eaglechat.words import ways, wording

if TYPE_CHECKING:
    from eaglechat.hub.downloads.client import RemoteRepo
    from eaglechat.hub.downloads.find_drafts import Found, Way

DEBOUNCE_S = 0.4
_WORDS = "a model, a draft, an author, user/repo or an address"
_COLOURS = {"fits": "$text-success", "tight": "$text-warning", "too large": "$text-error"}
_ASK = "Type the name of a model to chat with, or of a draft."


@dataclass(frozen=True)
class Repos:
    """What a search found; or, of a `draft` that was chosen, repositories with targets for it."""

    hits: Sequence[RemoteRepo]
    draft: str = ""
    made_for: Sequence[str] = ()

    def heading(self) -> str:
        if self.draft:
            what = f"{self.draft} is a draft"
            if not self.made_for:
                return f"{what}, and does not say for which model: search for the model instead."
            which = ". Which target?" if self.hits else ", of which the Hub has no GGUF."
            return f"{what} for {', '.join(self.made_for)}{which}"
        none = "The Hub has no GGUF and no draft by this name."
        return "Targets, and drafts" if self.hits else none

    def rows(self, _width: int) -> Sequence[Content]:
        return [_repo_row(hit) for hit in self.hits]


@dataclass(frozen=True)
class Models:
    """The quantisations of a target, the largest first, and the one to take."""

    repo: RemoteRepo
    weighed: Sequence[Quantisation]
    best: Quantisation | None
    machine: Machine

    def heading(self) -> str:
        if not self.weighed:
            return f"{self.repo.repo} has no complete GGUF model."
        best = f" {self.best.name} suits this machine." if self.best else ""
        return f"Which quantisation of {self.repo.repo}?{best}"

    def rows(self, _width: int) -> Sequence[Content]:
        cells = max((len(one.name) for one in self.weighed), default=0)
        return [self._row(one, cells) for one in self.weighed]

    def _row(self, one: Quantisation, cells: int) -> Content:
        judged = fit.judge(one.need, self.machine)
        size = f"{format_bytes(one.need.target_weights):>8}"
        parts: list[Part] = [(f"{one.name:<{cells}}", "bold"), (f"  {size}", MUTED)]
        if judged.word is not None:
            parts.append((f"  {judged.word}", _COLOURS[judged.word]))
        parts.append((f"  {judged.text}", MUTED))
        return Content.assemble(*parts)


@dataclass(frozen=True)
class Drafts:
    """The ways to make the target fast, each judged; there may be more to come."""

    found: Found
    catalogue: Sequence[CataloguePair]

    def heading(self) -> str:
        found = self.found
        said = f"What can make {found.target.name} faster."
        return " ".join(filter(None, (said, found.asking or found.trouble)))

    def rows(self, width: int) -> Sequence[Content]:
        return [_way_row(way, width) for way in self.found.ways]


Step = Repos | Models | Drafts


class SearchScreen(ListDialog[Pair, int]):
    """Dismisses with a pair to load, which it may have installed, or None."""

    HEADING = "Search the Hub"
    KEYS = "{list.choose} chooses, {dialog.back} a step back"
    PLACEHOLDER = _WORDS
    SAYS = _ASK

    def __init__(
        self, services: Services, words: str = "", of: Path | CatalogueEntry | None = None
    ) -> None:
        """`of`: find drafts for this target, instead of searching for one."""
        super().__init__()
        self._typed_before, self._of = words, of
        self._services = services
        self._steps: list[Step] = []
        self._number = 0
        self._soon: Timer | None = None

    def on_mount(self) -> None:
        self.words.value = self._typed_before
        if (of := self._of) is not None:
            self.head("Find drafts")
            self.words.placeholder = "type to filter"
            # The rows are laid out for the list's width, which it has then.
            self.call_after_refresh(self._ask, "Looking for drafts…", lambda: self._find_drafts(of))

    # Asking

    @on(Input.Changed, "#filter")
    def _typed(self) -> None:
        last = self._steps[-1] if self._steps else None
        if last is not None and not _is_found(last):
            # Later steps are short lists: typing filters them.
            self._show_step()
        elif self._of is None:
            # The repositories on the screen were found for other words.
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
        self._abandon()
        number = self._number
        self.say(said)
        self.rows.loading = True

        def answer() -> None:
            for step in question():
                if number != self._number:
                    return
                self.later(self._take_step, number, step)

        self.in_background(answer, fails=partial(self._fail, number))

    def _find_repos(self, words: str) -> Iterator[Step]:
        from eaglechat.hub.downloads import targets

        yield Repos(targets.search(self._services.desk.hub, words))

    def _find_models(self, repo: str) -> Iterator[Step]:
        from eaglechat.hub.downloads import quantisations, targets

        desk, n_ctx = self._services.desk, self._services.settings.current.engine.n_ctx
        listing = desk.hub.repo(repo)
        if targets.is_draft(listing):
            made_for, hits = targets.of_draft(desk.hub, listing, desk.catalogue()[0])
            yield Repos(hits, repo, made_for)
            return
        weighed = quantisations.weigh(desk.hub, listing, whole_models(listing.paths), n_ctx)
        machine = self._services.engine.machine
        best = fit.best(weighed, machine)
        yield Models(listing, weighed, best, machine)

    def _find_drafts(
        self, of: Path | CatalogueEntry | tuple[RemoteRepo, ModelFiles]
    ) -> Iterator[Step]:
        from eaglechat.hub.downloads import targets
        from eaglechat.hub.downloads.find_drafts import find_drafts
        from eaglechat.hub.local.library import built_in_drafts

        desk, folders = self._services.desk, self._services.settings.current.library.folders
        catalogue, models = desk.catalogue()[0], [*desk.models(folders), *built_in_drafts()]
        if isinstance(of, Path):
            target = targets.of_file(of, catalogue, models)
        elif isinstance(of, tuple):
            target = targets.of_repo(desk.hub, *of)
        else:
            offer = next(offer for offer in catalogue if offer.name == of.name)
            target = targets.of_entry(desk.hub, offer, catalogue, models)
        drafts = [step.draft for step in self._steps if isinstance(step, Repos) and step.draft]
        wanted = drafts[-1] if drafts else ""
        for found in find_drafts(desk.hub, target, catalogue, models, wanted):
            yield Drafts(found, catalogue)

    # What came of it

    def _fail(self, number: int, error: Exception) -> None:
        if number == self._number:
            self.rows.loading = False
            self.say(wording.sentence(str(error)), bad=True)

    def _take_step(self, number: int, step: Step) -> None:
        if number != self._number:
            return
        self.rows.loading = False
        highlight = 0
        before = self._steps[-1] if self._steps else None
        if _is_found(step):
            self._steps = [step]
        elif isinstance(step, Drafts) and isinstance(before, Drafts):
            # There are more of them now. What was highlighted stays it.
            self._steps[-1], index = step, self.highlighted
            names = [ways.name(way) for way in step.found.ways]
            if index and (name := ways.name(before.found.ways[index])) in names:
                highlight = names.index(name)
        else:
            self._steps.append(step)
            self.words.clear()
        self._show_step(highlight)

    def _show_step(self, highlight: int = 0) -> None:
        step = self._steps[-1] if self._steps else None
        width = self.rows.content_size.width - 5
        if step is not None and width <= 0:
            # The list was not laid out yet.
            self.set_timer(0.05, lambda: self._show_step(highlight))
            return
        rows = [*enumerate(step.rows(width))] if step else []
        # The Hub chose the repositories by the words, which need not be in their names.
        is_found = step is not None and _is_found(step)
        words = self.words
        if isinstance(step, Models) and step.best is not None and not words.words:
            highlight = step.weighed.index(step.best)
        self.fill(rows if is_found else self.fitting(rows), highlight)
        words.placeholder = _WORDS if step is None or is_found else "type to filter"
        self.say(step.heading() if step else _ASK)

    # Choosing

    def choose(self, thing: int | None) -> None:
        step = self._steps[-1] if self._steps else None
        if thing is None or step is None:
            self._take_words()
        elif isinstance(step, Repos):
            self._ask_for_files(step.hits[thing].repo)
        elif isinstance(step, Models):
            model = step.weighed[thing].model
            self._ask(
                f"Reading the header of {model.name}, and those of drafts for it…",
                lambda: self._find_drafts((step.repo, model)),
            )
        else:
            self._take(step, step.found.ways[thing])

    def _ask_for_files(self, repo: str) -> None:
        self._ask(f"Asking for the files of {repo}…", lambda: self._find_models(repo))

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

    def _take(self, step: Drafts, way: Way) -> None:
        target = step.found.target
        if not way.fits:
            self.say(f"{ways.name(way)} cannot be taken: {way.problem}.", bad=True)
        elif way.where == "training":
            command = ways.command(target, way)
            self.say(f"In a terminal: {command}" if command else "Download the model first.")
        elif target.path is not None and not way.needs_download:
            self.dismiss(self._pair_here(target.path, way.path, target.name, ways.name(way)))
        else:
            from eaglechat.hub.downloads.find_drafts import pair_up

            self._install(pair_up(target, way, step.catalogue))

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


def _is_found(step: Step) -> bool:
    """Whether it is what a search by words found."""
    return isinstance(step, Repos) and not step.draft


def _repo_row(hit: RemoteRepo) -> Content:
    facts = [f"{hit.downloads:,} downloads", hit.licence or "", "gated" if hit.gated else ""]
    return Content.assemble((hit.repo, "bold"), (f"  {' · '.join(filter(None, facts))}", MUTED))


def _way_row(way: Way, width: int) -> Content:
    marks = {True: ("● ", "$text-success"), False: ("✗ ", "$text-error"), None: ("? ", MUTED)}
    # What has to be trained first is nothing that is ready.
    mark = ("○ ", MUTED) if way.where == "training" else marks[way.fits]
    parts: list[Part] = [mark, (ways.name(way), "bold")]
    reported = f"reported: {way.reported}" if way.reported else ""
    style = "$text-warning" if way.warning else MUTED
    about = " · ".join(filter(None, (ways.facts(way), ways.judgement(way))))
    for text, look in ((about, style), (reported, MUTED)):
        # Whole: the reason, and the source of a figure, are what is asked for here.
        lines = textwrap.wrap(text, max(width, 20), break_on_hyphens=False)
        parts += [part for line in lines for part in ("\n  ", (line, look))]
    return Content.assemble(*parts)
