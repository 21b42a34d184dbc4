"""Downloads in the background, two files at a time; each install is paused, resumed and cancelled.

An install is a pair with its conversion, or the files of one model. Callers change which installs
are wanted; `_update` then starts and stops the threads. Whoever shows them asks for snapshots.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from eaglechat.hub.downloads import install as installing
from eaglechat.hub.downloads.client import Hub, RemoteFile
from eaglechat.hub.downloads.download import (
    FileProgress,
    FileState,
    RetryPolicy,
    download,
)
from eaglechat.hub.downloads.install import Plan
from eaglechat.hub.downloads.transfer import StoppedError, StopSignal
from eaglechat.hub.errors import HubError
from eaglechat.hub.local.installed import note_ended
from eaglechat.hub.local.pair import Pair

_NOT_BEGUN = FileProgress(FileState.CONNECTING, 0)
_SPEED_WINDOW_S = 5.0
_SIDE_BY_SIDE = 2
"""Files that are downloaded at the same time."""


class Stage(str, Enum):
    """How far an install is."""

    DOWNLOADING = "downloading"
    PAUSED = "paused"
    CONVERTING = "converting"
    INSTALLED = "installed"
    FAILED = "failed"


@dataclass(frozen=True)
class FileSnapshot:
    """One file. `speed` in bytes per second and `eta` in seconds are set while it downloads."""

    remote: RemoteFile
    state: FileState
    bytes_done: int
    speed: float | None
    eta: float | None
    note: str
    path: Path | None
    error: str | None


@dataclass(frozen=True)
class InstallSnapshot:
    """One install. The bytes are of its files or, while converting, of the conversion's `step`.

    `pair` is set once a pair is installed, and `notes` are what its conversion did not take
    literally.
    """

    name: str
    stage: Stage
    files: tuple[FileSnapshot, ...]
    bytes_done: int
    bytes_total: int
    speed: float | None = None
    eta: float | None = None
    step: str = ""
    error: str | None = None
    pair: Pair | None = None
    notes: tuple[str, ...] = ()


class SpeedMeter:
    """Bytes per second over the last _SPEED_WINDOW_S, from a running count of bytes."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, count: int) -> None:
        if self._samples and count < self._samples[-1][1]:
            self._samples.clear()
        self._samples.append((now, count))
        while now - self._samples[0][0] > _SPEED_WINDOW_S:
            self._samples.popleft()

    def speed(self, now: float) -> float | None:
        """None before there are two counts; falls while nothing arrives."""
        samples = [s for s in self._samples if now - s[0] <= _SPEED_WINDOW_S]
        if len(samples) < 2 or now <= samples[0][0]:
            return None
        return (samples[-1][1] - samples[0][1]) / (now - samples[0][0])


@dataclass(eq=False)
class _File:
    """A file that one or more installs want."""

    remote: RemoteFile
    progress: FileProgress = _NOT_BEGUN
    meter: SpeedMeter = field(default_factory=SpeedMeter)
    path: Path | None = None
    error: str | None = None

    def reset_if_ended(self) -> None:
        """Allow another attempt after an error, or if the file was deleted after its download."""
        self.error = None
        if self.path is not None and not self.path.exists():
            self.path = None
            self.progress = _NOT_BEGUN


@dataclass(eq=False)
class _Install:
    name: str
    files: list[_File]
    plan: Plan | None = None
    """None for a model: nothing is to be done after the download."""
    paused: bool = False
    converting: tuple[str, int, int] | None = None
    """Step, bytes done and total, from when all files are there."""
    error: str | None = None
    pair: Pair | None = None
    notes: tuple[str, ...] = ()


class Downloads:
    """The installs of one Hub. Every method may be called from any thread and returns at once."""

    def __init__(
        self,
        hub: Hub,
        *,
        policy: RetryPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hub = hub
        self._policy = policy
        self._clock = clock
        self._installs: dict[str, _Install] = {}
        self._running: dict[_File, StopSignal] = {}
        """The files that a thread downloads. A thread that was stopped may end much later."""
        self._changed = threading.Condition(threading.RLock())
        self._one_conversion = threading.Lock()

    def install(self, plan: Plan) -> None:
        """Download a pair, and convert its draft if necessary. Raises HubError."""
        name = plan.entry.name
        with self._changed:
            current = self._installs.get(name)
            if current is not None and current.pair is None:
                self.resume(name)
                return
            installing.begin(plan, self.hub.cache_dir)
            self.fetch(name, plan.files, plan)

    def fetch(self, name: str, wanted: Iterable[RemoteFile], plan: Plan | None = None) -> None:
        """Download the files of a model, or those of a pair's plan."""
        with self._changed:
            # A file that another install waits for is downloaded once, for both.
            known = [file for install in self._installs.values() for file in install.files]
            waited_for = {file.remote: file for file in known if file.path is None}
            files = [waited_for.get(one) or _File(one) for one in wanted]
            for file in files:
                file.reset_if_ended()
            self._installs[name] = _Install(name, files, plan)
            self._update()

    def pause(self, name: str) -> None:
        """Stop the files of an install that no other install wants."""
        with self._changed:
            self._installs[name].paused = True
            self._update()

    def resume(self, name: str) -> None:
        """Go on with an install that is paused or has failed."""
        with self._changed:
            install = self._installs[name]
            install.paused, install.error = False, None
            for file in install.files:
                file.reset_if_ended()
            self._update()

    def cancel(self, name: str) -> None:
        """Stop an install and forget it. What was downloaded stays, for a later download."""
        with self._changed:
            del self._installs[name]
            self._update()
        note_ended(name)

    def close(self) -> None:
        """Stop everything at the end of the program; the next one offers to resume the pairs."""
        with self._changed:
            self._installs.clear()
            self._update()

    def snapshots(self) -> list[InstallSnapshot]:
        """The installs in the order they were started, without those cancelled."""
        with self._changed:
            return [self._describe(install) for install in self._installs.values()]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every install has ended or is paused; False on a timeout."""

        def is_settled() -> bool:
            stages = {self._describe(install).stage for install in self._installs.values()}
            return not stages & {Stage.DOWNLOADING, Stage.CONVERTING}

        with self._changed:
            return self._changed.wait_for(is_settled, timeout)

    def _wanted(self) -> list[_File]:
        installs = [install for install in self._installs.values() if not install.paused]
        return list(dict.fromkeys(file for install in installs for file in install.files))

    def _update(self) -> None:
        """Stop the threads of files that no install wants, and start what can be started."""
        wanted = self._wanted()
        for file in [file for file in self._running if file not in wanted]:
            file.meter = SpeedMeter()
            self._running.pop(file).stop()
        for file in wanted:
            is_waiting = self._state(file) is FileState.QUEUED
            if is_waiting and len(self._running) < _SIDE_BY_SIDE:
                stop = self._running[file] = StopSignal()
                threading.Thread(target=self._download, args=(file, stop), daemon=True).start()
        for install in self._installs.values():
            ended = install.paused or install.converting or install.error or install.pair
            if install.plan and not ended and all(file.path for file in install.files):
                waits = install.plan.is_converted_last
                step = "waiting for another conversion" if waits else "looking at the files"
                install.converting = (step, 0, 0)
                threading.Thread(target=self._finish, args=(install,), daemon=True).start()
        self._changed.notify_all()

    def _download(self, file: _File, stop: StopSignal) -> None:
        def on_progress(progress: FileProgress) -> None:
            with self._changed:
                if self._running.get(file) is stop:
                    file.progress = progress
                    if progress.state is FileState.DOWNLOADING:
                        file.meter.add(self._clock(), progress.bytes_done)

        def reserved() -> int:
            """Bytes that the other running downloads will still write."""
            with self._changed:
                others = [other for other in self._running if other is not file]
                return sum(other.remote.size - other.progress.bytes_done for other in others)

        path, error = None, "The download ended unexpectedly."
        try:
            path = download(
                self.hub,
                file.remote,
                on_progress=on_progress,
                stop=stop,
                policy=self._policy,
                reserved=reserved,
            )
        except StoppedError:
            pass
        except HubError as failure:
            error = str(failure)
        finally:
            with self._changed:
                if self._running.get(file) is stop:
                    del self._running[file]
                    file.meter = SpeedMeter()
                    file.path, file.error = path, None if path else error
                    if path:
                        file.progress = FileProgress(FileState.DONE, file.remote.size)
                    self._update()

    def _finish(self, install: _Install) -> None:
        def on_progress(step: str, done: int, total: int) -> None:
            if self._installs.get(install.name) is not install:
                raise StoppedError
            install.converting = (step, done, total)

        assert install.plan is not None
        pair, error = None, "The conversion ended unexpectedly."
        notes: tuple[str, ...] = ()
        try:
            with self._one_conversion if install.plan.is_converted_last else nullcontext():
                cache = self.hub.cache_dir
                pair, notes = installing.finish(install.plan, cache, on_progress=on_progress)
        except StoppedError:
            pass
        except HubError as failure:
            error = str(failure)
        except OSError as failure:
            error = f"The draft cannot be written: {failure.strerror or failure}."
        except ValueError as failure:
            # What the converter refuses: a sentence about the checkpoint.
            error = f"The draft cannot be converted: {failure}."
        finally:
            with self._changed:
                install.converting, install.pair, install.notes = None, pair, notes
                install.error = None if pair else error
                self._update()

    def _state(self, file: _File) -> FileState:
        if file.path is not None:
            return FileState.DONE
        if file.error is not None:
            return FileState.FAILED
        if file in self._running:
            return file.progress.state
        return FileState.QUEUED if file in self._wanted() else FileState.PAUSED

    def _describe(self, install: _Install) -> InstallSnapshot:
        files = tuple(self._describe_file(file) for file in install.files)
        done = sum(file.bytes_done for file in files)
        total = sum(file.remote.size for file in files)
        step, error, speed = "", None, None
        ended = {FileState.PAUSED, FileState.DONE, FileState.FAILED}
        errors = [error for error in (install.error, *(file.error for file in files)) if error]
        if install.pair is not None:
            stage = Stage.INSTALLED
        elif install.converting is not None:
            stage = Stage.CONVERTING
            step, done, total = install.converting
        elif errors and all(file.state in ended for file in files):
            stage, error = Stage.FAILED, errors[0]
        elif install.paused:
            stage = Stage.PAUSED
        elif all(file.state is FileState.DONE for file in files):
            stage = Stage.INSTALLED
        else:
            stage = Stage.DOWNLOADING
            speeds = [file.speed for file in files if file.speed is not None]
            speed = sum(speeds) if speeds else None
        eta = _eta(total, done, speed)
        pair, notes = install.pair, install.notes
        return InstallSnapshot(
            install.name, stage, files, done, total, speed, eta, step, error, pair, notes
        )

    def _describe_file(self, file: _File) -> FileSnapshot:
        progress, is_running = file.progress, file in self._running
        speed = file.meter.speed(self._clock()) if is_running else None
        return FileSnapshot(
            remote=file.remote,
            state=self._state(file),
            bytes_done=progress.bytes_done,
            speed=speed,
            eta=_eta(file.remote.size, progress.bytes_done, speed),
            note=progress.note if is_running else "",
            path=file.path,
            error=file.error,
        )


def _eta(total: int, done: int, speed: float | None) -> float | None:
    return (total - done) / speed if speed else None
