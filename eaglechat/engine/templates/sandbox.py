"""Renders chat templates in a process of their own, within limits of time and memory.

A template comes with a model file, so it is a stranger's program. In this process some took 8.7 GB
of memory, or 23 s in one call of C that nothing could end. Here they cost the renderer's process,
never the one that holds the models; the next rendering starts another in a tenth of a second.
"""

from __future__ import annotations

import atexit
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

import msgspec

from eaglechat.engine.templates import renderer
from eaglechat.engine.templates.renderer import Outcome, Task
from eaglechat.wire.errors import PromptError

DEADLINE_S = 5.0
"""A long chat takes milliseconds."""
_START_S = 60.0
_POLL_S = 0.02
"""How often a rendering asks whether it was cancelled."""
_decode = msgspec.json.Decoder(Outcome).decode


class CancelledError(BaseException):
    """The reply was cancelled while its prompt was rendered.

    Not an Exception: code that tries what a template accepts takes any Exception for a refusal.
    """


@dataclass
class _Limits:
    seconds: float
    left: float
    cancelled: Callable[[], bool]


class Template:
    """A chat template."""

    def __init__(self, source: str) -> None:
        """Raises PromptError if it cannot be compiled."""
        self._source = source
        self._limits: _Limits | None = None
        self._ask(None)

    def render(self, **variables: Any) -> str:
        """The rendered text.

        Raises PromptError, with a sentence about the template; CancelledError.
        """
        return self._ask(variables)

    @contextmanager
    def limits(
        self, cancelled: Callable[[], bool] = lambda: False, deadline_s: float | None = None
    ) -> Iterator[None]:
        """All renderings inside share one deadline, and end once `cancelled` says so."""
        outer = self._limits
        self._limits = outer or _limits(cancelled, deadline_s)
        try:
            yield
        finally:
            self._limits = outer

    def _ask(self, variables: dict[str, Any] | None) -> str:
        return _the_renderer.ask(Task(self._source, variables), self._limits or _limits())


def _limits(
    cancelled: Callable[[], bool] = lambda: False, deadline_s: float | None = None
) -> _Limits:
    seconds = deadline_s or DEADLINE_S
    return _Limits(seconds, seconds, cancelled)


class _Renderer:
    """The process that runs `renderer.py`: started when it is needed, and again after its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread()

    def start(self) -> None:
        """Start the process if it does not run, without waiting for it. Raises PromptError."""
        with self._lock:
            self._start()

    def stop(self) -> None:
        with self._lock:
            self._end()

    def ask(self, task: Task, limits: _Limits) -> str:
        """Raises PromptError, CancelledError."""
        try:
            line = msgspec.json.encode(task) + b"\n"
        except ValueError as error:  # half of a surrogate pair
            raise PromptError(
                f"the model's chat template refuses this conversation: {error}"
            ) from error
        with self._lock:
            try:
                answer = self._answer(line, limits)
            except BaseException:
                # Its answer to this task must not be taken for that to the next.
                self._end()
                raise
        outcome = _decode(answer)
        if not outcome.is_text:
            raise PromptError(f"the model's chat template {outcome.text}")
        return outcome.text

    def _answer(self, line: bytes, limits: _Limits) -> bytes:
        stdin = self._start()
        if not self._is_ready:
            # The template's own time begins when this is over.
            if not self._wait(_START_S, limits.cancelled):
                raise PromptError("the process that renders chat templates does not start")
            self._is_ready = True
        started = time.monotonic()
        with suppress(OSError):  # the process has ended, and so have its answers
            stdin.write(line)
            stdin.flush()
        answer = self._wait(limits.left, limits.cancelled)
        limits.left -= time.monotonic() - started
        if answer is None:
            raise _stopped(f"it took longer than {limits.seconds:g} s")
        if not answer:
            raise _stopped("the process that renders it ended")
        return answer

    def _wait(self, seconds: float, cancelled: Callable[[], bool]) -> bytes | None:
        """The next line; empty if the process has ended, None after so many seconds."""
        end = time.monotonic() + seconds
        while True:
            if cancelled():
                raise CancelledError
            with suppress(queue.Empty):
                return self._answers.get(timeout=_POLL_S)
            if time.monotonic() > end:
                return None

    def _start(self) -> IO[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", renderer.__name__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    # Out of the terminal's process group: it must not get the terminal's Ctrl+C.
                    start_new_session=True,
                    creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                )
            except (OSError, ValueError) as error:
                raise PromptError(
                    f"cannot start the process that renders chat templates: {error}"
                ) from error
            assert self._process.stdout is not None
            self._is_ready = False
            self._answers = queue.SimpleQueue()
            self._reader = threading.Thread(
                target=_read, args=(self._process.stdout, self._answers), daemon=True
            )
            self._reader.start()
        assert self._process.stdin is not None
        return self._process.stdin

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self._reader.join()
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()


def _read(stream: IO[bytes], answers: queue.SimpleQueue[bytes]) -> None:
    with stream:
        for line in stream:
            answers.put(line)
    answers.put(b"")


def _stopped(why: str) -> PromptError:
    return PromptError(f"the model's chat template was stopped: {why}")


_the_renderer = _Renderer()
atexit.register(_the_renderer.stop)


def prepare() -> None:
    """Start the renderer's process, so that the first rendering need not wait for it.

    Raises PromptError.
    """
    _the_renderer.start()
