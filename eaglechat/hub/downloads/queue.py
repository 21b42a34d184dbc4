"""Downloads side by side: two at a time, each of them paused, resumed or cancelled at once.

Jobs run in threads; whoever shows them asks for snapshots, as often as it paints.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field
from enum import Enum
from pathlib import Path

from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.download import (
    FileRequest,
    Phase,
    Progress,
    RetryPolicy,
    download,
)
from eaglechat.hub.downloads.stop import StoppedError, StopSignal
from eaglechat.hub.errors import HubError

_SPEED_WINDOW_S = 5.0


class State(str, Enum):
    """Where a job of the queue is."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENDED = (State.DONE, State.FAILED, State.CANCELLED)


@dataclass(frozen=True)
class FileSnapshot:
    """One file of the queue; `eta` in seconds and `speed` in bytes a second while it moves."""

    job: int
    request: FileRequest
    state: State
    phase: Phase
    bytes_done: int
    bytes_total: int | None
    speed: float | None
    eta: float | None
    note: str
    path: Path | None
    error: str | None


@dataclass(frozen=True)
class QueueSnapshot:
    """All files, and their sum over those that are not cancelled; total None while unknown."""

    files: tuple[FileSnapshot, ...]
    bytes_done: int
    bytes_total: int | None
    speed: float | None
    eta: float | None

    @property
    def active(self) -> bool:
        return any(file.state in (State.QUEUED, State.RUNNING) for file in self.files)


class SpeedMeter:
    """Bytes a second over the last seconds, from a running count."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, count: int) -> None:
        if self._samples and count < self._samples[-1][1]:
            self._samples.clear()
        self._samples.append((now, count))
        while now - self._samples[0][0] > _SPEED_WINDOW_S:
            self._samples.popleft()

    def reset(self) -> None:
        self._samples.clear()

    def speed(self, now: float) -> float | None:
        """None until two counts are known; falls while nothing arrives."""
        samples = [s for s in self._samples if now - s[0] <= _SPEED_WINDOW_S]
        if len(samples) < 2 or now <= samples[0][0]:
            return None
        return (samples[-1][1] - samples[0][1]) / (now - samples[0][0])


@dataclass
class _Job:
    number: int
    request: FileRequest
    state: State = State.QUEUED
    size: InitVar[int | None] = None
    progress: Progress = field(init=False)
    meter: SpeedMeter = field(init=False, default_factory=SpeedMeter)
    path: Path | None = None
    error: str | None = None
    stop: StopSignal | None = None
    """Of the thread that works on the job; one that was told to stop may take a while to notice."""

    def __post_init__(self, size: int | None) -> None:
        self.progress = Progress(Phase.CONNECTING, 0, size)

    def left(self) -> int:
        return (self.progress.bytes_total or 0) - self.progress.bytes_done


class Queue:
    """Downloads from one Hub. Every method may be called from any thread and returns at once."""

    def __init__(
        self,
        hub: Hub,
        *,
        side_by_side: int = 2,
        policy: RetryPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hub = hub
        self._side_by_side = side_by_side
        self._policy = policy or RetryPolicy()
        self._clock = clock
        self._jobs: dict[int, _Job] = {}
        self._changed = threading.Condition(threading.RLock())

    def add(self, request: FileRequest, size: int | None = None) -> int:
        """Queue a file and return its job's number; one that is queued already keeps its number.

        `size` in bytes, where it is known before the Hub is asked.
        """
        with self._changed:
            for job in self._jobs.values():
                if job.request == request and job.state not in _ENDED:
                    return job.number
            job = _Job(len(self._jobs), request, size=size)
            self._jobs[job.number] = job
            self._start_next()
            return job.number

    def pause(self, job: int) -> None:
        self._halt(job, State.PAUSED)

    def cancel(self, job: int) -> None:
        """Stop a job for good. What has arrived stays on disk: a later download goes on from it."""
        self._halt(job, State.CANCELLED)

    def resume(self, job: int) -> None:
        """Queue a paused, failed or cancelled job again, and one whose file has gone since."""
        with self._changed:
            found = self._jobs[job]
            is_here = found.path is not None and found.path.exists()
            if found.state not in (State.QUEUED, State.RUNNING) and not is_here:
                found.state, found.error = State.QUEUED, None
                self._start_next()

    def cancel_all(self) -> None:
        for job in list(self._jobs):
            self.cancel(job)

    def snapshot(self) -> QueueSnapshot:
        with self._changed:
            now = self._clock()
            files = tuple(self._describe(job, now) for job in self._jobs.values())
        wanted = [file for file in files if file.state is not State.CANCELLED]
        totals = [file.bytes_total for file in wanted]
        total = None if None in totals else sum(size or 0 for size in totals)
        done = sum(file.bytes_done for file in wanted)
        speeds = [file.speed for file in wanted if file.speed is not None]
        speed = sum(speeds) if speeds else None
        return QueueSnapshot(files, done, total, speed, _eta(total, done, speed))

    def wait(self, jobs: Iterable[int] | None = None, timeout: float | None = None) -> bool:
        """Wait until jobs (all, if not given) have ended or are paused; False on a timeout."""
        with self._changed:
            wanted = [self._jobs[job] for job in jobs] if jobs is not None else None

            def settled() -> bool:
                waited_for = self._jobs.values() if wanted is None else wanted
                return all(job.state in (*_ENDED, State.PAUSED) for job in waited_for)

            return self._changed.wait_for(settled, timeout)

    def _halt(self, number: int, state: State) -> None:
        with self._changed:
            job = self._jobs[number]
            if job.state in _ENDED or job.state is state:
                return
            job.state = state
            job.meter.reset()
            stop = job.stop
            self._start_next()
            self._changed.notify_all()
        if stop:
            stop.stop()

    def _start_next(self) -> None:
        with self._changed:
            busy = sum(job.state is State.RUNNING for job in self._jobs.values())
            for job in self._jobs.values():
                if busy < self._side_by_side and job.state is State.QUEUED:
                    job.state, job.stop = State.RUNNING, StopSignal()
                    threading.Thread(
                        target=self._run, args=(job, job.stop), name=job.request.name, daemon=True
                    ).start()
                    busy += 1

    def _run(self, job: _Job, stop: StopSignal) -> None:
        path, error = None, None
        try:
            path = download(
                self.hub,
                job.request,
                on_progress=lambda progress: self._note(job, stop, progress),
                stop=stop,
                policy=self._policy,
                reserved=lambda: self._reserved_by_others(job),
            )
        except StoppedError:
            pass
        except HubError as failure:
            error = str(failure)
        finally:
            self._end(job, stop, path, error)

    def _end(self, job: _Job, stop: StopSignal, path: Path | None, error: str | None) -> None:
        with self._changed:
            if job.stop is not stop:
                return
            job.stop = None
            job.meter.reset()
            if path is not None:
                job.state, job.path = State.DONE, path
                size = job.progress.bytes_total or 0
                job.progress = Progress(Phase.DOWNLOADING, size, size)
            elif job.state is State.RUNNING:
                job.state, job.error = State.FAILED, error or "The download ended unexpectedly."
            self._start_next()
            self._changed.notify_all()

    def _note(self, job: _Job, stop: StopSignal, progress: Progress) -> None:
        with self._changed:
            if job.stop is not stop or job.state is not State.RUNNING:
                return
            total = progress.bytes_total or job.progress.bytes_total
            job.progress = Progress(progress.phase, progress.bytes_done, total, progress.note)
            if progress.phase is Phase.DOWNLOADING:
                job.meter.add(self._clock(), progress.bytes_done)

    def _reserved_by_others(self, job: _Job) -> int:
        with self._changed:
            running = [other for other in self._jobs.values() if other.state is State.RUNNING]
            return sum(other.left() for other in running if other is not job)

    def _describe(self, job: _Job, now: float) -> FileSnapshot:
        progress = job.progress
        speed = job.meter.speed(now) if job.state is State.RUNNING else None
        return FileSnapshot(
            job=job.number,
            request=job.request,
            state=job.state,
            phase=progress.phase,
            bytes_done=progress.bytes_done,
            bytes_total=progress.bytes_total,
            speed=speed,
            eta=_eta(progress.bytes_total, progress.bytes_done, speed),
            note=progress.note if job.state is State.RUNNING else "",
            path=job.path,
            error=job.error,
        )


def _eta(total: int | None, done: int, speed: float | None) -> float | None:
    return (total - done) / speed if total is not None and speed else None
