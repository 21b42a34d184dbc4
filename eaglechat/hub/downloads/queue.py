"""Downloads in the background, one install after the other; each is paused, resumed, cancelled.

An install is a pair with its conversion, or the files of one model. One thread at a time works on
the first that waits. Whoever shows them asks for snapshots.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from eaglechat.hub.downloads import install as installing
from eaglechat.hub.downloads.client import Hub, RemoteFile
from eaglechat.hub.downloads.download import (
    FileSnapshot,
    FileState,
    RetryPolicy,
    StoppedError,
    StopSignal,
    download,
)
from eaglechat.hub.downloads.install import Plan
from eaglechat.hub.errors import HubError
from eaglechat.hub.local.installed import note_ended
from eaglechat.hub.local.pair import Pair

_SPEED_WINDOW_S = 5.0


class Stage(str, Enum):
    """How far an install is."""

    DOWNLOADING = "downloading"
    PAUSED = "paused"
    CONVERTING = "converting"
    INSTALLED = "installed"
    FAILED = "failed"


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

    def speed(self, now: float, count: int) -> float | None:
        """None before there are two counts; falls while nothing arrives."""
        if self._samples and count < self._samples[-1][1]:
            self._samples.clear()
        self._samples.append((now, count))
        while now - self._samples[0][0] > _SPEED_WINDOW_S:
            self._samples.popleft()
        then, before = self._samples[0]
        return (count - before) / (now - then) if now > then else None


@dataclass(eq=False)
class _Install:
    name: str
    files: list[FileSnapshot]
    plan: Plan | None
    """None for a model: nothing is to be done after the download."""
    stage: Stage = Stage.DOWNLOADING
    stop: StopSignal = field(default_factory=StopSignal)
    """Of the thread that works on it."""
    converted: tuple[str, int, int] = ("", 0, 0)
    """Step, bytes done and total."""
    error: str | None = None
    pair: Pair | None = None
    notes: tuple[str, ...] = ()

    def move(self, stage: Stage, error: str | None = None) -> None:
        """Set the stage, and the state of the files that are not here, or no longer."""
        self.stage, self.error = stage, error
        for index, file in enumerate(self.files):
            if file.path is not None and file.path.exists():
                continue
            state, done = FileState.QUEUED, 0 if file.path else file.bytes_done
            if stage is Stage.PAUSED:
                state = FileState.PAUSED
            elif stage is Stage.FAILED and file.state is not FileState.QUEUED:
                state = FileState.FAILED
            self.files[index] = FileSnapshot(file.remote, state, done)

    def snapshot(self) -> InstallSnapshot:
        files = tuple(self.files)
        step, done, total = "", sum(f.bytes_done for f in files), sum(f.remote.size for f in files)
        if self.stage is Stage.CONVERTING:
            step, done, total = self.converted
        speed = next((file.speed for file in files if file.speed is not None), None)
        return InstallSnapshot(
            self.name, self.stage, files, done, total, speed, _eta(total, done, speed), step,
            self.error, self.pair, self.notes,
        )  # fmt: skip


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
        self._running: _Install | None = None
        self._changed = threading.Condition(threading.RLock())

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
            if name in self._installs:
                self._installs[name].stop.stop()
            self._installs[name] = _Install(name, [FileSnapshot(one) for one in wanted], plan)
            self._start_next()

    def pause(self, name: str) -> None:
        with self._changed:
            install = self._installs[name]
            if install.stage in (Stage.DOWNLOADING, Stage.CONVERTING):
                install.stop.stop()
                install.move(Stage.PAUSED)
            self._changed.notify_all()

    def resume(self, name: str) -> None:
        """Go on with an install that is paused or has failed."""
        with self._changed:
            if self._installs[name].stage in (Stage.PAUSED, Stage.FAILED):
                self._installs[name].move(Stage.DOWNLOADING)
            self._start_next()

    def cancel(self, name: str) -> None:
        """Stop an install and forget it. What was downloaded stays, for a later download."""
        with self._changed:
            self._installs.pop(name).stop.stop()
            self._changed.notify_all()
        note_ended(name)

    def close(self) -> None:
        """Stop everything at the end of the program; the next one offers to resume the pairs."""
        with self._changed:
            for install in self._installs.values():
                install.stop.stop()
            self._installs.clear()
            self._changed.notify_all()

    def snapshots(self) -> list[InstallSnapshot]:
        """The installs in the order they were started, without those cancelled."""
        with self._changed:
            return [install.snapshot() for install in self._installs.values()]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every install has ended or is paused; False on a timeout."""

        def is_settled() -> bool:
            stages = {install.stage for install in self._installs.values()}
            return not stages & {Stage.DOWNLOADING, Stage.CONVERTING}

        with self._changed:
            return self._changed.wait_for(is_settled, timeout)

    def _start_next(self) -> None:
        waits = (one for one in self._installs.values() if one.stage is Stage.DOWNLOADING)
        if self._running is None and (install := next(waits, None)) is not None:
            self._running, install.stop = install, StopSignal()
            threading.Thread(target=self._work, args=(install, install.stop), daemon=True).start()
        self._changed.notify_all()

    def _work(self, install: _Install, stop: StopSignal) -> None:
        """Bring an install to its end, or to where it is stopped."""
        name = install.name
        error: str | None = f"{name} was not installed: eaglechat has a fault there."
        try:
            for index, file in enumerate(install.files):
                if file.path is None:
                    self._fetch(install, index, stop)
            if install.plan is not None:
                self._finish(install, install.plan, stop)
            error = None
        except StoppedError:
            pass
        except HubError as failure:
            error = str(failure)
        except OSError as failure:
            error = f"{name} cannot be written: {failure.strerror or failure}."
        except ValueError as failure:
            # What the converter refuses: a sentence about the checkpoint.
            error = f"The draft of {name} cannot be converted: {failure}."
        finally:
            with self._changed:
                self._running = None
                if not stop.is_stopped:
                    install.move(Stage.FAILED if error else Stage.INSTALLED, error)
                self._start_next()

    def _fetch(self, install: _Install, index: int, stop: StopSignal) -> None:
        file, meter = install.files[index], SpeedMeter()

        def on_progress(progress: FileSnapshot) -> None:
            with self._changed:
                stop.check()
                done, is_moving = progress.bytes_done, progress.state is FileState.DOWNLOADING
                speed = meter.speed(self._clock(), done) if is_moving else None
                eta = _eta(file.remote.size, done, speed)
                install.files[index] = replace(progress, speed=speed, eta=eta)

        path = download(
            self.hub, file.remote, on_progress=on_progress, stop=stop, policy=self._policy
        )
        with self._changed:
            install.files[index] = FileSnapshot(
                file.remote, FileState.DONE, file.remote.size, path=path
            )

    def _finish(self, install: _Install, plan: Plan, stop: StopSignal) -> None:
        def on_progress(step: str, done: int, total: int) -> None:
            stop.check()
            install.converted = (step, done, total)

        with self._changed:
            stop.check()
            install.stage, install.converted = Stage.CONVERTING, ("looking at the files", 0, 0)
        pair, notes = installing.finish(plan, self.hub.cache_dir, on_progress=on_progress)
        with self._changed:
            stop.check()
            install.pair, install.notes = pair, notes


def _eta(total: int, done: int, speed: float | None) -> float | None:
    return (total - done) / speed if speed else None
