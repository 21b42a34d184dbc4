"""Chat templates are rendered in a process of their own, within limits that the system enforces.

A template comes out of a model file. One that takes all memory or never ends costs that process,
never the one that holds the models: the next rendering starts another, in a tenth of a second.
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
from typing import Any

import msgspec

from eaglechat.engine.templates import renderer
from eaglechat.engine.templates.renderer import MOST_CHARACTERS, MOST_MEMORY, Outcome, Task
from eaglechat.wire.errors import PromptError

DEADLINE_S = 5.0
"""A long chat is rendered in milliseconds."""
_START_S = 60.0
_LOOK_S = 0.02
"""How often it is asked whether a rendering is still wanted."""
_MOST_ANSWERED = 4 * MOST_CHARACTERS + 1024
_decode = msgspec.msgpack.Decoder(Outcome).decode


class TooMuchError(Exception):
    """The template takes too long, or more memory than it may."""


class RefusedError(Exception):
    """The template does not go with what it is given; the text is its reason."""


class CancelledError(BaseException):
    """The reply was cancelled while its prompt was rendered; nothing takes it for an answer."""


@dataclass
class _Limits:
    seconds: float
    end: float
    cancelled: Callable[[], bool]


class Template:
    """A chat template, ready to be rendered within limits."""

    def __init__(self, source: str) -> None:
        """Raises PromptError for one that is no valid Jinja."""
        self._source = source
        self._limits: _Limits | None = None
        try:
            made = self._ask(None)
        except TooMuchError as error:
            raise PromptError(f"the model's chat template cannot be compiled: {error}") from None
        except ValueError as error:  # a text that no file holds
            raise PromptError(f"the model's chat template is not valid text: {error}") from error
        if made.kind == "invalid":
            raise PromptError(f"the model's chat template is not valid Jinja: {made.text}")
        if made.kind != "text":
            raise PromptError(f"the model's chat template cannot be compiled ({made.text})")

    def render(self, **variables: Any) -> str:
        """The text of the template.

        Raises TooMuchError, RefusedError, RecursionError, CancelledError; PromptError where nothing
        can be rendered.
        """
        made = self._ask(variables)
        if made.kind == "recursion":
            raise RecursionError
        if made.kind != "text":
            raise RefusedError(made.text)
        return made.text

    @contextmanager
    def limits(
        self, cancelled: Callable[[], bool] = lambda: False, deadline_s: float | None = None
    ) -> Iterator[None]:
        """What is rendered inside shares one deadline, and ends when it is cancelled."""
        outer = self._limits
        self._limits = outer or _limits(cancelled, deadline_s)
        try:
            yield
        finally:
            self._limits = outer

    def _ask(self, variables: dict[str, Any] | None) -> Outcome:
        return _the_renderer.ask(Task(self._source, variables), self._limits or _limits())


def _limits(
    cancelled: Callable[[], bool] = lambda: False, deadline_s: float | None = None
) -> _Limits:
    seconds = deadline_s or DEADLINE_S
    return _Limits(seconds, time.monotonic() + seconds, cancelled)


class _Process:
    """One run of the program."""

    def __init__(self) -> None:
        """Raises PromptError."""
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", renderer.__name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # It ends with its input, not with the terminal's Ctrl+C.
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except (OSError, ValueError) as error:
            raise PromptError(
                f"cannot start the process that renders chat templates: {error}"
            ) from error
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.is_ready = False
        self._reader = threading.Thread(target=self._read, name="templates", daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def write(self, content: bytes) -> None:
        with suppress(OSError):  # it has ended: there is no answer, and that is said
            self._stdin.write(renderer.frame(content))
            self._stdin.flush()

    def answer(self, timeout: float) -> bytes | None:
        """None where the process has ended. Raises queue.Empty."""
        return self._answers.get(timeout=timeout)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        with suppress(OSError):
            self._stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            while (content := renderer.read_frame(stdout, _MOST_ANSWERED)) is not None:
                self._answers.put(content)
        self._answers.put(None)


class _Renderer:
    """The process, started when it is first needed and again after it was ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def start(self) -> None:
        with self._lock:
            self._started()

    def ask(self, task: Task, limits: _Limits) -> Outcome:
        """Raises TooMuchError, CancelledError, PromptError; ValueError for a text that cannot be
        encoded."""
        content = msgspec.msgpack.encode(task)
        with self._lock:
            process = self._started()
            if not process.is_ready:
                self._wait_for_start(process, limits)
            _look(limits)
            try:
                process.write(content)
                while True:
                    _look(limits)
                    with suppress(queue.Empty):
                        return self._understood(process.answer(_LOOK_S))
            except BaseException:
                # What it still does is of no use, and what it would answer belongs to no question.
                self._end()
                raise

    def stop(self) -> None:
        with self._lock:
            self._end()

    def _started(self) -> _Process:
        if self._process is not None and not self._process.is_running:
            self._end()
        self._process = self._process or _Process()
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def _wait_for_start(self, process: _Process, limits: _Limits) -> None:
        """The template is not to blame for how long that takes: its time begins afterwards."""
        began = time.monotonic()
        while (waited := time.monotonic() - began) < _START_S:
            if limits.cancelled():
                raise CancelledError
            with suppress(queue.Empty):
                process.is_ready = process.answer(_LOOK_S) is not None
                break
        if not process.is_ready:
            self._end()
            raise PromptError("the process that renders chat templates does not start")
        limits.end += waited

    @staticmethod
    def _understood(content: bytes | None) -> Outcome:
        if content is None:
            raise TooMuchError("the process that renders it ended")
        made = _decode(content)
        if made.kind == "memory":
            raise TooMuchError(f"it takes more than {MOST_MEMORY >> 20:,} MiB of memory")
        if made.kind == "length":
            raise TooMuchError(f"it writes more than {MOST_CHARACTERS:,} characters")
        return made


def _look(limits: _Limits) -> None:
    """Raises CancelledError, TooMuchError."""
    if limits.cancelled():
        raise CancelledError
    if time.monotonic() > limits.end:
        raise TooMuchError(f"it took longer than {limits.seconds:g} s")


_the_renderer = _Renderer()
atexit.register(_the_renderer.stop)


def prepare() -> None:
    """Start the process, so that the first rendering need not wait for it. Raises PromptError."""
    _the_renderer.start()
