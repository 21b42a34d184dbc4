"""Whether a pair fits into the memory of a machine."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Whether a pair fits, with a short text about it; `fits` is None if that is unknown."""

    fits: bool | None
    brief: str
    note: str = ""
    """The rest of the text, for which lists have no room."""

    @property
    def text(self) -> str:
        return self.brief + self.note


def judge(need: MemoryNeed, machine: Machine) -> Fit:
    """Judge a need against the GPUs' memory, then against the RAM."""
    wanted = format_bytes(need.total)
    if machine.gpu and not machine.unified and need.total <= machine.gpu:
        return Fit(True, f"{wanted} of {format_bytes(machine.gpu)} GPU", " memory")
    if machine.ram is None:
        return Fit(None, f"needs {wanted}; this machine's memory is not known")
    if need.total > machine.ram:
        short = format_bytes(need.total - machine.ram)
        text = f"needs {wanted}, {short} more than this machine's {format_bytes(machine.ram)}"
        return Fit(False, text)
    brief, note = f"{wanted} of {format_bytes(machine.ram)} RAM", ""
    if machine.ram_available is not None and need.total > machine.ram_available:
        note = f", but only {format_bytes(machine.ram_available)} is free now"
    elif machine.gpu and not machine.unified:
        note = f"; too large for the GPU's {format_bytes(machine.gpu)} alone"
    return Fit(True, brief, note)


def judge_weights(size: int, machine: Machine) -> Fit | None:
    """A refusal if weights of `size` bytes alone do not fit; else None. No header is needed."""
    if machine.ram is None or size <= max(machine.ram, machine.gpu or 0):
        return None
    brief = f"its weights are {format_bytes(size)}, more than this machine's"
    return Fit(False, f"{brief} {format_bytes(machine.ram)}")


def machine_of(memory: Memory, lent: int = 0) -> Machine:
    """The memory that an engine reports, plus `lent` bytes of other machines' GPUs.

    llama.cpp does not use a GPU that shares the RAM beside those.
    """
    own = 0 if lent and memory.unified else memory.gpu
    is_unified = memory.unified and not lent
    return Machine(memory.ram, memory.ram_available, own + lent or None, is_unified)
