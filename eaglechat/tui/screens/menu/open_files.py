"""Opens a target, with or without a draft, from GGUF files of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Button, DirectoryTree, Input, Static

from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import InspectedPair, inspect, pair_of_files
from eaglechat.paths import expanded
from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.registry import TAB, with_keys
from eaglechat.tui.screens.base import EagleModal, TooSmall, Update
from eaglechat.tui.texts import drafting, wording
from eaglechat.tui.widgets.frame import Frame

_ASK = "Type a path, or choose a file below."


class GGUFTree(DirectoryTree):
    """Directories, and the GGUF files in them."""

    # Terminals disagree about the width of Textual's emoji.
    ICON_NODE = "▸ "
    ICON_NODE_EXPANDED = "▾ "
    ICON_FILE = "  "

    def filter_paths(self, paths: Iterable[Path]) -> Iterable[Path]:
        return [
            path
            for path in paths
            if not path.name.startswith(".") and (path.suffix.lower() == ".gguf" or path.is_dir())
        ]


class OpenFilesScreen(EagleModal[Pair]):
    """Dismisses with a pair that can run, or None."""

    CSS_PATH = "open_files.tcss"

    BINDINGS = bindings_of("open")

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__()
        self._directory = directory or Path.cwd()
        self._for = "target"
        self._status: InspectedPair | None = None

    def compose(self) -> ComposeResult:
        with Frame(classes="dialog", id="open-files") as dialog:
            dialog.border_title = "Open GGUF files"
            dialog.border_subtitle = with_keys(
                f"{TAB} moves, {{open.parent}} parent directory, {{dialog.back}} back"
            )
            with Horizontal(classes="field"):
                yield Static("Target", classes="field-name")
                yield Input(placeholder="the model to chat with (.gguf)", id="target", compact=True)
            with Horizontal(classes="field"):
                yield Static("Draft", classes="field-name")
                yield Input(
                    placeholder="a draft that was made for it, or empty", id="draft", compact=True
                )
            yield Static(_ASK, id="verdict", markup=False)
            yield GGUFTree(self._directory, id="tree")
            with Horizontal(classes="buttons"):
                yield Button("Load", id="load", variant="primary", compact=True, disabled=True)
                yield Button("Back", id="back", compact=True)
        yield TooSmall()

    def on_mount(self) -> None:
        self.query_one("#target").focus()

    def on_descendant_focus(self) -> None:
        if isinstance(self.focused, Input):
            self._for = self.focused.id or "target"

    @on(Input.Changed)
    def _typed(self) -> None:
        self._status = None
        self.query_one("#load", Button).disabled = True
        target, draft = self._path("target"), self._path("draft")
        for path in (target, draft):
            if path is not None and _is_directory(path):
                self.query_one(GGUFTree).path = path
        if target is None:
            self._say(_ASK)
        elif _is_directory(target):
            self._say(f"{target} is a directory: choose a file in it.")
        else:
            pair = pair_of_files(target, draft)
            self.in_background(lambda: self._inspect(pair))

    def _inspect(self, pair: Pair) -> Iterator[Update]:
        yield partial(self._take_status, inspect(pair))

    def _take_status(self, status: InspectedPair) -> None:
        if (status.pair.target, status.pair.draft) != (self._path("target"), self._path("draft")):
            return
        self._status = status
        if status.problem:
            # A path that is being typed leads nowhere yet. One that is too long cannot exist.
            given = filter(None, (status.pair.target, status.pair.draft))
            is_there = all(map(os.path.exists, given))
            self._say(wording.sentence(status.problem), bad=is_there)
        else:
            assert status.target is not None
            self._say(f"Can run here: {drafting.made_of(status.target, status.draft)}")
        self.query_one("#load", Button).disabled = status.problem is not None

    @on(DirectoryTree.FileSelected)
    def _file_chosen(self, event: DirectoryTree.FileSelected) -> None:
        field = self.query_one(f"#{self._for}", Input)
        field.value = str(event.path)
        field.cursor_position = len(field.value)
        if self._for == "target":
            self.query_one("#draft").focus()
        else:
            self.query_one("#load").focus()

    @on(Input.Submitted)
    @on(Button.Pressed, "#load")
    def _load(self) -> None:
        if self._status is not None and self._status.problem is None:
            self.dismiss(self._status.pair)

    @on(Button.Pressed, "#back")
    def _back(self) -> None:
        self.dismiss(None)

    def action_parent(self) -> None:
        tree = self.query_one(GGUFTree)
        tree.path = Path(tree.path).resolve().parent

    def _path(self, field: str) -> Path | None:
        text = self.query_one(f"#{field}", Input).value.strip()
        return expanded(text) if text else None

    def _say(self, text: str, *, bad: bool = False) -> None:
        verdict = self.query_one("#verdict", Static)
        verdict.update(text)
        verdict.set_class(bad, "problem")


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # what is typed may be too long for a name
        return False
