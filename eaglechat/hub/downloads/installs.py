"""Pairs on their way onto this machine: their files in the queue, then the conversion.

Threads do the work; whoever shows it asks for snapshots, as often as it paints.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from enum import Enum

from eaglechat.hub.catalogue.entries import Entry
from eaglechat.hub.downloads import install, queue
from eaglechat.hub.downloads.install import Plan
from eaglechat.hub.downloads.queue import FileSnapshot, Queue
from eaglechat.hub.downloads.stop import StoppedError
from eaglechat.hub.errors import HubError
from eaglechat.hub.local import journal
from eaglechat.hub.local.installed import DEFAULT_DRAFT_TYPE
from eaglechat.hub.local.pair import Pair


class Stage(str, Enum):
    """Where the installation of a pair is."""

    DOWNLOADING = "downloading"
    PAUSED = "paused"
    CONVERTING = "converting"
    INSTALLED = "installed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class InstallSnapshot:
    """One pair; the bytes are of its stage, `speed` and `eta` are known while it moves."""

    entry: Entry
    stage: Stage
    files: tuple[FileSnapshot, ...]
    bytes_done: int
    bytes_total: int
    speed: float | None = None
    eta: float | None = None
    step: str = ""
    error: str | None = None
    pair: Pair | None = None


@dataclass
class _Install:
    plan: Plan
    jobs: list[int]
    poke: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False
    paused: bool = False
    """By the user; a file that another pair waits for comes all the same."""
    converting: tuple[str, int, int] | None = None
    error: str | None = None
    pair: Pair | None = None


class Installs:
    """Every method may be called from any thread and returns at once."""

    def __init__(self, downloads: Queue, draft_type: str = DEFAULT_DRAFT_TYPE) -> None:
        self._queue = downloads
        self._draft_type = draft_type
        self._installs: dict[str, _Install] = {}
        self._lock = threading.Lock()
        self._one_conversion = threading.Lock()

    def start(self, plan: Plan) -> None:
        """Download a pair, and convert its draft if need be. Raises DiskFullError."""
        name = plan.entry.name
        with self._lock:
            running = self._installs.get(name)
            if running is not None and not running.cancelled and running.pair is None:
                self._go_on(running)
                return
            self._installs[name] = started = _Install(plan, install.start(self._queue, plan))
        self._work_on(started)

    def pause(self, name: str) -> None:
        self._installs[name].paused = True
        for job in self._own_jobs(name):
            self._queue.pause(job)

    def resume(self, name: str) -> None:
        """Go on with a pair that is paused or has failed."""
        with self._lock:
            self._go_on(self._installs[name])

    def cancel(self, name: str) -> None:
        """Stop at once. What has arrived stays: a later download goes on from it."""
        self._stop(name)
        journal.end(name)

    def close(self) -> None:
        """Stop everything, for the end of the program; the next one is offered to go on."""
        for name in list(self._installs):
            self._stop(name)

    def snapshots(self) -> list[InstallSnapshot]:
        """The pairs in the order they were started, those that were cancelled left out."""
        with self._lock:
            wanted = [one for one in self._installs.values() if not one.cancelled]
        # The queue is asked last: it then knows the files of every pair listed here.
        files = {file.job: file for file in self._queue.snapshot().files}
        return [_describe(one, [files[job] for job in one.jobs]) for one in wanted]

    def _stop(self, name: str) -> None:
        own = self._own_jobs(name)
        wanted = self._installs[name]
        wanted.cancelled = True
        for job in own:
            self._queue.cancel(job)
        wanted.poke.set()

    def _go_on(self, wanted: _Install) -> None:
        wanted.error, wanted.paused = None, False
        for job in wanted.jobs:
            self._queue.resume(job)
        wanted.poke.set()

    def _own_jobs(self, name: str) -> list[int]:
        """The files of a pair that no other pair on its way waits for."""
        with self._lock:
            others = [
                job
                for other, one in self._installs.items()
                if other != name and not one.cancelled
                for job in one.jobs
            ]
            return [job for job in self._installs[name].jobs if job not in others]

    def _work_on(self, wanted: _Install) -> None:
        name = f"install-{wanted.plan.entry.name}"
        threading.Thread(target=self._work, args=(wanted,), name=name, daemon=True).start()

    def _work(self, wanted: _Install) -> None:
        while not wanted.cancelled and wanted.pair is None:
            self._queue.wait(wanted.jobs)
            if self._all_here(wanted) and not wanted.cancelled:
                self._finish(wanted)
            if wanted.pair is None:
                wanted.poke.wait()
                wanted.poke.clear()

    def _all_here(self, wanted: _Install) -> bool:
        files = self._queue.snapshot().files
        return all(files[job].state is queue.State.DONE for job in wanted.jobs)

    def _finish(self, wanted: _Install) -> None:
        def note(stage: str, done: int, total: int) -> None:
            if wanted.cancelled:
                raise StoppedError
            wanted.converting = (stage, done, total)

        wanted.converting = ("waiting for another conversion", 0, 0)
        try:
            with self._one_conversion:
                cache = self._queue.hub.cache_dir
                wanted.pair = install.finish(wanted.plan, cache, self._draft_type, note)
        except StoppedError:
            pass
        except HubError as error:
            wanted.error = str(error)
        except OSError as error:
            wanted.error = f"The draft cannot be written: {error.strerror or error}."
        except ValueError as error:
            # The converter's refusals: each one sentence about the checkpoint.
            wanted.error = f"The draft cannot be converted: {error}."
        finally:
            wanted.converting = None


def _describe(one: _Install, files: list[FileSnapshot]) -> InstallSnapshot:
    states = {file.state for file in files}
    here = InstallSnapshot(
        entry=one.plan.entry,
        stage=Stage.DOWNLOADING,
        files=tuple(files),
        bytes_done=sum(file.bytes_done for file in files),
        bytes_total=sum(file.bytes_total or 0 for file in files),
    )
    if one.pair is not None:
        return replace(here, stage=Stage.INSTALLED, pair=one.pair)
    if one.converting is not None:
        step, done, total = one.converting
        return replace(here, stage=Stage.CONVERTING, step=step, bytes_done=done, bytes_total=total)
    errors = [error for error in (one.error, *(file.error for file in files)) if error]
    moving = states & {queue.State.QUEUED, queue.State.RUNNING}
    if errors and not moving:
        return replace(here, stage=Stage.FAILED, error=errors[0])
    if one.paused and states != {queue.State.DONE}:
        return replace(here, stage=Stage.PAUSED)
    speeds = [file.speed for file in files if file.speed is not None]
    speed = sum(speeds) if speeds else None
    eta = (here.bytes_total - here.bytes_done) / speed if speed else None
    return replace(here, speed=speed, eta=eta)
