"""A llama-server that is started, watched and ended from here, with options to load a pair as
eaglechat's own engine would."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import httpx2

from eaglechat.gguf.pairing import knows_probability
from eaglechat.gguf.preflight import Pairing
from eaglechat.links.crashes import how_it_ended
from eaglechat.links.process import tail, wait_or_kill
from eaglechat.wire.drafters import DRAFTERS
from eaglechat.wire.errors import ModelLoadError
from eaglechat.wire.protocol import AUTO, N_DRAFT_MAX_DEFAULT, LoadOptions, Speculation
from eaglechat.wire.worker import check

_LOOK_S = 0.1
_HEALTH_S = 2.0
_END_S = 5.0
_KEY_VARIABLE = "LLAMA_API_KEY"
_LAST_LINES = 20
_KILLED = -9
_NO_FLAG = "invalid argument: -"
_ERROR_MARKS = ("error", "failed", "invalid", "unknown", "unable", "cannot")


class Program:
    """One run of the program, on a free loopback port and with a random key."""

    def __init__(self, command: Sequence[str], log: BinaryIO) -> None:
        """`command` is the program and its options; what it writes goes to `log`, as of `open_log`.
        Raises ModelLoadError."""
        self._log, self._log_start = log, log.seek(0, os.SEEK_END)
        self.command, self.name = command, Path(command[0]).name
        self.key = secrets.token_urlsafe(24)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._was_asked_to_end = False
        address = ("--host", "127.0.0.1", "--port", str(port))
        # Linux then kills the program when the thread that started it ends, which is the worker's,
        # even if this process is killed.
        setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
        ends_with_this = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        try:
            self._process = subprocess.Popen(
                [*ends_with_this, *command, *address],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl+C in the terminal is for the client, which may only want to end a reply.
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                # The key is in the environment: everybody on this machine can read the options. A
                # debugger's report of a failed assertion would push it out of the log's tail.
                env={"GGML_NO_BACKTRACE": "1", **os.environ, _KEY_VARIABLE: self.key},
            )
        except OSError as error:
            raise ModelLoadError(f"{command[0]} cannot be started: {error.strerror}") from error
        atexit.register(self._process.kill)

    def wait_until_ready(self) -> None:
        """Return once it serves. Raises Cancelled, ModelLoadError if the program ends."""
        with httpx2.Client(timeout=_HEALTH_S, trust_env=False) as client:
            while True:
                with suppress(httpx2.HTTPError):
                    if client.get(f"{self.url}/health").status_code == 200:
                        return
                if (status := self._process.poll()) is not None:
                    why = "" if status == _KILLED else f": {self._complaint()}"
                    raise ModelLoadError(f"the models did not load: {self.how_it_ended}{why}")
                check()
                time.sleep(_LOOK_S)

    def watch(self, on_end: Callable[[str], None]) -> None:
        """Call this with `how_it_ended`, from another thread, once the program ends unasked."""

        def wait() -> None:
            self._process.wait()
            if not self._was_asked_to_end:
                on_end(self.how_it_ended)

        threading.Thread(target=wait, name="llama-server-end", daemon=True).start()

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so within this time."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    @property
    def how_it_ended(self) -> str:
        status = self._process.poll() or 0
        if status == _KILLED:
            return f"{self.name} was killed (signal 9), as happens when memory runs out"
        return f"{self.name} ended ({how_it_ended(status)})"

    def end(self) -> None:
        """Ask it to end, and kill it if it has not after 5 seconds."""
        self._was_asked_to_end = True
        self._process.terminate()
        wait_or_kill(self._process, _END_S)
        atexit.unregister(self._process.kill)

    def _complaint(self) -> str:
        """The last of its lines that sounds like an error, or just the last one."""
        last = tail(self._log, _LAST_LINES, self._log_start)
        lines = [line for line in last if line.strip()]
        if not lines:
            return "it said nothing"
        complaints = [line for line in lines if any(m in line.lower() for m in _ERROR_MARKS)]
        worst = (complaints or lines)[-1].strip()
        return f"{worst}; a newer llama-server knows it" if _NO_FLAG in worst else worst


def chosen_drafter(speculation: Speculation, drafters: Sequence[Pairing]) -> Pairing | None:
    """Who drafts for a request; None if nothing is to be drafted."""
    if speculation.is_plain:
        return None
    return next((one for one in drafters if speculation.drafter in (AUTO, one.kind)), None)


def server_options(
    target: Path, drafter: Pairing | None, speculation: Speculation, options: LoadOptions
) -> list[str]:
    """llama-server's options, without its address. Without a drafter, no draft is loaded."""
    threads = ["-t", str(options.n_threads)] if options.n_threads else []
    kv = ["-ctk", options.kv_type, "-ctv", options.kv_type] if options.kv_type != "f16" else []
    return [
        *("-m", str(target), "-c", str(options.n_ctx), "-b", str(options.n_batch), "-np", "1"),
        *("--no-webui", "--offline", *threads, *kv, *gpu_options(options)),
        *(_draft_options(drafter, speculation, options) if drafter else ()),
    ]


def gpu_options(options: LoadOptions) -> list[str]:
    """Places the target as eaglechat's own engine does; `-fit` would choose another placement."""
    layers = _layers(options)
    shares = ",".join(f"{share:g}" for share in options.tensor_split)
    return [
        *("-ngl", layers, "-fit", "off", "-sm", options.split_mode),
        *("-mg", str(options.main_gpu), "-fa", options.flash_attention),
        *(("-ts", shares) if shares else ()),
        *(("--rpc", ",".join(options.rpc_servers)) if options.rpc_servers else ()),
    ]


def draft_gpu_options(options: LoadOptions) -> list[str]:
    """Places the draft as eaglechat's own engine does."""
    return ["-ngld", _layers(options)]


def _draft_options(drafter: Pairing, speculation: Speculation, options: LoadOptions) -> list[str]:
    kv_type = options.draft_kv_type
    kv = ["-ctkd", kv_type, "-ctvd", kv_type] if kv_type != "f16" else []
    file = ["-md", str(drafter.file.path), *draft_gpu_options(options)] if drafter.file else []
    word = DRAFTERS[drafter.kind].spec_type
    # The program has no automatic length.
    longest = N_DRAFT_MAX_DEFAULT if speculation.n_draft_max == AUTO else speculation.n_draft_max
    # The program ends over a least probability of a draft that does not know it.
    p_min = speculation.p_min if knows_probability(drafter) else 0.0
    return [
        *(*file, "--spec-type", word, "--spec-draft-n-max", str(longest)),
        *("--spec-draft-n-min", str(speculation.n_min), "--spec-draft-p-min", f"{p_min:g}", *kv),
    ]


def _layers(options: LoadOptions) -> str:
    return "all" if options.n_gpu_layers < 0 else str(options.n_gpu_layers)
