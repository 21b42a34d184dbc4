"""What counts as a crash of llama.cpp, and what a load is tried without after one.

A kernel that crashes takes its process along. Whoever started that process starts it again, at most
twice: without what only some CPUs compute with, then without the GPU. What the user has chosen is
never taken away.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence

import msgspec

from eaglechat.wire.protocol import LeaveOut, Load, LoadOptions

NAMES: dict[LeaveOut, str] = {
    "amx": "AMX",
    "extra_buffers": "repacked weights",
    "flash_attention": "flash attention",
    "gpu": "the GPU",
}
"""In sentences. Weights are repacked for AMX too: without them, it is not used."""
_SETTINGS: dict[LeaveOut, tuple[str, ...]] = {
    # llama.cpp keeps a quantised KV cache only with flash attention.
    "flash_attention": ("flash_attention", "kv_type", "draft_kv_type"),
    "gpu": ("n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "rpc_servers"),
}
"""The fields of LoadOptions with which a user chooses something that could be left out."""
_KERNELS: tuple[LeaveOut, ...] = ("extra_buffers", "flash_attention")

_CRASHES = ("SIGSEGV", "SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGTRAP", "SIGSYS")
_WINDOWS_CRASHES = {
    0xC0000005: "access violation",
    0xC000001D: "illegal instruction",
    0xC0000409: "abort",
}
ILLEGAL_INSTRUCTION = ("SIGILL", "illegal instruction")
BUILT_FOR_ANOTHER_PROCESSOR = (
    "this llama-cpp-python was built for a CPU with instructions that yours lacks; build it "
    "here, which needs a C++ compiler: pip install --force-reinstall --no-deps --no-binary "
    "llama-cpp-python llama-cpp-python"
)
NEEDS_LESS_MEMORY = (
    "its memory ran out: close other programs, lower engine.n_ctx or engine.n_gpu_layers, or "
    "choose a smaller quantisation of the target"
)
OUT_OF_MEMORY = "out of memory"
"""Named as the crash, after which nothing is remembered."""
_OUT_OF_MEMORY = re.compile(
    # CUDA, ROCm, SYCL, Vulkan, Metal; then ggml; then the C++ library and the C library.
    r"out[ _]?of[ _]?(device|host)?[ _]?memory|insufficient memory|ALLOC_FAILED"
    r"|(failed to|cannot|unable to) (re)?alloc|memory allocation .*failed|bad_alloc",
    re.IGNORECASE,
)


def crash(exit_status: int | None) -> str | None:
    """How a process crashed, by its exit status; None if it ended in another way.

    SIGKILL and SIGTERM are not crashes: somebody, or a lack of memory, ended the process.
    """
    if exit_status is None:
        return None
    if sys.platform == "win32":
        return _WINDOWS_CRASHES.get(exit_status & 0xFFFFFFFF)
    # A shell, or ssh to one, reports a signal as 128 + its number.
    number = -exit_status if exit_status < 0 else exit_status - 128
    name = next((one.name for one in signal.Signals if one == number), "")
    return name if name in _CRASHES else None


def how_it_ended(exit_status: int) -> str:
    """As in “signal 11, SIGSEGV” and “exit status 1”."""
    how = f"signal {-exit_status}" if exit_status < 0 else f"exit status {exit_status}"
    name = crash(exit_status)
    return f"{how}, {name}" if name else how


def with_less(load: Load, crash: str, log_tail: Sequence[str], *, has_gpu: bool) -> Load | None:
    """A load that crashed, with less than before; None if nothing more can be left out.

    `log_tail` is the end of the engine's log, `has_gpu` whether its machine has a GPU.
    """
    short = _ran_out_of_memory(log_tail)
    gpu: tuple[LeaveOut, ...] = ("gpu",) if has_gpu else ()
    # No kernel is to blame for a lack of memory, and without flash attention more is needed.
    for step in (gpu,) if short else (_KERNELS, gpu):
        more = [one for one in step if one not in load.leave_out and not _chosen(one, load.options)]
        if more:
            forgets = short or (load.leave_out and not load.crash)
            return msgspec.structs.replace(
                load, leave_out=(*load.leave_out, *more), crash="" if forgets else crash
            )
    return None


def likely_cause(load: Load, log_tail: Sequence[str]) -> str:
    """The end of a sentence about a load that crashed and is not tried again."""
    if _ran_out_of_memory(log_tail):
        return f"; {NEEDS_LESS_MEMORY}"
    tried = f", {without(load.leave_out)} too" if load.leave_out else ""
    settings = ", ".join(setting for one in NAMES for setting in _chosen(one, load.options))
    return f"{tried}; the likely cause is a setting of yours: {settings}" if settings else tried


def _ran_out_of_memory(log_tail: Sequence[str]) -> bool:
    return any(_OUT_OF_MEMORY.search(line) for line in log_tail)


def _chosen(one: LeaveOut, options: LoadOptions) -> list[str]:
    """The settings with which the user has chosen this, as `engine.name = value`."""
    defaults = LoadOptions()
    values = {name: getattr(options, name) for name in _SETTINGS.get(one, ())}
    return [
        f"engine.{name} = {value}"
        for name, value in values.items()
        if value not in (getattr(defaults, name), "off", 0)
    ]


def without(left_out: Sequence[LeaveOut]) -> str:
    """As in “without AMX and flash attention”."""
    names = [NAMES[one] for one in left_out]
    if len(names) < 2:
        return f"without {''.join(names)}"
    return f"without {', '.join(names[:-1])} and {names[-1]}"


def starts_again(crashed: str, left_out: Sequence[LeaveOut], log: str) -> str:
    """The sentence for a load that is tried again; `log` is where the log of the crash is kept."""
    kept = f", its log is {log}" if log else ""
    return f"llama.cpp crashed ({crashed}{kept}): trying again {without(left_out)}"
