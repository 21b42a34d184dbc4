"""The models on this machine: load one, find drafts for it, or delete it."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.content import Content
from textual.widgets import Input

from eaglechat.hub.local.library import (
    built_in_draft,
    drafters_of,
    drafts_for,
    pair_of_models,
)
from eaglechat.hub.local.model import LocalModel, ModelKind, Source
from eaglechat.hub.local.pairs import Pair, none_here
from eaglechat.hub.local.removal import Removal, plan_removal, remove
from eaglechat.hub.units import format_bytes
from eaglechat.tui.commands.keys import bindings_of
from eaglechat.tui.screens.dialogs import Ask, ListDialog
from eaglechat.tui.screens.hub.downloads import DownloadsScreen
from eaglechat.tui.screens.hub.search import DraftsScreen
from eaglechat.tui.services.services import Services
from eaglechat.tui.themes import MUTED
from eaglechat.wire.drafters import DrafterKind
from eaglechat.words import drafting, wording
from eaglechat.words.removal import consequences, what_goes

_NEWER = ("newer on the Hub · ", "$text-accent")
"""Before a name: behind it there may be no room."""


class LibraryScreen(ListDialog[Pair, LocalModel]):
    """Dismisses with a pair to load, or None. Typing filters."""

    HEADING = "Models on this machine"
    KEYS = "{list.choose} loads, {menu.drafts} drafts, {library.newer} newer, {list.remove} deletes"
    SAYS = "Scanning the folders…"
    BINDINGS = bindings_of("library")

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services
        self._known: list[LocalModel] = []
        """The models, and the draft that comes with eaglechat."""
        self._rows: list[tuple[LocalModel, Content]] | None = None
        """The models; None until the folders are scanned."""
        self._newer: set[str] | None = None
        """Names of models that are newer on the Hub; None before it was asked."""

    @property
    def _models(self) -> list[LocalModel]:
        return [model for model, _ in self._rows or ()]

    def on_mount(self) -> None:
        self._scan()

    # In the background

    def _scan(self) -> None:
        desk, folders = self._services.desk, self._services.settings.current.library.folders

        def scan() -> tuple[list[LocalModel], list[tuple[LocalModel, Content]]]:
            from eaglechat.hub.local.installed import converted_checkpoints

            converted = converted_checkpoints(desk.catalogue()[0])
            models = desk.models(folders)
            known = [*models, built_in_draft()]
            drafts = [one for one in known if one.kind is ModelKind.DRAFT]
            return known, [
                (one, _row(one, drafters_of(one, drafts), one.path in converted)) for one in models
            ]

        def take(found: tuple[list[LocalModel], list[tuple[LocalModel, Content]]]) -> None:
            self._known, self._rows = found
            self._list_anew()

        self.in_background(scan, take)

    def action_remove(self) -> None:
        services, recent, model = self._services, self._services.pairs.pairs(), self.highlighted
        if model is None:
            return

        def plan() -> tuple[Removal, list[str]]:
            planned = plan_removal([model])
            n_chats = services.chats.count_with(planned.takes)
            offers = services.desk.catalogue()[0]
            pairs = [*(offer.pair for offer in offers if offer.pair is not None), *recent]
            return planned, consequences(planned, pairs, n_chats)

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

    # The list

    @on(Input.Changed)
    def _list_anew(self) -> None:
        if self._rows is None:
            return
        rows = (
            (model, Content.assemble(_NEWER, row) if model.name in (self._newer or ()) else row)
            for model, row in self._rows
        )
        self.fill(self.fitting(rows), self.highlighted)
        self.say(self._heading())

    def _heading(self) -> str:
        if not self._models:
            return f"{none_here()} The menu downloads pairs."
        total = format_bytes(sum(model.disk_bytes for model in self._models))
        said = f"{wording.plural(len(self._models), 'model')}, {total} in all"
        if self._newer is None:
            return said
        return f"{said}; {len(self._newer) or 'none'} newer on the Hub"

    # What the keys do

    def choose(self, thing: LocalModel | None) -> None:
        if thing is None:
            return
        if thing.kind is ModelKind.DRAFT:
            self.say("A draft runs together with its target: choose the target.", bad=True)
        elif thing.header is None or not thing.is_target:
            checkpoint = "A checkpoint: install its pair from the menu to convert it."
            self.say(thing.problem or checkpoint, bad=True)
        elif any(drafts_for(thing.header, self._known)):
            self._find_drafts(thing, here_only=True)
        else:
            self.dismiss(pair_of_models(thing))

    def _find_drafts(self, target: LocalModel, *, here_only: bool = False) -> None:
        drafts = DraftsScreen(self._services, target.path, here_only=here_only)
        self.open(drafts, self.dismiss)

    def action_drafts(self) -> None:
        model = self.highlighted
        if model is None:
            return
        if model.is_target:
            self._find_drafts(model)
        else:
            self.say(f"{model.name} takes no drafts.", bad=True)

    def action_newer(self) -> None:
        """Ask the Hub which models are newer there, or get the highlighted one of them."""
        desk, model, models = self._services.desk, self.highlighted, self._models
        if not any(one.source is Source.HUGGING_FACE for one in models):
            self.say("None of these models is from the Hub.", bad=True)
        elif model is not None and model.name in (self._newer or ()):
            self.say(f"Asking the Hub for {model.name}…")

            def get() -> None:
                from eaglechat.hub.downloads import newer

                desk.queue().fetch(model.name, newer.files(desk.hub, model))

            self.in_background(
                get, lambda _: self.open(DownloadsScreen(self._services), self.dismiss), self._fail
            )
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
