"""The models on this machine: load one, pair it with a draft that fits, or delete it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, OptionList, Static

from eaglechat.hub.local.library import (
    LocalModel,
    Removal,
    drafters_of,
    plan_removal,
    remove,
)
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import InspectedPair, inspect, none_here, pair_of_files
from eaglechat.hub.units import format_bytes
from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.screens.base import EagleModal, TooSmall, Update
from eaglechat.tui.screens.dialogs import ConfirmDialog
from eaglechat.tui.services.services import Services
from eaglechat.tui.texts import drafting, wording
from eaglechat.tui.widgets.filter import Filter
from eaglechat.tui.widgets.readouts import MUTED
from eaglechat.wire.protocol import DrafterKind


class LibraryScreen(EagleModal[Pair]):
    """Dismisses with a pair to load, or None. Typing filters."""

    CSS_PATH = "library.tcss"

    BINDINGS = bindings_of("library")

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services
        self._models: list[LocalModel] | None = None
        self._drafters: list[tuple[DrafterKind, ...]] = []
        self._users: dict[str, list[str]] = {}
        self._pairs: list[InspectedPair] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="library") as dialog:
            dialog.border_title = "Models on this machine"
            dialog.border_subtitle = with_keys(
                "{list.choose} loads, {library.remove} deletes, {dialog.back} back"
            )
            rows = OptionList(id="models", compact=True)
            yield Filter(rows, id="filter")
            yield Static("Scanning the folders…", id="said", markup=False)
            yield rows
            with Horizontal(classes="buttons"):
                yield Button("Load", id="load", variant="primary", compact=True)
                yield Button("Find drafts", id="drafts", compact=True)
                yield Button("Delete…", id="delete", compact=True)
                yield Button("Back", id="back", compact=True)
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one(Filter).focus()
        self._scan()

    # In the background

    def _scan(self) -> None:
        self.in_background(self._scan_folders)

    def _scan_folders(self) -> Iterator[Update]:
        desk = self._services.desk
        users: dict[str, list[str]] = {}
        for entry, status in desk.catalogue()[0]:
            for path in (status.target, status.draft) if status.pair else ():
                users.setdefault(str(path), []).append(entry.name)
        models = desk.models(self._services.settings.current.library.folders)
        drafters = [drafters_of(model, models) for model in models]
        yield partial(self._take_models, models, drafters, users)

    def _take_models(
        self,
        models: list[LocalModel],
        drafters: list[tuple[DrafterKind, ...]],
        users: dict[str, list[str]],
    ) -> None:
        self._models, self._drafters, self._users = models, drafters, users
        self._list_anew()

    def _find_fitting(self, target: LocalModel, drafts: Sequence[LocalModel]) -> Iterator[Update]:
        pairs = [inspect(pair_of_files(target.path, draft.path)) for draft in drafts]
        fitting = [pair for pair in pairs if pair.problem is None]
        alone = pair_of_files(target.path, None)
        yield partial(self._take_pairs, [*fitting, InspectedPair(alone, target.header, None, None)])

    def _take_pairs(self, pairs: list[InspectedPair]) -> None:
        """The chosen target with each draft that fits it, and alone."""
        if len(pairs) == 1:
            self.dismiss(pairs[0].pair)
            return
        self._pairs = pairs
        self.query_one(Filter).clear()
        self._list_anew()

    def _plan_removal(self, model: LocalModel) -> Iterator[Update]:
        try:
            yield partial(self._confirm, model, plan_removal([model]))
        except OSError as error:
            yield partial(self._fail, f"{model.name} cannot be deleted: {error.strerror}.")

    def _confirm(self, model: LocalModel, planned: Removal) -> None:
        users = self._users.get(str(model.path), [])
        used = f"\n\nPairs that need it: {', '.join(users)}." if users else ""
        text = (
            f"{model.name}\n{model.path}\n\nThis frees {format_bytes(planned.freed_bytes)}.{used}"
        )

        def delete(_agreed: bool) -> None:
            self.in_background(lambda: self._delete(model, planned))

        self.open(ConfirmDialog("Delete this model?", text, "Delete"), delete)

    def _delete(self, model: LocalModel, planned: Removal) -> Iterator[Update]:
        try:
            remove(planned)
        except OSError as error:
            yield partial(self._fail, f"{error.filename} cannot be deleted: {error.strerror}.")
        else:
            freed = format_bytes(planned.freed_bytes)
            yield partial(self.notify, f"{model.name} is deleted; {freed} freed.", markup=False)
        yield self._after_deleting

    def _after_deleting(self) -> None:
        self._services.models_changed.publish(None)
        self._scan()

    def _fail(self, sentence: str) -> None:
        self.notify(sentence, severity="error", markup=False)

    # The list: models, or what a chosen target can be paired with

    @on(Input.Changed)
    def _list_anew(self) -> None:
        if self._models is None:
            return
        highlighted = self.query_one("#models", OptionList).highlighted or 0
        rows = list(map(_pair_row, self._pairs)) or list(map(_row, self._models, self._drafters))
        self.query_one(Filter).show(rows, highlight=highlighted)
        self.query_one("#said", Static).update(self._heading())
        self.query_one("#delete").display = not self._pairs

    def _heading(self) -> str:
        if self._pairs:
            return f"Which draft? These fit {self._pairs[0].pair.target.name}."
        if not self._models:
            return f"{none_here()} The menu downloads pairs."
        total = format_bytes(sum(model.size_bytes for model in self._models))
        return f"{wording.plural(len(self._models), 'model')}, {total} in all"

    # What the keys do

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    @on(Button.Pressed, "#load")
    def _choose(self) -> None:
        index = self.query_one(Filter).chosen
        if index is None or self._models is None:
            return
        if self._pairs:
            self.dismiss(self._pairs[index].pair)
            return
        model = self._models[index]
        if model.is_target:
            drafts = [other for other in self._models if other.kind.value == "draft"]
            self._say(f"Looking for drafts that fit {model.name}…")
            self.in_background(lambda: self._find_fitting(model, drafts))
        elif model.kind.value == "draft":
            self._say("A draft runs together with its target: choose the target.", bad=True)
        else:
            self._say(
                model.problem or "A checkpoint: install its pair from the menu to convert it.",
                bad=True,
            )

    @on(Button.Pressed, "#drafts")
    def action_drafts(self) -> None:
        from eaglechat.tui.screens.hub.search import SearchScreen

        index = self.query_one(Filter).chosen
        if index is None or self._models is None or self._pairs:
            return
        model = self._models[index]
        if model.is_target:
            self.open(SearchScreen(self._services, of=model.path), self.dismiss)
        else:
            self._say(f"{model.name} takes no drafts.", bad=True)

    @on(Button.Pressed, "#delete")
    def action_delete(self) -> None:
        index = self.query_one(Filter).chosen
        if index is not None and self._models is not None and not self._pairs:
            model = self._models[index]
            self.in_background(lambda: self._plan_removal(model))

    @on(Button.Pressed, "#back")
    def action_back(self) -> None:
        if self._pairs:
            self._pairs = []
            self._list_anew()
        else:
            self.dismiss(None)

    def _say(self, text: str, *, bad: bool = False) -> None:
        said = self.query_one("#said", Static)
        said.update(text)
        said.set_class(bad, "problem")


def _row(model: LocalModel, drafters: Sequence[DrafterKind]) -> Content:
    header = model.header
    what = f"{header.architecture} {header.quantization}" if header else ""
    badge = drafting.of_model(model, drafters)
    facts = [model.kind.value, badge, what, format_bytes(model.size_bytes), model.source.value]
    problem = None if model.is_target else model.problem
    second = " · ".join(filter(None, facts)) + (f" · {problem}" if problem else "")
    return Content.assemble((model.name, "bold"), "\n  ", (second, MUTED))


def _pair_row(status: InspectedPair) -> Content:
    badge, draft = drafting.badge(status.drafters), status.pair.draft
    if draft is None:
        drafts = f"drafted by its {badge}" if status.drafters else "plain decoding"
        return Content.assemble(("without a draft", "bold"), "\n  ", (drafts, MUTED))
    about = f"{badge} · {draft.parent}"
    return Content.assemble((draft.name, "bold"), "\n  ", (about, MUTED))
