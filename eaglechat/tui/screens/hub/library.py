"""The models on this machine: load one, pair it with a draft that fits, or delete it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from textual import on
from textual.content import Content
from textual.widgets import Input

from eaglechat.hub.local.library import built_in_draft, draft_models, drafters_of, pair_of_models
from eaglechat.hub.local.model import LocalModel, ModelKind, Source
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import InspectedPair, inspect, none_here
from eaglechat.hub.local.removal import Removal, plan_removal, remove
from eaglechat.hub.units import format_bytes
from eaglechat.tui.commands.keys import bindings_of
from eaglechat.tui.screens.dialogs import Ask, ListDialog
from eaglechat.tui.services.services import Services
from eaglechat.tui.widgets.readouts import MUTED
from eaglechat.wire.drafters import DrafterKind
from eaglechat.words import drafting, wording
from eaglechat.words.removal import consequences, what_goes

_NEWER = ("newer on the Hub · ", "$text-accent")
"""Before a name: behind it there may be no room."""


class LibraryScreen(ListDialog[Pair, LocalModel | InspectedPair]):
    """Dismisses with a pair to load, or None. Typing filters."""

    HEADING = "Models on this machine"
    KEYS = "{list.choose} loads, {menu.drafts} drafts, {library.newer} newer, {list.remove} deletes"
    SAYS = "Scanning the folders…"
    BINDINGS = bindings_of("library")

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services
        self._models: list[LocalModel] | None = None
        self._chosen_target: LocalModel | None = None
        self._rows: list[tuple[LocalModel, Content]] = []
        self._newer: set[str] | None = None
        """Names of models that are newer on the Hub; None before it was asked."""
        self._drafts: list[LocalModel] = []
        self._known_pairs: list[Pair] = []
        self._pairs: list[InspectedPair] = []

    def on_mount(self) -> None:
        self._scan()

    # In the background

    def _scan(self) -> None:
        desk, folders = self._services.desk, self._services.settings.current.library.folders

        def scan() -> None:
            from eaglechat.hub.local.installed import converted_checkpoints

            catalogue = desk.catalogue()[0]
            pairs = [offer.pair for offer in catalogue if offer.pair is not None]
            converted = converted_checkpoints(catalogue)
            models = desk.models(folders)
            drafts = [one for one in (*models, built_in_draft()) if one.kind is ModelKind.DRAFT]
            rows = [
                (one, _row(one, drafters_of(one, drafts), one.path in converted)) for one in models
            ]
            self.later(self._take_models, models, drafts, rows, pairs)

        self.in_background(scan)

    def _take_models(
        self,
        models: list[LocalModel],
        drafts: list[LocalModel],
        rows: list[tuple[LocalModel, Content]],
        pairs: list[Pair],
    ) -> None:
        self._models, self._drafts, self._rows = models, drafts, rows
        self._known_pairs = [*pairs, *self._services.pairs.pairs()]
        self._list_anew()

    def _take_pairs(self, target: LocalModel, pairs: list[InspectedPair]) -> None:
        """The chosen target with each draft that fits it, and alone."""
        if target is not self._chosen_target:
            return  # Another was chosen meanwhile.
        if len(pairs) == 1:
            self.dismiss(pairs[0].pair)
            return
        self._pairs = pairs
        self.words.clear()
        self._list_anew()

    def _plan_removal(self, model: LocalModel) -> None:
        def plan() -> tuple[Removal, list[str]]:
            planned = plan_removal([model])
            n_chats = self._services.chats.count_with(planned.takes)
            return planned, consequences(planned, self._known_pairs, n_chats)

        def confirm(found: tuple[Removal, list[str]]) -> None:
            planned, said = found
            frees = f"This frees {format_bytes(planned.freed_bytes)}."
            text = "\n".join([frees, *said, "", *what_goes(planned)])
            question = Ask("Delete this model?", text, "deletes it")
            self.open(question, lambda _yes: self._delete(model, planned))

        def fail(error: Exception) -> None:
            self.open(Ask(f"{model.name} stays", wording.sentence(wording.why(error))))

        self.in_background(plan, confirm, fail)

    def _delete(self, model: LocalModel, planned: Removal) -> None:
        def deleted(freed: int) -> None:
            self.notify(f"{model.name} is deleted; {format_bytes(freed)} freed.")
            self._after_deleting()

        def fail(error: Exception) -> None:
            what = getattr(error, "filename", None) or model.name
            self.notify(f"{what} cannot be deleted: {wording.why(error)}.", severity="error")
            self._after_deleting()

        self.in_background(lambda: remove(planned), deleted, fail)

    def _after_deleting(self) -> None:
        self._services.models_changed.publish(None)
        self._scan()

    # The list: models, or what a chosen target can be paired with

    @on(Input.Changed)
    def _list_anew(self) -> None:
        if self._models is None:
            return
        rows: list[tuple[LocalModel | InspectedPair, Content]]
        rows = [(pair, _pair_row(pair)) for pair in self._pairs] or [
            (model, Content.assemble(_NEWER, row) if self._is_newer(model) else row)
            for model, row in self._rows
        ]
        self.fill(self.fitting(rows), self.highlighted)
        self.say(self._heading())

    def _heading(self) -> str:
        if self._pairs:
            return f"Which draft? These fit {self._pairs[-1].pair.name}."
        if not self._models:
            return f"{none_here()} The menu downloads pairs."
        total = format_bytes(sum(model.disk_bytes for model in self._models))
        said = f"{wording.plural(len(self._models), 'model')}, {total} in all"
        if self._newer is None:
            return said
        return f"{said}; {len(self._newer) or 'none'} newer on the Hub"

    # What the keys do

    @property
    def _model(self) -> LocalModel | None:
        """The highlighted one."""
        return self.highlighted if isinstance(self.highlighted, LocalModel) else None

    def choose(self, thing: LocalModel | InspectedPair | None) -> None:
        if isinstance(thing, InspectedPair):
            self.dismiss(thing.pair)
        elif thing is not None:
            self._choose_model(thing)

    def _choose_model(self, model: LocalModel) -> None:
        if model.is_target:
            self._chosen_target = model
            self.say(f"Looking for drafts that fit {model.name}…")
            may_draft = [*self._drafts, *draft_models(model, self._models or ())]
            self.in_background(lambda: _fitting(model, may_draft), partial(self._take_pairs, model))
        elif model.kind is ModelKind.DRAFT:
            self.say("A draft runs together with its target: choose the target.", bad=True)
        else:
            self.say(
                model.problem or "A checkpoint: install its pair from the menu to convert it.",
                bad=True,
            )

    def action_drafts(self) -> None:
        from eaglechat.tui.screens.hub.search import SearchScreen

        model = self._model
        if model is None:
            return
        if model.is_target:
            self.open(SearchScreen(self._services, of=model.path), self.dismiss)
        else:
            self.say(f"{model.name} takes no drafts.", bad=True)

    def _is_newer(self, model: LocalModel) -> bool:
        return model.name in (self._newer or ())

    def action_newer(self) -> None:
        """Ask the Hub which models are newer there, or get the highlighted one of them."""
        desk, model, models = self._services.desk, self._model, self._models or []
        if not any(one.source is Source.HUGGING_FACE for one in models):
            self.say("None of these models is from the Hub.", bad=True)
        elif model is not None and self._is_newer(model):
            self.say(f"Asking the Hub for {model.name}…")

            def get() -> None:
                from eaglechat.hub.downloads import newer

                desk.queue().fetch(model.name, newer.files(desk.hub, model))

            self.in_background(get, lambda _: self._show_downloads(), self._fail)
        else:
            self.say("Asking the Hub which models it has newer versions of…")

            def ask() -> set[str]:
                from eaglechat.hub.downloads import newer

                return newer.newer(desk.hub, models)

            self.in_background(ask, self._take_newer, self._fail)

    def _fail(self, error: Exception) -> None:
        self.say(str(error), bad=True)

    def _take_newer(self, newer: set[str]) -> None:
        self._newer = newer
        self._list_anew()

    def _show_downloads(self) -> None:
        from eaglechat.tui.screens.hub.downloads import DownloadsScreen

        self.open(DownloadsScreen(self._services), self.dismiss)

    def action_remove(self) -> None:
        if self._model is not None:
            self._plan_removal(self._model)

    def action_back(self) -> None:
        if self._pairs:
            self._pairs = []
            self._list_anew()
        else:
            self.dismiss(None)


def _fitting(target: LocalModel, drafts: Sequence[LocalModel]) -> list[InspectedPair]:
    """The target with each of the drafts that fits it, and alone."""
    pairs = [inspect(pair_of_models(target, draft)) for draft in drafts]
    alone = InspectedPair(pair_of_models(target), target.header, None, None)
    return [*(pair for pair in pairs if pair.problem is None), alone]


def _row(model: LocalModel, drafters: Sequence[DrafterKind], is_converted: bool) -> Content:
    header = model.header
    what = f"{header.architecture} {header.quantization}" if header else ""
    badge = drafting.of_model(model, drafters)
    size = format_bytes(model.size_bytes) if model.size_bytes else ""
    facts = [model.kind.value, badge, what, size, model.source.value]
    facts += [f"also {other.name}" for other in model.also]
    facts.append("converted: no longer needed" if is_converted else "")
    facts.append("" if model.is_target else model.problem or "")
    return Content.assemble((model.name, "bold"), "\n  ", (" · ".join(filter(None, facts)), MUTED))


def _pair_row(status: InspectedPair) -> Content:
    badge, draft = drafting.badge(status.drafters), status.pair.draft
    if draft is None:
        drafts = f"drafted by its {badge}" if status.drafters else "plain decoding"
        return Content.assemble(("without a draft", "bold"), "\n  ", (drafts, MUTED))
    about = f"{badge} · {draft.parent}"
    return Content.assemble((draft.name, "bold"), "\n  ", (about, MUTED))
