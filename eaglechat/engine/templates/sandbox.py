"""Renders chat templates in a process of their own, within limits of time and memory.

A template comes with a model file, so it is a stranger's program. It may take all memory, or stay
in one call of C that nothing can end. Here it costs the renderer's process, never the one that
holds the models; the next rendering starts another.
"""

from __future__ import annotations

import atexit
import subprocess
import threading
import time
from contextlib import suppress
from functools import partial
from typing import IO, Any

import msgspec

from eaglechat import own_python
from eaglechat.wire.errors import PromptError
from eaglechat.wire.worker import check

DEADLINE_S = 5.0
"""A long chat takes milliseconds."""
_POLL_S = 0.02
"""How often a rendering asks whether it was cancelled."""
_decode = msgspec.json.Decoder(tuple[str, str]).decode


class TemplateRefusedError(PromptError):
    """The template raised an error for these variables; others may be rendered."""


def render(source: str, variables: dict[str, Any]) -> str:
    """The text that a template makes of these variables.

    Raises TemplateRefusedError; Cancelled; PromptError if the template is not valid
    Jinja, or takes too much time or memory.
    """
    kind, text = _the_renderer.ask(source, variables)
    if kind == "text":
        return text
    error = TemplateRefusedError if kind == "refused" else PromptError
    raise error(f"the model's chat template {text}")


def prepare() -> None:
    """Start the renderer's process, so that the first rendering need not wait for it.

    Raises PromptError.
    """
    _the_renderer.start()


class _Renderer:
    """The process that runs `renderer.py`: started when it is needed, and again after its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process if it does not run, without waiting for it. Raises PromptError."""
        with self._lock:
            self._running()

    def stop(self) -> None:
        with self._lock:
            self._end()

    def ask(self, source: str, variables: dict[str, Any]) -> tuple[str, str]:
        """What `renderer.py` answers. Raises Cancelled; PromptError if the process cannot be
        started."""
        seconds = DEADLINE_S
        try:
            task = msgspec.json.encode((source, variables, seconds)) + b"\n"
        except ValueError as error:  # half of a surrogate pair
            return "refused", f"refuses this conversation: {error}"
        with self._lock:
            started = time.monotonic()
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            lines: list[bytes] = []
            reading = partial(_read_line, process.stdout, lines)
            reader = threading.Thread(target=reading, daemon=True)
            reader.start()
            try:
                with suppress(OSError):  # the process has ended, and so have its lines
                    process.stdin.write(task)
                    process.stdin.flush()
                check()
                while reader.is_alive():
                    reader.join(_POLL_S)
                    check()
            finally:
                if not any(lines):
                    # An answer that still comes must not be taken for that to the next task.
                    self._end()
                    reader.join()
        if any(lines):
            return _decode(lines[0])
        if time.monotonic() - started >= seconds:
            return "stopped", f"was stopped: it took longer than {seconds:g} s"
        return "stopped", "was stopped: the process that renders it ended"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._process is None:
            try:
                self._process = subprocess.Popen(
                    own_python.command("eaglechat.engine.templates.renderer"),
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
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            # Closes its pipes too.
            with suppress(OSError):
                process.communicate()


def _read_line(stream: IO[bytes], lines: list[bytes]) -> None:
    """In a thread of its own: nothing ends a wait for a pipe on every system."""
    with suppress(OSError, ValueError):
        lines.append(stream.readline())


_the_renderer = _Renderer()
atexit.register(_the_renderer.stop)
