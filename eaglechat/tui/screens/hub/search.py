"""Search the Hub for a pair: a target or a draft, its quantisation, and what makes it fast."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from textual import on
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input

from eaglechat.hub import fit
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.fit import Machine, Quantisation
from eaglechat.hub.local.pairs import CataloguePair, Pair, pair_of_files
from eaglechat.hub.references import InvalidReferenceError, ModelFiles, parse, whole_models
from eaglechat.hub.units import format_bytes
from eaglechat.tui.screens.dialogs import ListDialog
from eaglechat.tui.screens.hub.downloads import DownloadsScreen
from eaglechat.tui.screens.hub.plan import PlanScreen
from eaglechat.tui.services.services import Services
from eaglechat.tui.themes import MUTED, Part
from eaglechat.tui.widgets.filter import Row
from eaglechat.words import ways, wording

if TYPE_CHECKING:
    from eaglechat.hub.downloads.client import RemoteRepo
    from eaglechat.hub.downloads.find_drafts import Found, Way

Thing = TypeVar("Thing")

_BEGIN = "Type the name of a model to chat with, or of a draft."
_COLOURS = {"fits": "$text-success", "tight": "$text-warning", "too large": "$text-error"}


class _FindScreen(ListDialog[Pair, Thing]):
    """Lists what a question in the background finds. Dismisses with a pair to load, which may have
    been installed, or None."""

    HEADING = "Search the Hub"
    KEYS = "{list.choose} chooses, {dialog.back} a step back"

    def __init__(self, services: Services, name: str | None = None) -> None:
        super().__init__(name=name)
        self._services = services
        self._found: Sequence[tuple[Thing, Content | Row]] = ()
        self._best: Thing | None = None
        """The one that is highlighted at first; None for the first row."""

    def ask(self, said: str, question: Callable[[], object]) -> None:
        """Ask in a thread, from which `question` calls `later` with what it finds."""
        self.say(said)
        self.rows.loading = True
        self.in_background(question, fails=self.fail)

    def fail(self, error: Exception) -> None:
        self.rows.loading = False
        self.say(wording.sentence(str(error)), bad=True)

    def show_found(
        self, said: str, rows: Sequence[tuple[Thing, Content | Row]], best: Thing | None = None
    ) -> None:
        self.rows.loading = False
        self._found, self._best = rows, best
        self.fill(self.fitting(rows), best)
        self.say(said)

    @on(Input.Changed, "#filter")
    def _typed(self) -> None:
        self.words_changed()

    def words_changed(self) -> None:
        self.fill(self.fitting(self._found), self._best)


class SearchScreen(_FindScreen[str]):
    """Repositories with targets, or with drafts, by words that need not be in their names."""

    PLACEHOLDER = "a model, a draft, an author, user/repo or an address"
    SAYS = _BEGIN

    def __init__(self, services: Services, words: str = "") -> None:
        super().__init__(services)
        self._typed_before = words
        self._soon: Timer | None = None

    def on_mount(self) -> None:
        self.words.value = self._typed_before

    def words_changed(self) -> None:
        if self._soon is not None:
            self._soon.stop()
        self.rows.loading = False
        self.fill(())
        self.say(_BEGIN)
        self._soon = self.set_timer(0.4, self._search)

    def _search(self) -> None:
        words = self.words.value.strip()

        def search() -> None:
            from eaglechat.hub.downloads import targets

            self.later(self._take, words, targets.search(self._services.desk.hub, words))

        if words:
            self.ask(f"Searching the Hub for “{words}”…", search)

    def _take(self, words: str, found: Sequence[RemoteRepo]) -> None:
        # Other words may be typed by now.
        if words == self.words.value.strip():
            self.rows.loading = False
            self.fill(map(_repo_row, found))
            none = "The Hub has no GGUF and no draft by this name."
            self.say("Targets, and drafts" if found else none)

    def choose(self, thing: str | None) -> None:
        """Without a row: open what is typed if it is a reference, else search for it."""
        words = self.words.value.strip()
        if thing is not None:
            self._open(thing)
        elif not words:
            self.say("Type the name of a model first.", bad=True)
        elif "/" not in words:
            self._search()
        else:
            try:
                reference = parse(words)
            except InvalidReferenceError as error:
                self.say(str(error), bad=True)
                return
            if reference.path:
                self.say("That is a file here: its path in the menu opens it.", bad=True)
            else:
                self._open(reference.repo)

    def _open(self, repo: str) -> None:
        self.open(RepoScreen(self._services, repo), self.dismiss)


class RepoScreen(_FindScreen[Quantisation | str]):
    """The quantisations of a target; or if it is a draft, repositories with targets for it."""

    def __init__(self, services: Services, repo: str, draft: str = "") -> None:
        """`draft` is the repository of the draft that the target is for, if it is for one."""
        super().__init__(services, name=repo)
        self._repo, self._draft = repo, draft
        self._listing: RemoteRepo | None = None

    def on_mount(self) -> None:
        self.ask(f"Asking for the files of {self._repo}…", self._find)

    def _find(self) -> None:
        from eaglechat.hub.downloads import install, targets

        desk, n_ctx = self._services.desk, self._services.settings.current.engine.n_ctx
        listing = self._listing = desk.hub.repo(self._repo)
        repo = listing.repo
        if targets.is_draft(listing):
            made_for, hits = targets.of_draft(desk.hub, listing, desk.catalogue()[0])
            which = f"for {', '.join(made_for)}"
            which += ". Which target?" if hits else ", of which the Hub has no GGUF."
            if not made_for:
                which = "and does not say for which model: search for the model instead."
            said = f"{repo} is a draft{' ' if made_for else ', '}{which}"
            self.later(self.show_found, said, [*map(_repo_row, hits)])
            return
        weighed = install.weigh(desk.hub, listing, whole_models(listing.paths), n_ctx)
        machine = self._services.engine.machine
        best = fit.best(weighed, machine)
        suits = f" {best.name} suits this machine." if best else ""
        which = f"Which quantisation of {repo}?{suits}"
        cells = max((len(one.name) for one in weighed), default=0)
        said = which if weighed else f"{repo} has no complete GGUF model."
        rows = [(one, _quantisation_row(one, cells, machine)) for one in weighed]
        self.later(self.show_found, said, rows, best)

    def choose(self, thing: Quantisation | str | None) -> None:
        if isinstance(thing, str):
            self.open(RepoScreen(self._services, thing, self._repo), self.dismiss)
        elif thing is not None and self._listing is not None:
            of = self._listing, thing.model
            self.open(DraftsScreen(self._services, of, self._draft), self.dismiss)


class DraftsScreen(_FindScreen["Way"]):
    """Everything that can draft for a target."""

    HEADING = "Find drafts"

    def __init__(
        self,
        services: Services,
        of: Path | CatalogueEntry | tuple[RemoteRepo, ModelFiles],
        wanted: str = "",
        *,
        here_only: bool = False,
    ) -> None:
        """`wanted` is the repository of a draft to look into first. With `here_only`, the Hub is
        asked nothing."""
        super().__init__(services)
        self._of, self._wanted, self._here_only = of, wanted, here_only
        self._answer: tuple[Found, Sequence[CataloguePair]] | None = None

    def on_mount(self) -> None:
        self.ask("Looking for drafts…", self._find)

    def _find(self) -> None:
        from eaglechat.hub.downloads import targets
        from eaglechat.hub.downloads.find_drafts import find_drafts
        from eaglechat.hub.local.library import built_in_draft

        desk, of = self._services.desk, self._of
        folders = self._services.settings.current.library.folders
        catalogue, models = desk.catalogue()[0], [*desk.models(folders), built_in_draft()]
        if isinstance(of, Path):
            target = targets.of_file(of, catalogue, models)
        elif isinstance(of, tuple):
            target = targets.of_repo(desk.hub, *of)
        else:
            offer = next(offer for offer in catalogue if offer.name == of.name)
            target = targets.of_entry(desk.hub, offer, catalogue, models)
        for found in find_drafts(desk.hub, target, catalogue, models, self._wanted):
            self.later(self._take, found, catalogue)
            if self._here_only or not self.is_running:
                break

    def _take(self, found: Found, catalogue: Sequence[CataloguePair]) -> None:
        self._answer = found, catalogue
        said = f"What can make {found.target.name} faster."
        if not self._here_only and (asked := found.asking or found.trouble):
            said = f"{said} {asked}"
        rows = [(way, Row(partial(_way, way), height=None)) for way in found.ways]
        # There may be more ways now. What was highlighted stays it, unless it is the first.
        before = self.highlighted if self.rows.highlighted else None
        same = (way for way in found.ways if before and ways.name(way) == ways.name(before))
        self.show_found(said, rows, next(same, None))

    def choose(self, thing: Way | None) -> None:
        if thing is None or self._answer is None:
            return
        (found, catalogue), way = self._answer, thing
        target = found.target
        if not way.fits:
            self.say(f"{ways.name(way)} cannot be taken: {way.problem}.", bad=True)
        elif way.where == "training":
            command = ways.command(target, way)
            self.say(f"In a terminal: {command}" if command else "Download the model first.")
        elif target.path is not None and not way.needs_download:
            # A pair that is known may have settings of its own.
            known = (
                pair
                for pair in self._services.pairs.pairs()
                if (pair.target, pair.draft) == (target.path, way.path)
            )
            name = f"{target.name} + {ways.name(way)}" if way.path else target.name
            self.dismiss(next(known, pair_of_files(target.path, way.path, name)))
        else:
            from eaglechat.hub.downloads.find_drafts import pair_up

            entry = pair_up(target, way, catalogue)
            downloads = DownloadsScreen(self._services, entry.name)
            plan = PlanScreen(self._services, entry)
            self.open(plan, lambda _started: self.open(downloads, self.dismiss))


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
