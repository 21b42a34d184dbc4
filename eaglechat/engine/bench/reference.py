"""Compares with llama.cpp's own loop: runs the user's llama-speculative-simple on the prompts."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eaglechat.engine.llama_server.arguments import draft_gpu_options, gpu_options
from eaglechat.wire.bench_records import PLAIN, REFERENCE, BenchRun
from eaglechat.wire.load_options import LoadOptions

_ENCODED = re.compile(r"encoded\s+(\d+)\s+tokens in\s+([\d.]+)\s+seconds")
_DECODED = re.compile(r"decoded\s+(\d+)\s+tokens in\s+([\d.]+)\s+seconds")
_COUNTS = {name: re.compile(rf"{name}\s*=\s*(\d+)") for name in ("n_drafted", "n_accept")}


class ReferenceFailedError(RuntimeError):
    """The reference program gave no measurement; the message says why."""


@dataclass(frozen=True)
class Reference:
    """The program, with the files and the settings of the loaded pair."""

    binary: Path
    target: Path
    draft: Path
    n_ctx: int
    n_threads: int
    options: LoadOptions
    max_tokens: int

    def run(
        self, name: str, prompt: str, n: int, repeat: int, cancelled: Callable[[], bool]
    ) -> BenchRun | None:
        """Measure a rendered prompt at draft length `n`, where 0 decodes plainly. None when it was
        cancelled.

        Raises ReferenceFailedError.
        """
        # The program does not run without a drafter. For plain decoding, this one looks for a
        # repetition of 1024 tokens and never finds one.
        drafter = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "1024"]
        if n > 0:
            eagle3 = ["--spec-type", "draft-eagle3", "--spec-draft-n-max", str(n)]
            drafter = ["-md", str(self.draft), *eagle3]
        with tempfile.TemporaryDirectory(prefix="eaglechat-bench-") as folder:
            file = Path(folder) / "prompt.txt"
            # The program drops one newline at the end of a prompt file.
            file.write_text(prompt + "\n", encoding="utf-8")
            command = [
                *(str(self.binary), "-m", str(self.target), *drafter),
                *("-f", str(file), "--no-escape", "-n", str(self.max_tokens), "--temp", "0"),
                *("-c", str(self.n_ctx), "-b", str(self.n_ctx), "-t", str(self.n_threads)),
                *gpu_options(self.options),
                *draft_gpu_options(self.options),
            ]
            output = _output(command, cancelled)
        return None if output is None else parse(output, name, n, repeat)


def reference_setting(n: int) -> str:
    """The name of the program's runs with draft length `n`."""
    return f"{REFERENCE} {n or PLAIN}"


def parse(output: str, name: str, n: int, repeat: int) -> BenchRun:
    """Read the measurement from the program's output. Raises ReferenceFailedError."""
    encoded, decoded = _ENCODED.search(output), _DECODED.search(output)
    counts = {key: pattern.search(output) for key, pattern in _COUNTS.items()}
    drafted, accepted = counts["n_drafted"], counts["n_accept"]
    if encoded is None or decoded is None or drafted is None or accepted is None:
        tail = " ".join(output.split()[-30:]) or "nothing"
        raise ReferenceFailedError(
            f"the reference program printed no measurement; it ended with: {tail}"
        )
    return BenchRun(
        prompt=name,
        setting=reference_setting(n),
        repeat=repeat,
        tokens=int(decoded[1]),
        generation_ms=float(decoded[2]) * 1000.0,
        n_drafted=int(drafted[1]),
        # The program does not count tested tokens.
        n_tested=0,
        n_accepted=int(accepted[1]),
        mean_accepted_length=None,
        verify_ms={},
        prefill_tokens=int(encoded[1]),
        prefill_ms=float(encoded[2]) * 1000.0,
    )


def _output(command: list[str], cancelled: Callable[[], bool]) -> str | None:
    """Everything that a program prints; None when it was cancelled. Raises ReferenceFailedError."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise ReferenceFailedError(f"cannot start {command[0]}: {error}") from error
    while True:
        try:
            output, _ = process.communicate(timeout=0.2)
        except subprocess.TimeoutExpired:
            if cancelled():
                process.kill()
                process.communicate()
                return None
            continue
        if cancelled():
            return None
        if process.returncode != 0:
            tail = " ".join(output.split()[-30:])
            raise ReferenceFailedError(
                f"{command[0]} ended with status {process.returncode}: {tail}"
            )
        return output
