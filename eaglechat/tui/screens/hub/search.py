"""Search the Hub for a pair: first a target, then its quantisation, then a draft that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static

from eaglechat.engine.drafters.pairing import kinds
from eaglechat.gguf.header import GGUFError
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.errors import HubError
from eaglechat.hub.references import (
    InvalidReferenceError,
    LocalReference,
    ModelFiles,
    group_models,
    parse,
)
from eaglechat.hub.units import format_bytes
from eaglechat.tui.commands.registry import key_of, with_keys
from eaglechat.tui.screens.base import EagleModal, TooSmall, Update
from eaglechat.tui.services.services import Services
from eaglechat.tui.texts import drafting, wording
from eaglechat.tui.widgets.filter import Filter
from eaglechat.tui.widgets.readouts import MUTED

if TYPE_CHECKING:
    from eaglechat.hub.downloads.client import RemoteRepo, SearchHit
    from eaglechat.hub.downloads.find_drafts import Candidate, Target

DEBOUNCE_S = 0.4
_ASK = "Type the name of a model to chat with."


@dataclass(frozen=True)
class Repos:
    """The first step: what a search found."""

    hits: Sequence[SearchHit]


@dataclass(frozen=True)
class Models:
    """The second step: the quantisations of a target."""

    repo: RemoteRepo
    models: Sequence[ModelFiles]


@dataclass(frozen=True)
class Drafts:
    """The third step: drafts for the target, each checked by its header."""

    target: Target
    model: ModelFiles
    candidates: Sequence[Candidate]


Step = Repos | Models | Drafts


class SearchScreen(EagleModal[CatalogueEntry]):
    """Dismisses with a pair to install, or None."""

    CSS_PATH = "search.tcss"

    def __init__(self, services: Services, words: str = "") -> None:
        super().__init__()
        self._words = words
        self._services = services
        self._steps: list[Step] = []
        self._number = 0
        self._soon: Timer | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="search") as dialog:
            dialog.border_title = "Search the Hub"
            dialog.border_subtitle = with_keys("{list.choose} chooses, {dialog.back} a step back")
            rows = OptionList(id="found", compact=True)
            words = Filter(rows, id="words")
            words.placeholder = "a model's name, or user/repo"
            yield words
            yield Static(_ASK, id="said", markup=False)
            yield rows
        yield TooSmall()

    def on_mount(self) -> None:
        words = self.query_one("#words", Input)
        words.value = self._words
        words.focus()

    # Asking

    @on(Input.Changed, "#words")
    def _typed(self) -> None:
        if self._steps and not isinstance(self._steps[-1], Repos):
            # Later steps are short lists: typing filters them.
            self._show_step()
        else:
            # The repositories on the screen were found for other words.
            self._abandon()
            self._steps.clear()
            self._show_step()
            self._soon = self.set_timer(DEBOUNCE_S, self._search)

    def _search(self) -> None:
        words = self.query_one("#words", Input).value.strip()
        if words and not self._steps:
            self._ask(f"Searching the Hub for “{words}”…", lambda: self._find_repos(words))

    def _abandon(self) -> None:
        """Ignore the answer to the question before."""
        if self._soon is not None:
            self._soon.stop()
        self._number += 1
        self.query_one("#found").loading = False

    def _ask(self, said: str, question: Callable[[], Step]) -> None:
        self._abandon()
        number = self._number
        self._say(said)
        self.query_one("#found").loading = True
        self.in_background(lambda: self._answer(number, question))

    def _answer(self, number: int, question: Callable[[], Step]) -> Iterator[Update]:
        try:
            yield partial(self._take_step, number, question())
        except (HubError, GGUFError, ValueError) as error:
            yield partial(self._fail, number, wording.sentence(str(error)))

    def _find_repos(self, words: str) -> Repos:
        return Repos(self._services.desk.hub.search(words, tags=("gguf",)))

    def _find_models(self, repo: str) -> Models:
        listing = self._services.desk.hub.repo(repo)
        models = [model for model in group_models(listing.paths) if not model.is_draft]
        return Models(listing, models)

    def _find_drafts(self, repo: RemoteRepo, model: ModelFiles) -> Drafts:
        target, candidates = self._services.desk.find_drafts(repo, model)
        return Drafts(target, model, candidates)

    # What came of it

    def _fail(self, number: int, trouble: str) -> None:
        if number == self._number:
            self.query_one("#found").loading = False
            self._say(trouble, bad=True)

    def _take_step(self, number: int, step: Step) -> None:
        if number != self._number:
            return
        self.query_one("#found").loading = False
        if isinstance(step, Repos):
            self._steps = [step]
        else:
            self._steps.append(step)
            self.query_one("#words", Input).clear()
        self._show_step()

    def _show_step(self) -> None:
        step = self._steps[-1] if self._steps else None
        # The Hub chose the repositories by the words, which need not be in their names.
        is_chosen = isinstance(step, Repos)
        self.query_one(Filter).show(_rows(step) if step else (), are_all_shown=is_chosen)
        self._say(_heading(step) if step else _ASK)

    def _say(self, text: str, *, bad: bool = False) -> None:
        said = self.query_one("#said", Static)
        said.update(text)
        said.set_class(bad, "problem")

    # Choosing

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        index = self.query_one(Filter).chosen
        if index is None:
            self._take_words()
            return
        step = self._steps[-1]
        if isinstance(step, Repos):
            repo = step.hits[index].repo
            self._ask(f"Asking for the files of {repo}…", lambda: self._find_models(repo))
        elif isinstance(step, Models):
            model = step.models[index]
            self._ask(
                f"Reading the header of {model.name}, and those of drafts for it…",
                lambda: self._find_drafts(step.repo, model),
            )
        else:
            self._take(step, step.candidates[index])

    def _take_words(self) -> None:
        """Without a chosen row: open what is typed if it is a reference, else search for it."""
        words = self.query_one("#words", Input).value.strip()
        if not words:
            self._say("Type the name of a model first.", bad=True)
            return
        if self._steps or "/" not in words:
            self._search()
            return
        try:
            reference = parse(words)
        except InvalidReferenceError as error:
            self._say(str(error), bad=True)
            return
        if isinstance(reference, LocalReference):
            self._say(
                with_keys("That is a file here: {menu.files} in the menu opens it."), bad=True
            )
            return
        repo = reference.repo
        self._ask(f"Asking for the files of {repo}…", lambda: self._find_models(repo))

    def _take(self, step: Drafts, candidate: Candidate) -> None:
        if not candidate.fits:
            self._say(f"{candidate.repo} does not fit: {candidate.problem}.", bad=True)
            return
        self.dismiss(self._services.desk.pair_up(step.target, step.model, candidate))

    def action_back(self) -> None:
        self._abandon()
        if len(self._steps) > 1:
            self._steps.pop()
            self._show_step()
        else:
            self.dismiss(None)


def _heading(step: Step) -> str:
    if isinstance(step, Repos):
        return "Repositories with GGUF files" if step.hits else "The Hub has no GGUF by this name."
    if isinstance(step, Models):
        if not step.models:
            return f"{step.repo.repo} has no complete GGUF model."
        return f"Which quantisation of {step.repo.repo}?"
    heads = kinds(step.target.header, None)
    own = drafting.badge(heads) if heads else ""
    other = step.target.with_heads
    hint = f". {other.name} in the same repository has MTP heads of its own." if other else ""
    if not step.candidates:
        runs = f"It drafts with its {own}" if own else "It runs without one too"
        return (
            f"No draft was found for {step.model.name}. {runs}: download it with "
            f"`eaglechat pull {step.target.repo}`, then load it from Models on "
            f"this machine ({key_of('menu.library')} in the menu){hint or '.'}"
        )
    also = f"; its {own} draft too" if own else ""
    return f"Drafts for {step.model.name}, checked by their headers{also}{hint}"


def _rows(step: Step) -> list[Content]:
    if isinstance(step, Repos):
        return [_repo_row(hit) for hit in step.hits]
    if isinstance(step, Models):
        return [
            Content.assemble(
                (model.name, "bold"),
                (f"  {format_bytes(sum(step.repo.file(f).size for f in model.files))}", MUTED),
            )
            for model in step.models
        ]
    return [_candidate_row(candidate) for candidate in step.candidates]


def _repo_row(hit: SearchHit) -> Content:
    facts = [f"{hit.downloads:,} downloads", hit.licence or "", "gated" if hit.gated else ""]
    return Content.assemble((hit.repo, "bold"), (f"  {' · '.join(filter(None, facts))}", MUTED))


def _candidate_row(candidate: Candidate) -> Content:
    marks = {True: ("● ", "$text-success"), False: ("✗ ", "$text-error"), None: ("? ", MUTED)}
    kind = wording.drafter(candidate.kind) if candidate.kind else ""
    how = "GGUF"
    if candidate.is_checkpoint:
        how = "checkpoint" if candidate.fits is False else "to convert"
    size = format_bytes(candidate.size_bytes) if candidate.size_bytes else ""
    facts = [kind, how, size, candidate.licence or "", "gated" if candidate.gated else ""]
    fits = "; ".join(filter(None, (f"fits; found {candidate.found_by}", candidate.note)))
    says = candidate.problem or candidate.warning or fits
    style = MUTED
    if candidate.warning:
        style = "$text-warning"
    return Content.assemble(
        marks[candidate.fits],
        (candidate.repo, "bold"),
        (f"  {' · '.join(filter(None, facts))}", MUTED),
        "\n  ",
        (says, style),
    )
