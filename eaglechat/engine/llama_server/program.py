"""A llama-server that is started, watched and ended from here."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from eaglechat.wire.errors import CrashedError, LoadCancelledError, ModelLoadError
from eaglechat.wire.left_out import crash

_LOOK_S = 0.1
_HEALTH_S = 2.0
_END_S = 5.0
_KEY_VARIABLE = "LLAMA_API_KEY"
_LAST_LINES = 20
_KILLED = -9
_NO_FLAG = "invalid argument: -"
_ERROR_MARKS = ("error", "failed", "invalid", "unknown", "unable", "cannot")


class Program:
    """One run of the program, on a loopback port of its own with a key that nobody else has.

    What it writes is passed on to standard error.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """`command` is the program and its options. Raises ModelLoadError."""
        self.name = Path(command[0]).name
        self.key = secrets.token_urlsafe(24)
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._files = [word for word in command if word.lower().endswith(".gguf")]
        self.named: set[str] = set()
        """Of the files among its options, those that its log has named: it has opened them."""
        address = ("--host", "127.0.0.1", "--port", str(port))
        try:
            self._process = subprocess.Popen(
                [*_ends_with_this_process(), *command, *address],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Ctrl+C is a terminal's word to the client, which may only want to end a reply.
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                # Its options would show the key to everybody on this machine. A debugger's report
                # of a failed assertion would push the assertion out of the log's end.
                env={"GGML_NO_BACKTRACE": "1", **os.environ, _KEY_VARIABLE: self.key},
            )
        except OSError as error:
            raise ModelLoadError(f"{command[0]} cannot be started: {error.strerror}") from error
        self._reader = threading.Thread(target=self._pass_on, name="llama-server", daemon=True)
        self._reader.start()

    def wait_until_ready(self, proceed: Callable[[], bool]) -> None:
        """Return once it serves; `proceed` is asked meanwhile, and False gives up.

        Raises ModelLoadError where it ends, CrashedError where it crashes, LoadCancelledError.
        """
        while not self._is_ready():
            if self.exit_status is not None:
                self._reader.join(1.0)
                why = "" if self.exit_status == _KILLED else f": {self._complaint()}"
                message = f"the models did not load: {self.how_it_ended}{why}"
                if crashed := crash(self.exit_status):
                    raise CrashedError(message, crashed)
                raise ModelLoadError(message)
            if not proceed():
                raise LoadCancelledError("the load was cancelled")
            time.sleep(_LOOK_S)

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def how_it_ended(self) -> str:
        status = self.exit_status or 0
        if status == _KILLED:
            return f"{self.name} was killed (signal 9), as happens when memory runs out"
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"{self.name} ended ({how})"

    def end(self) -> None:
        """Ask it to end, and end it by force if it takes long."""
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(1.0)

    def _is_ready(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/health", timeout=_HEALTH_S) as answer:
                return bool(answer.status == 200)
        except (OSError, ValueError, urllib.error.HTTPError):
            return False
        except Exception as error:  # http.client's, for what is not HTTP at all
            self._last.append(f"{self.url} does not speak HTTP: {error}")
            return False

    def _pass_on(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                text = line.decode("utf-8", errors="replace")
                self._last.append(text.rstrip())
                self.named.update(file for file in self._files if file in text)
                sys.stderr.write(text)
                sys.stderr.flush()

    def _complaint(self) -> str:
        """The line of its last ones that says most."""
        lines = [line for line in self._last if line.strip()]
        if not lines:
            return "it said nothing"
        complaints = [line for line in lines if any(m in line.lower() for m in _ERROR_MARKS)]
        worst = (complaints or lines)[-1].strip()
        return f"{worst}; a newer llama-server knows it" if _NO_FLAG in worst else worst


def _ends_with_this_process() -> list[str]:
    """What has the system end the program even if this process is killed, where there is that."""
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
