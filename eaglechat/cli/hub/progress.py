"""Progress of downloads on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import TextIO

from eaglechat.cli.progress import Bars
from eaglechat.hub.downloads.download import FileState
from eaglechat.hub.downloads.queue import FileSnapshot, InstallSnapshot, Stage
from eaglechat.hub.units import format_bytes, format_seconds

_STEP_PERCENT = 10


class ProgressPrinter:
    """Shows the progress of downloads and conversions on standard error."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bars = Bars(stream)
        self._said: dict[Hashable, str] = {}

    def show(self, snapshot: InstallSnapshot) -> None:
        if snapshot.stage is Stage.CONVERTING:
            self.stage(snapshot.step, snapshot.bytes_done, snapshot.bytes_total)
            return
        for file in snapshot.files:
            if self._bars.live:
                name = file.remote.path.rpartition("/")[2]
                self._bars.draw(
                    file.remote, name, file.bytes_done, file.remote.size, _figures(file)
                )
            else:
                self._say(file.remote, f"{file.remote.path}: {_status(file, tenths=True)}")
        if self._bars.live and len(snapshot.files) > 1:
            done, total = snapshot.bytes_done, snapshot.bytes_total
            figures = _amount(done, total) + _pace(snapshot.speed, snapshot.eta)
            self._bars.draw("total", "total", done, total, figures)

    def stage(self, text: str, done: int, total: int) -> None:
        """Show a step of a conversion, in bytes; without a total it takes a while."""
        if self._bars.live:
            figures = _amount(done, total) if total else ""
            self._bars.draw(text, text, done, total or None, figures)
        elif not total:
            self._say("stage", text)
        else:
            percent = 100 * done // total
            self._say("stage", f"{text}: {percent - percent % _STEP_PERCENT}%")

    def close(self) -> None:
        """Stop drawing; what is printed next begins below the bars."""
        self._bars.close()

    def _say(self, key: Hashable, line: str) -> None:
        """Print a line unless it equals the last one for this key."""
        if self._said.get(key) != line:
            self._said[key] = line
            print(line, file=self._stream, flush=True)


def _figures(file: FileSnapshot) -> str:
    if file.state is not FileState.DOWNLOADING:
        return _status(file, tenths=False)
    return _amount(file.bytes_done, file.remote.size) + _pace(file.speed, file.eta)


def _amount(done: int, total: int) -> str:
    return f"{format_bytes(done)} of {format_bytes(total)}" if total else format_bytes(done)


def _pace(speed: float | None, eta: float | None) -> str:
    pace = f"  {format_bytes(speed)}/s" if speed is not None else ""
    return pace + (f"  {format_seconds(eta)} left" if eta is not None else "")


def _status(file: FileSnapshot, *, tenths: bool) -> str:
    if file.state is FileState.DONE:
        return f"done, {format_bytes(file.remote.size)}"
    if file.note:
        return file.note
    if file.state is not FileState.DOWNLOADING or not file.remote.size:
        return str(file.state.value)
    percent = 100 * file.bytes_done // file.remote.size
    if tenths:
        percent -= percent % _STEP_PERCENT
    return f"{percent}% of {format_bytes(file.remote.size)}"
