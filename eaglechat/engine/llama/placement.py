"""The devices of a machine, their memory, and which of them a model is placed on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from eaglechat import machine
from eaglechat.wire.errors import ModelLoadError
from eaglechat.wire.protocol import LeaveOut, LoadOptions, Memory


@dataclass(frozen=True)
class Device:
    """A device that computes. Memory is in bytes, 0 if the backend does not say."""

    name: str
    description: str
    memory_free: int
    memory_total: int
    is_gpu: bool
    shares_ram: bool
    backend: str = ""
    """Its driver, such as CUDA."""
    hardware_id: str = ""
    """The same for one card that two backends drive."""
    splits_rows: bool = False
    handle: int = 0
    """llama.cpp's pointer to it."""


def offload_devices(devices: Sequence[Device]) -> list[Device]:
    """The GPUs that llama.cpp puts layers on, in its order.

    It uses a card once that two backends see, and GPUs that share the RAM only if there are no
    others.
    """
    gpus: list[Device] = []
    for device in devices:
        seen = {gpu.hardware_id for gpu in gpus if gpu.hardware_id}
        if device.is_gpu and device.hardware_id not in seen:
            gpus.append(device)
    own_memory = [gpu for gpu in gpus if not gpu.shares_ram]
    # These have no hardware id to tell them apart, so llama.cpp takes those of one backend.
    return own_memory or [gpu for gpu in gpus if gpu.backend == gpus[0].backend]


def chosen_devices(
    options: LoadOptions, devices: Sequence[Device], leave_out: Sequence[LeaveOut] = ()
) -> tuple[int, ...]:
    """The handles of the GPUs for a target that is loaded so; empty for those that llama.cpp finds
    itself. Raises ModelLoadError if they cannot do it."""
    gpus = offload_devices(devices)
    if gpus and options.n_gpu_layers != 0 and "gpu" not in leave_out:
        _check(options, gpus)
    # llama.cpp does not find those of RPC servers.
    return tuple(gpu.handle for gpu in gpus) if options.rpc_servers else ()


def for_the_draft(options: LoadOptions, n_gpus: int) -> LoadOptions:
    """The options of the draft: it goes to the last of the target's `n_gpus` GPUs that has a share.

    That GPU holds the target's output head, which a draft may use. The draft must still see all of
    the target's GPUs, so it is split like the target, with one share that is not zero.
    """
    if options.split_mode == "none" or n_gpus < 2:
        return options
    shares = options.tensor_split or (1.0,) * n_gpus
    last = max(gpu for gpu in range(n_gpus) if gpu < len(shares) and shares[gpu] > 0)
    one_gpu = tuple(float(gpu == last) for gpu in range(n_gpus))
    return msgspec.structs.replace(options, split_mode="layer", tensor_split=one_gpu)


def _check(options: LoadOptions, gpus: Sequence[Device]) -> None:
    names = ", ".join(f"{index} is {gpu.name}" for index, gpu in enumerate(gpus))
    if options.split_mode == "none" and options.main_gpu >= len(gpus):
        raise ModelLoadError(
            f"there is no GPU {options.main_gpu} (engine.main_gpu); of those there are, {names}"
        )
    if options.split_mode == "row" and not all(gpu.splits_rows for gpu in gpus):
        backend = next(gpu.backend for gpu in gpus if not gpu.splits_rows)
        raise ModelLoadError(
            f"{backend} cannot split rows in this llama.cpp; set engine.split_mode to layer or none"
        )
    shares = options.tensor_split
    if len(shares) > len(gpus):
        raise ModelLoadError(
            f"engine.tensor_split has shares for {len(shares)} GPUs, there are {len(gpus)}: {names}"
        )
    if shares and not any(shares):
        raise ModelLoadError("engine.tensor_split gives no GPU a share; leave it empty or name one")


def free_memory(options: LoadOptions, devices: Sequence[Device]) -> int:
    """Free bytes for models and contexts that are loaded with these options: of the GPUs, or of
    the RAM if any layer stays there."""
    gpus = offload_devices(devices)
    if options.split_mode == "none":
        gpus = gpus[options.main_gpu : options.main_gpu + 1]
    of_gpus = sum(device.memory_free for device in gpus if not device.shares_ram)
    if of_gpus and options.n_gpu_layers < 0:
        return of_gpus
    return machine.memory().ram_available


def memory(devices: Sequence[Device]) -> Memory:
    """The RAM that this process may use, and the memory of the GPUs that llama.cpp uses."""
    gpus = offload_devices(devices)
    return msgspec.structs.replace(
        machine.memory(),
        gpu=sum(device.memory_total for device in gpus),
        unified=bool(gpus) and all(device.shares_ram for device in gpus),
    )
