"""Whether a pair fits into the memory of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eaglechat.gguf.memory import MemoryNeed
from eaglechat.hub.units import format_bytes
from eaglechat.wire.capabilities import Memory


@dataclass(frozen=True)
class Machine:
    """Memory in bytes: RAM, and of all GPUs together; None if unknown.

    `unified`: the GPU uses the RAM.
    """

    ram: int | None
    ram_available: int | None = None
    gpu: int | None = None
    unified: bool = False

    @property
    def free(self) -> int | None:
        """Memory for models: that of the GPUs, else the available RAM."""
        if self.gpu and not self.unified:
            return self.gpu
        return self.ram if self.ram_available is None else self.ram_available


@dataclass(frozen=True)
class Fit:
    """Whether a pair fits, in a word and in a short text; `word` is None if that is unknown."""

    word: Literal["fits", "tight", "too large"] | None
    """Tight: only once other programs free memory, or only with a part of it beside the GPU."""
    share: float
    """Of the memory that it is judged against, what it takes: from 0, and above 1 if too large."""
    brief: str
    note: str = ""
    """The rest of the text, for which lists have no room."""

    @property
    def fits(self) -> bool | None:
        return None if self.word is None else self.word != "too large"

    @property
    def text(self) -> str:
        return self.brief + self.note


def judge(need: MemoryNeed, machine: Machine) -> Fit:
    """Judge a need against the GPUs' memory, then against the RAM."""
    wanted = format_bytes(need.total)
    if machine.gpu and not machine.unified and need.total <= machine.gpu:
        brief = f"{wanted} of {format_bytes(machine.gpu)} GPU"
        return Fit("fits", need.total / machine.gpu, brief, " memory")
    if machine.ram is None:
        return Fit(None, 0.0, f"needs {wanted}; this machine's memory is not known")
    share = need.total / machine.ram
    if need.total > machine.ram:
        short = format_bytes(need.total - machine.ram)
        text = f"needs {wanted}, {short} more than this machine's {format_bytes(machine.ram)}"
        return Fit("too large", share, text)
    brief, note = f"{wanted} of {format_bytes(machine.ram)} RAM", ""
    if machine.ram_available is not None and need.total > machine.ram_available:
        note = f", but only {format_bytes(machine.ram_available)} is free now"
    elif machine.gpu and not machine.unified:
        note = f"; too large for the GPU's {format_bytes(machine.gpu)} alone"
    return Fit("tight" if note else "fits", share, brief, note)


def judge_weights(size: int, machine: Machine) -> Fit | None:
    """Judge weights of `size` bytes without their header, which would say how large the KV cache
    is. None if this machine's memory is not known.

    The default context shrinks until its cache fits: beside half of the free memory it does.
    """
    if machine.ram is None:
        return None
    most = max(machine.ram, machine.gpu or 0)
    if size > most:
        brief = f"its weights are {format_bytes(size)}, more than this machine's"
        return Fit("too large", size / most, f"{brief} {format_bytes(most)}")
    against = machine.gpu if machine.gpu and not machine.unified else machine.ram
    brief = f"its weights take {format_bytes(size)} of {format_bytes(against)}"
    return Fit("fits" if size <= (machine.free or 0) / 2 else None, size / against, brief)


def machine_of(memory: Memory, lent: int = 0) -> Machine:
    """The memory that an engine reports, plus `lent` bytes of other machines' GPUs.

    llama.cpp does not use a GPU that shares the RAM beside those.
    """
    own = 0 if lent and memory.unified else memory.gpu
    is_unified = memory.unified and not lent
    return Machine(memory.ram, memory.ram_available, own + lent or None, is_unified)
