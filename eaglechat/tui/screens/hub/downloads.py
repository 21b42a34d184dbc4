"""Downloads: progress, speed and time left; pause, resume, cancel; load what is installed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.content import Content

from eaglechat.hub.local.pairs import Pair
from eaglechat.hub.units import format_bytes, format_seconds
from eaglechat.tui.commands.keys import ENTER, bindings_of, key_of
from eaglechat.tui.screens.dialogs import ListDialog
from eaglechat.tui.services.services import Services
from eaglechat.tui.themes import MUTED, Part
from eaglechat.tui.widgets.filter import Row
from eaglechat.words import wording
from eaglechat.words.bars import bar

if TYPE_CHECKING:
    # At run time these would bring the converter's code, for which the screen would wait.
    from eaglechat.hub.downloads.download import FileSnapshot
    from eaglechat.hub.downloads.queue import Install

_STYLES = {
    "downloading": "$primary",
    "converting": "$secondary",
    "paused": "$text-warning",
    "installed": "$text-success",
    "failed": "$text-error",
}
"""By the stage of an installation."""


class DownloadsScreen(ListDialog[Pair, str]):
    """Dismisses with a pair to load, or None. Downloads go on when it is closed.

    The pair named `loads` is loaded as soon as it is installed, if the screen is still open.
    """

    HEADING = "Downloads"
    KEYS = (
        "{downloads.pause} pauses or resumes, {list.remove} cancels, "
        f"{ENTER} loads, {{dialog.back}} back"
    )
    PLACEHOLDER = ""
    DEFAULT_CLASSES = "-short"
    BINDINGS = bindings_of("downloads")

    def __init__(self, services: Services, loads: str = "") -> None:
        super().__init__()
        self._services = services
        self._loads = loads
        self._shown: dict[str, Install] = {}

    def on_mount(self) -> None:
        self.set_interval(1 / 8, self._draw)
        self._draw()

    # Drawing

    def _draw(self) -> None:
        before = self._shown
        self._shown = {install.name: install for install in self._services.desk.snapshots()}
        rows = {name: Row(partial(_row, one), height=None) for name, one in self._shown.items()}
        if tuple(rows) != self.things:
            self.fill(rows.items(), self.highlighted)
        for place, (name, install) in enumerate(self._shown.items()):
            if install != before.get(name):
                self.rows.replace_option_prompt_at_index(place, rows[name])
        awaited = self._shown.get(self._loads)
        if awaited is not None and awaited.pair is not None and self.is_on_top:
            self.dismiss(awaited.pair)
        self.rows.display = bool(rows)
        none = "No downloads in progress. Choose a pair in the menu to download it."
        self.say("" if rows else none)

    @property
    def _chosen(self) -> Install | None:
        return self._shown.get(self.highlighted or "")

    # What the keys do

    def action_pause(self) -> None:
        install, downloads = self._chosen, self._services.desk.downloads
        if install is None or downloads is None:
            self.notify("There is nothing to pause here.")
            return
        if install.stage == "paused":
            downloads.resume(install.name)
        elif install.stage == "downloading":
            downloads.pause(install.name)
        else:
            self.notify("Only a download can be paused.")
        self._draw()

    def action_remove(self) -> None:
        install, downloads = self._chosen, self._services.desk.downloads
        if install is None or downloads is None or install.stage == "installed":
            self.notify("There is nothing to cancel here.")
            return
        downloads.cancel(install.name)
        self.notify(
            f"{install.name} is cancelled. What was downloaded stays in the cache; "
            f"delete it under Models on this machine ({key_of('menu.library')} in the menu)."
        )
        self._draw()

    def choose(self, thing: str | None) -> None:
        install, downloads = self._chosen, self._services.desk.downloads
        if install is not None and install.pair is not None:
            self.dismiss(install.pair)
        elif install is not None and install.stage == "failed" and downloads:
            downloads.resume(install.name)
        elif install is not None and install.stage == "paused":
            self.action_pause()


def _row(install: Install, width: int) -> Content:
    """The lines, of `width` cells: the pair with a bar, then each of its files."""
    stage = install.stage
    style = _STYLES[stage]
    parts: list[Part] = [(install.name, "bold"), (f"  {_state(install)}", style)]
    if stage == "installed":
        return Content.assemble(*parts, *((f"\n  note: {note}", MUTED) for note in install.notes))
    done, total = install.bytes_done, install.bytes_total
    figures = _figures(done, total, _pace(install))
    cells = max(width - 2 - len(figures), 4)
    filled = bar(done / total if total else 0.0, cells)
    parts += ["\n  ", (filled, f"{style} on $foreground 12%"), (figures, MUTED)]
    for file in install.files if stage != "converting" else ():
        name, state = file.remote.path.rpartition("/")[2], file.state
        said = _pace(file) if state == "downloading" else f"{state:>24}"
        figures = _figures(file.bytes_done, file.remote.size, said)
        parts += [f"\n  {wording.fitting(name, cells):<{cells}}", (figures, MUTED)]
        if file.note:
            parts += ["\n    ", (file.note, "$text-warning")]
    if install.error:
        parts += ["\n  ", (install.error, "$text-error")]
    return Content.assemble(*parts)


def _state(install: Install) -> str:
    stage = install.stage
    if stage == "converting":
        return "converting the draft" if install.bytes_total else "looking at the files"
    how = {
        "installed": f" · {ENTER} loads it" if install.pair is not None else "",
        "paused": f" · {key_of('downloads.pause')} resumes",
        "failed": f" · {ENTER} tries again",
    }
    return stage + how.get(stage, "")


def _pace(moving: Install | FileSnapshot) -> str:
    speed = f"{format_bytes(moving.speed)}/s" if moving.speed is not None else ""
    left = f"{format_seconds(moving.eta)} left" if moving.eta is not None else ""
    return f"{speed:>11} {left:>12}"


def _figures(done: int, total: int, said: str) -> str:
    share = done / total if total else 0.0
    return f" {share:4.0%} {f'{format_bytes(done)} of {format_bytes(total)}':>20} {said}"
