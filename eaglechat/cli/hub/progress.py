"""The progress of an install: its files, then its conversion."""

from __future__ import annotations

from eaglechat.cli.progress import Progress
from eaglechat.hub.downloads.download import FileSnapshot, FileState
from eaglechat.hub.downloads.queue import Install, Stage
from eaglechat.hub.units import format_bytes, format_seconds


def show_install(progress: Progress, install: Install) -> None:
    if install.stage is Stage.CONVERTING:
        show_bytes(progress, install.step, install.bytes_done, install.bytes_total)
        return
    for file in install.files:
        name = file.remote.path.rpartition("/")[2]
        state = file.note or str(file.state.value)
        progress.show(
            name, file.bytes_done, file.remote.size, _figures(file), key=file.remote, state=state
        )
    if progress.live and len(install.files) > 1:
        done, total = install.bytes_done, install.bytes_total
        figures = _amount(done, total) + _pace(install.speed, install.eta)
        progress.show("total", done, total, figures)


def show_bytes(progress: Progress, name: str, done: int, total: int) -> None:
    """Show a task in bytes; without a total it takes a while."""
    progress.show(name, done, total or None, _amount(done, total) if total else "")


def _figures(file: FileSnapshot) -> str:
    if file.state is FileState.DOWNLOADING and not file.note:
        return _amount(file.bytes_done, file.remote.size) + _pace(file.speed, file.eta)
    if file.state is FileState.DONE:
        return f"done, {format_bytes(file.remote.size)}"
    return file.note or str(file.state.value)


def _amount(done: int, total: int) -> str:
    return f"{format_bytes(done)} of {format_bytes(total)}" if total else format_bytes(done)


def _pace(speed: float | None, eta: float | None) -> str:
    pace = f"  {format_bytes(speed)}/s" if speed is not None else ""
    return pace + (f"  {format_seconds(eta)} left" if eta is not None else "")
