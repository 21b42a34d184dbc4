"""Progress of downloads on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

from eaglechat.hub.downloads.download import Phase
from eaglechat.hub.downloads.queue import FileSnapshot, QueueSnapshot, State
from eaglechat.hub.units import format_bytes, format_seconds

_BAR = 16
_STEP_PERCENT = 10


class ProgressPrinter:
    """Shows snapshots of a queue as they come."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bars = self._stream.isatty()
        self._drawn = 0
        self._said: dict[int, str] = {}

    def show(self, snapshot: QueueSnapshot) -> None:
        if self._bars:
            self._draw([_bar(file) for file in snapshot.files] + _total(snapshot))
        else:
            for file in snapshot.files:
                self._say(file)

    def stage(self, text: str, done: int, total: int) -> None:
        """A step of another kind, such as a conversion."""
        percent = 100 * done // max(total, 1)
        if self._bars:
            self._draw([(text, _meter(done, total))])
        elif self._said.get(-1) != f"{text} {percent // _STEP_PERCENT}":
            self._said[-1] = f"{text} {percent // _STEP_PERCENT}"
            print(f"{text}: {percent}%", file=self._stream, flush=True)

    def close(self) -> None:
        """Leave what was drawn last; what is printed next begins below it."""
        self._drawn = 0

    def _draw(self, lines: list[tuple[str, str]]) -> None:
        """Draw names with what there is to say of each, over what was drawn before."""
        width = shutil.get_terminal_size().columns - 1
        longest = max((len(name) for name, _ in lines), default=0)
        room = min(longest, max(width - 2 - max((len(text) for _, text in lines), default=0), 12))
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        drawn = "".join(
            f"\r{f'{_elided(name, room):{room}}  {text}'[:width]}\x1b[K\n" for name, text in lines
        )
        self._stream.write(up + drawn)
        self._stream.flush()
        self._drawn = max(self._drawn, len(lines))

    def _say(self, file: FileSnapshot) -> None:
        """A line where something changed: a tenth more, a note, the end."""
        text = _status(file, tenths=True)
        if self._said.get(file.job) != text:
            self._said[file.job] = text
            print(f"{file.request.path}: {text}", file=self._stream, flush=True)


def _elided(name: str, room: int) -> str:
    return name if len(name) <= room else f"{name[: room - 3]}..."


def _bar(file: FileSnapshot) -> tuple[str, str]:
    name = file.request.path.rpartition("/")[2]
    if file.state is not State.RUNNING or file.phase is not Phase.DOWNLOADING:
        return name, _status(file, tenths=False)
    meter = _meter(file.bytes_done, file.bytes_total)
    return name, meter + _pace(file.speed, file.eta)


def _total(snapshot: QueueSnapshot) -> list[tuple[str, str]]:
    if len(snapshot.files) < 2:
        return []
    meter = _meter(snapshot.bytes_done, snapshot.bytes_total)
    return [("total", meter + _pace(snapshot.speed, snapshot.eta))]


def _pace(speed: float | None, eta: float | None) -> str:
    pace = f"  {format_bytes(speed)}/s" if speed is not None else ""
    return pace + (f"  {format_seconds(eta)} left" if eta is not None else "")


def _meter(done: int, total: int | None) -> str:
    if not total:
        return format_bytes(done)
    filled = _BAR * done // total
    bar = "#" * filled + "-" * (_BAR - filled)
    return f"[{bar}] {100 * done // total:3}%  {format_bytes(done)} of {format_bytes(total)}"


def _status(file: FileSnapshot, *, tenths: bool) -> str:
    if file.state is State.DONE:
        return f"done, {format_bytes(file.bytes_total or 0)}"
    if file.state is State.FAILED:
        return f"failed: {file.error}"
    if file.state is not State.RUNNING:
        return str(file.state.value)
    if file.note:
        return file.note
    if file.phase is not Phase.DOWNLOADING or not file.bytes_total:
        return str(file.phase.value)
    percent = 100 * file.bytes_done // file.bytes_total
    if tenths:
        percent -= percent % _STEP_PERCENT
    return f"{percent}% of {format_bytes(file.bytes_total)}"
