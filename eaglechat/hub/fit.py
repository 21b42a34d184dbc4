"""Whether a pair fits into the memory of a machine, and which quantisation does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eaglechat.gguf.memory import MemoryNeed
from eaglechat.hub.references import ModelFiles
from eaglechat.hub.units import format_bytes
from eaglechat.wire.protocol import Memory

_BITS = re.compile(r"(?:^|[-_.])(?:(?:I|T)?Q(\d)\w*|MXFP(4)\w*|B?F(16|32))$", re.IGNORECASE)
_LEGACY = re.compile(r"Q[45]_[01]$", re.IGNORECASE)
_ABOVE_Q8_0 = re.compile(r"(B?F16|F32|Q8_K\w*)$", re.IGNORECASE)
_FEW_BITS = 4


Machine = Memory | None
"""The memory of the machine that runs pairs; None if it is not known."""


def free(machine: Machine) -> int | None:
    """Memory for models: that of the GPUs, else the available RAM."""
    return None if machine is None else _own_gpu(machine) or machine.ram_available


def _own_gpu(memory: Memory) -> int:
    """Memory of GPUs that do not share the RAM."""
    return 0 if memory.unified else memory.gpu


@dataclass(frozen=True)
class Fit:
    """Whether a pair fits, in a word and in a short text; `word` is None if that is unknown."""

    word: Literal["fits", "tight", "too large"] | None
    """Tight: only once other programs free memory, or only with a part of it beside the GPU."""
    share: float
    """Of the memory that it is judged against, what it takes: from 0, and above 1 if too large."""
    text: str

    @property
    def fits(self) -> bool | None:
        return None if self.word is None else self.word != "too large"


def judge(need: MemoryNeed, machine: Machine) -> Fit:
    """Judge a need against the GPUs' memory, then against the RAM."""
    wanted = format_bytes(need.total)
    if machine is None:
        return Fit(None, 0.0, f"needs {wanted}; this machine's memory is not known")
    gpu, ram = _own_gpu(machine), machine.ram
    if need.total <= gpu:
        return Fit("fits", need.total / gpu, f"{wanted} of {format_bytes(gpu)} GPU memory")
    share = need.total / ram
    if need.total > ram:
        short = format_bytes(need.total - ram)
        text = f"needs {wanted}, {short} more than this machine's {format_bytes(ram)}"
        return Fit("too large", share, text)
    note = ""
    if need.total > machine.ram_available:
        note = f", but only {format_bytes(machine.ram_available)} is free now"
    elif gpu:
        note = f"; too large for the GPU's {format_bytes(gpu)} alone"
    return Fit("tight" if note else "fits", share, f"{wanted} of {format_bytes(ram)} RAM{note}")


def need_by_size(size: int) -> MemoryNeed:
    """A guess for weights of `size` bytes without their header, which would say how large the KV
    cache is: an eighth more."""
    return MemoryNeed(size, 0, 0, 0, size // 8)


@dataclass(frozen=True)
class Quantisation:
    """One of the quantisations of a model on the Hub, and what a pair with it needs."""

    model: ModelFiles
    need: MemoryNeed
    is_here: bool = False
    """All or some of it was downloaded before."""

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def bits(self) -> int:
        """Of most weights, by its name; 8 if that does not say."""
        found = _BITS.search(self.name)
        return int(next(filter(None, found.groups()))) if found else 8


def best(choices: Sequence[Quantisation], machine: Machine) -> Quantisation | None:
    """The quantisation to take where the user names none: the largest that is here, or was begun,
    else the largest that fits. None if the machine's memory is not known.

    None above Q8_0 (BF16, F16, F32, Q8_K_XL), which would be slower and write no better. One that
    is tight, only if none with 4 bits or more fits; one with fewer than 4 bits, which writes worse,
    only if no other fits or is tight; the smallest, if all are too large. Q4_0, Q4_1, Q5_0 and Q5_1
    only without a K-quant, or Unsloth's UD kind of one, of as many bits.
    """
    if here := [one for one in choices if one.is_here]:
        return max(here, key=_weights)
    if machine is None:
        return None
    allowed = [one for one in choices if not _ABOVE_Q8_0.search(one.name)] or list(choices)
    for enough_bits in (True, False):
        for word in ("fits", "tight"):
            group = [
                one
                for one in allowed
                if (one.bits >= _FEW_BITS) is enough_bits and judge(one.need, machine).word == word
            ]
            modern = [one for one in group if not _LEGACY.search(one.name)]
            bits = max((one.bits for one in modern), default=0)
            legacy = [one for one in group if one not in modern and one.bits > bits]
            if group:
                return max(modern + legacy, key=_weights)
    return min(allowed, key=_weights, default=None)


def _weights(one: Quantisation) -> int:
    return one.need.target_weights
