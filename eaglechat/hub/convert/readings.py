"""Decides what `norm_output` means in a checkpoint, where its trainer may have meant either.

SpecForge wrote `norm_output: true` for plain EAGLE-3 until September 2026 (pull request 879), and
has since then written it for EAGLE-3.1, as all others do: a state that the draft feeds back to
itself passes the output norm. Nothing else in a checkpoint tells the two apart, so the draft is run
with its target under both readings.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from eaglechat import own_python
from eaglechat.gguf.header import read_header
from eaglechat.gguf.preflight import NORM_OUTPUT
from eaglechat.hub.convert.config import DraftConfig

_POLL_S = 0.1
_SPECFORGE = "LlamaForCausalLMEagle3"
"""Its class, which SGLang knows and other trainers write too."""


def is_ambiguous(config: DraftConfig) -> bool:
    """Whether `norm_output` may mean either."""
    return config.norm_output and _SPECFORGE in config.architectures


def settle(draft: Path, target: Path, on_poll: Callable[[], None]) -> str:
    """Keep the better reading in a draft's file, which names EAGLE-3.1's; that stays if both cannot
    be measured. Returns a sentence for the user.

    `on_poll` is called several times a second; an exception it raises stops the measurement and is
    passed on. Raises OSError.
    """
    status, said = _measured(draft, target, on_poll)
    if status != 0:
        return (
            "norm_output is read as EAGLE-3.1's; SpecForge before September 2026 wrote it for "
            f"plain EAGLE-3, and which this is could not be measured ({said}): if hardly any guess "
            "but the first is accepted, take it out of config.json and convert again"
        )
    plain, normed = map(float, said.split())
    if plain > normed:
        _, end = read_header(draft).spans[NORM_OUTPUT]
        with draft.open("rb+") as file:
            file.seek(end - 1)
            file.write(b"\0")
    name = "plain EAGLE-3" if plain > normed else "EAGLE-3.1"
    return (
        f"norm_output is read as {name}: a pass of the target yields {normed:.2f} tokens if it "
        f"means EAGLE-3.1, and {plain:.2f} if it means plain EAGLE-3, for which SpecForge wrote it "
        "before September 2026"
    )


def _measured(draft: Path, target: Path, on_poll: Callable[[], None]) -> tuple[int, str]:
    """The exit status of the measuring process, and the last line that it printed. A crash of
    llama.cpp ends only that process."""
    with subprocess.Popen(
        own_python.command("eaglechat.engine.bench.readings", str(target), str(draft)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
    ) as child:
        assert child.stdout is not None
        try:
            while child.poll() is None:
                on_poll()
                time.sleep(_POLL_S)
        except BaseException:
            child.kill()
            raise
        lines = child.stdout.read().splitlines()
    return child.returncode, lines[-1] if lines else f"exit status {child.returncode}"
