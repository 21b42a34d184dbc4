"""What can be left out if llama.cpp crashes with it, in which order, and what counts as a crash.

A kernel that crashes takes its process along. Whoever started that process starts it again without
one thing more, in the order of `LADDER`; what the user has chosen is never taken away.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from eaglechat.wire.load_options import LeaveOut, LoadOptions


@dataclass(frozen=True)
class Omission:
    """Something that can be left out: its name in a sentence, and what is lost without it."""

    name: str
    cost: str


LADDER: dict[LeaveOut, Omission] = {
    "amx": Omission("AMX", "prompts are read more slowly than AMX could read them"),
    "extra_buffers": Omission(
        "repacked weights",
        "prompts are read more slowly, and several drafted tokens cost more to verify",
    ),
    "flash_attention": Omission(
        "flash attention", "long contexts are slower, and the KV cache cannot be kept in q8_0"
    ),
    "gpu": Omission("the GPU", "everything is computed on the CPU"),
}
"""The least loss first. Weights are repacked for AMX too, so the second contains the first."""

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


def next_step(
    tried: Sequence[LeaveOut], possible: Sequence[LeaveOut], options: LoadOptions
) -> tuple[LeaveOut, ...] | None:
    """What to leave out after a crash with `tried` left out; None if nothing more can be left out.

    `possible` is what the engine's machine has at all.
    """
    for one in LADDER:
        if one in possible and one not in tried and _is_automatic(one, options):
            return (*tried, one)
    return None


def _is_automatic(one: LeaveOut, options: LoadOptions) -> bool:
    if one == "flash_attention":
        return options.flash_attention == "auto" and not _needs_flash_attention(options)
    if one == "gpu":
        return options.n_gpu_layers == -1 and not _gpu_settings(options)
    return True


def chosen_by_user(possible: Sequence[LeaveOut], options: LoadOptions) -> tuple[str, ...]:
    """The settings that kept something from being left out, as `name = value`."""
    found = []
    if "flash_attention" in possible:
        if options.flash_attention == "on":
            found.append("engine.flash_attention = on")
        found += _needs_flash_attention(options)
    if "gpu" in possible:
        if options.n_gpu_layers > 0:
            found.append(f"engine.n_gpu_layers = {options.n_gpu_layers}")
        found += _gpu_settings(options)
    return tuple(found)


def _needs_flash_attention(options: LoadOptions) -> list[str]:
    """llama.cpp keeps a quantised KV cache only with flash attention."""
    types = {"kv_type": options.kv_type, "draft_kv_type": options.draft_kv_type}
    return [f"engine.{name} = {value}" for name, value in types.items() if value != "f16"]


def _gpu_settings(options: LoadOptions) -> list[str]:
    defaults = LoadOptions()
    names = ("split_mode", "main_gpu", "tensor_split", "rpc_servers")
    return [
        f"engine.{name} = {getattr(options, name)}"
        for name in names
        if getattr(options, name) != getattr(defaults, name)
    ]


def without(left_out: Sequence[LeaveOut]) -> str:
    """As in “without AMX and flash attention”."""
    names = [LADDER[one].name for one in left_out]
    if len(names) < 2:
        return f"without {''.join(names)}"
    return f"without {', '.join(names[:-1])} and {names[-1]}"


def starts_again(crashed: str, left_out: Sequence[LeaveOut]) -> str:
    """The sentence for a load that is tried again."""
    return f"llama.cpp crashed ({crashed}): trying again {without(left_out[-1:])}"
