"""Downloads in the background, one install after the other; each is paused, resumed, cancelled.

An install is a pair with its conversion, or the files of one model. One thread at a time works on
the first that waits. Whoever shows them asks for snapshots.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

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
from eaglechat.hub.local.pairs import Pair
from eaglechat.wire.errors import EngineError

_SPEED_WINDOW_S = 5.0


Stage = Literal["downloading", "paused", "converting", "installed", "failed"]
"""How far an install is."""


@dataclass(frozen=True)
class Install:
    """How far an install is: of a pair, or of a model, which has no `plan`."""

    name: str
    files: tuple[FileSnapshot, ...]
    plan: Plan | None = None
    stage: Stage = "downloading"
    converted: tuple[int, int] = (0, 0)
    """Bytes of the draft that are written, and all; none while the files are looked at."""
    error: str | None = None
    pair: Pair | None = None
    """Set once a pair is installed."""
    notes: tuple[str, ...] = ()
    """What the conversion did not take literally."""

    @property
    def bytes_done(self) -> int:
        """Of the files or, while converting, of the draft."""
        if self.stage == "converting":
            return self.converted[0]
        return sum(file.bytes_done for file in self.files)

    @property
    def bytes_total(self) -> int:
        if self.stage == "converting":
            return self.converted[1]
        return sum(file.remote.size for file in self.files)

    @property
    def speed(self) -> float | None:
        """Bytes per second; None while nothing is downloaded."""
        speeds = [file.speed for file in self.files if file.speed is not None]
        return sum(speeds) if speeds else None

    @property
    def eta(self) -> float | None:
        """Seconds that are left."""
        return (self.bytes_total - self.bytes_done) / self.speed if self.speed else None

    def moved(self, stage: Stage, error: str | None = None) -> Install:
        """In another stage; so are the files that are not here, or no longer."""
        files = list(self.files)
        for place, file in enumerate(files):
            if file.path is None or not file.path.exists():
                state: FileState = "queued"
                if stage == "paused" or (stage == "failed" and file.state != "queued"):
                    state = stage
                done = 0 if file.path else file.bytes_done
                files[place] = FileSnapshot(file.remote, state, done)
        return replace(self, stage=stage, error=error, files=tuple(files))


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
        self._installs: dict[str, Install] = {}
        self._stops: dict[str, StopSignal] = {}
        """Of the thread that works on each, or did last: what is stopped changes nothing more."""
        self._is_working = False
        self._changed = threading.Condition(threading.RLock())

    def install(self, plan: Plan) -> None:
        """Download a pair, and convert its draft if necessary. Raises HubError."""
        name = plan.entry.name
        with self._changed:
            current = self._installs.get(name)
            if current is not None and current.pair is None:
                self.resume(name)
                return
            installing.check_disk(plan, self.hub.cache_dir)
            self.fetch(name, plan.files, plan)

    def fetch(self, name: str, wanted: Iterable[RemoteFile], plan: Plan | None = None) -> None:
        """Download the files of a model, or those of a pair's plan."""
        with self._changed:
            self._stop(name)
            self._installs[name] = Install(name, tuple(map(FileSnapshot, wanted)), plan)
            self._start_next()

    def pause(self, name: str) -> None:
        with self._changed:
            if self._installs[name].stage in ("downloading", "converting"):
                self._stop(name)
                self._installs[name] = self._installs[name].moved("paused")
            self._changed.notify_all()

    def resume(self, name: str) -> None:
        """Go on with an install that is paused or has failed."""
        with self._changed:
            if self._installs[name].stage in ("paused", "failed"):
                self._installs[name] = self._installs[name].moved("downloading")
            self._start_next()

    def cancel(self, name: str) -> None:
        """Stop an install and forget it. What was downloaded stays, for a later download."""
        with self._changed:
            self._stop(name)
            del self._installs[name]
            self._changed.notify_all()

    def close(self) -> None:
        """Stop everything at the end of the program. What was downloaded stays."""
        with self._changed:
            for name in self._installs:
                self._stop(name)
            self._installs.clear()
            self._changed.notify_all()

    def snapshots(self) -> list[Install]:
        """The installs in the order they were started, without those cancelled."""
        with self._changed:
            return list(self._installs.values())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every install has ended or is paused; False on a timeout."""

        def is_settled() -> bool:
            stages = {install.stage for install in self._installs.values()}
            return not stages & {"downloading", "converting"}

        with self._changed:
            return self._changed.wait_for(is_settled, timeout)

    def _stop(self, name: str) -> None:
        if name in self._stops:
            self._stops[name].set()

    def _start_next(self) -> None:
        waits = (one for one in self._installs.values() if one.stage == "downloading")
        if not self._is_working and (install := next(waits, None)) is not None:
            self._is_working, stop = True, StopSignal()
            self._stops[install.name] = stop
            threading.Thread(target=self._work, args=(install, stop), daemon=True).start()
        self._changed.notify_all()

    def _note(self, name: str, stop: StopSignal, **changes: Any) -> None:
        """Raises StoppedError."""
        with self._changed:
            stop.check()
            self._installs[name] = replace(self._installs[name], **changes)

    def _work(self, install: Install, stop: StopSignal) -> None:
        """Bring an install to its end, or to where it is stopped."""
        name = install.name
        error: str | None = f"{name} was not installed: eaglechat has a fault there."
        try:
            for index, file in enumerate(install.files):
                if file.path is None:
                    self._fetch(name, index, file, stop)
            if install.plan is not None:
                self._finish(name, install.plan, stop)
            error = None
        except StoppedError:
            pass
        except HubError as failure:
            error = str(failure)
        except OSError as failure:
            error = f"{name} cannot be written: {failure.strerror or failure}."
        except EngineError as failure:
            error = f"The draft of {name} cannot be converted: {failure}."
        finally:
            with self._changed:
                self._is_working = False
                if not stop.is_set():
                    stage: Stage = "failed" if error else "installed"
                    self._installs[name] = self._installs[name].moved(stage, error)
                self._start_next()

    def _fetch(self, name: str, index: int, file: FileSnapshot, stop: StopSignal) -> None:
        meter = SpeedMeter()

        def show(now: FileSnapshot) -> None:
            if now.state == "downloading":
                now = replace(now, speed=meter.speed(self._clock(), now.bytes_done))
            with self._changed:
                stop.check()
                files = self._installs[name].files
                self._note(name, stop, files=(*files[:index], now, *files[index + 1 :]))

        path = download(self.hub, file.remote, on_progress=show, stop=stop, policy=self._policy)
        show(FileSnapshot(file.remote, "done", file.remote.size, path=path))

    def _finish(self, name: str, plan: Plan, stop: StopSignal) -> None:
        def on_progress(done: int, total: int) -> None:
            self._note(name, stop, converted=(done, total))

        self._note(name, stop, stage="converting", converted=(0, 0))
        pair, notes = installing.finish(plan, self.hub.cache_dir, on_progress=on_progress)
        self._note(name, stop, pair=pair, notes=notes)
