"""An installation as lines of text: progress bars, speed and time left."""

from __future__ import annotations

from textual.content import Content

from eaglechat.hub.downloads.download import FileState
from eaglechat.hub.downloads.queue import FileSnapshot, InstallSnapshot, Stage
from eaglechat.hub.units import format_bytes, format_seconds
from eaglechat.tui.commands.registry import ENTER, key_of
from eaglechat.tui.texts.bars import bar
from eaglechat.tui.widgets.readouts import MUTED, Part

_STYLES = {
    Stage.DOWNLOADING: "$primary",
    Stage.CONVERTING: "$secondary",
    Stage.PAUSED: "$text-warning",
    Stage.INSTALLED: "$text-success",
    Stage.FAILED: "$text-error",
}
_NARROWEST_BAR = 6
_NAME = 24


def install_row(install: InstallSnapshot, width: int) -> Content:
    """The lines, of `width` cells: the pair as a whole, then each of its files."""
    style = _STYLES[install.stage]
    parts: list[Part] = [(install.name, "bold"), (f"  {_state(install)}", style)]
    if install.stage is Stage.INSTALLED:
        return Content.assemble(*parts)
    whole = (install.bytes_done, install.bytes_total)
    parts += _meter("total", whole, _pace(install), width, style)
    if install.stage is not Stage.CONVERTING:
        for file in install.files:
            parts += _file(file, width)
    if install.error:
        parts += ["\n  ", (install.error, "$text-error")]
    return Content.assemble(*parts)


def _state(install: InstallSnapshot) -> str:
    if install.stage is Stage.INSTALLED:
        return f"installed · {ENTER} loads it"
    if install.stage is Stage.CONVERTING:
        return f"{install.step} the draft" if install.bytes_total else str(install.step)
    if install.stage is Stage.PAUSED:
        return f"paused · {key_of('downloads.pause')} resumes"
    if install.stage is Stage.FAILED:
        return f"failed · {ENTER} tries again"
    return str(install.stage.value)


def _pace(moving: InstallSnapshot | FileSnapshot) -> str:
    speed = f"{format_bytes(moving.speed)}/s" if moving.speed is not None else ""
    left = f"{format_seconds(moving.eta)} left" if moving.eta is not None else ""
    return f"{speed:>11} {left:>12}"


def _file(file: FileSnapshot, width: int) -> list[Part]:
    name = file.remote.path.rpartition("/")[2]
    if file.state is FileState.DONE:
        said = f"{'done':>24}"
    elif file.state is FileState.DOWNLOADING:
        said = _pace(file)
    else:
        said = f"{file.state.value:>24}"
    lines = _meter(name, (file.bytes_done, file.bytes_total or 0), said, width, MUTED)
    if file.note:
        lines += ["\n    ", (file.note, "$text-warning")]
    return lines


def _meter(name: str, bytes_: tuple[int, int], said: str, width: int, style: str) -> list[Part]:
    """`name ████   45%  1.1 GB of 2.5 GB  said`; the bar takes the room that is left."""
    done, total = bytes_
    share = done / total if total else 0.0
    figures = f" {share:4.0%} {f'{format_bytes(done)} of {format_bytes(total)}':>20} {said}"
    room = width - 2 - len(figures)
    label = min(_NAME, max(room - _NARROWEST_BAR - 1, 8))
    cells = max(room - label - 1, 4)
    shown = name if len(name) <= label else f"{name[: label - 1]}…"
    filled = (bar(share, cells), f"{style} on $foreground 12%")
    return ["\n  ", f"{shown:<{label}} ", filled, (figures, MUTED)]
