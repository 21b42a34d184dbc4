"""The memory of the machine the engine runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import psutil

from eaglechat.engine.loading.control_groups import memory_limit
from eaglechat.engine.loading.placement import offload_devices
from eaglechat.wire.capabilities import Memory
from eaglechat.wire.load_options import LoadOptions

if TYPE_CHECKING:
    from eaglechat.engine.llama.backend import Device


def free_memory(options: LoadOptions, devices: Sequence[Device]) -> int:
    """Bytes that are free for models and contexts on what these options load them to: the GPUs, or
    the RAM where any layer stays there."""
    gpus = offload_devices(devices)
    if options.split_mode == "none":
        gpus = gpus[options.main_gpu : options.main_gpu + 1]
    everything = options.n_gpu_layers < 0
    own = sum(device.memory_free for device in gpus if not device.shares_ram)
    if own and everything:
        return own
    return memory(devices).ram_available


def memory(devices: Sequence[Device] = ()) -> Memory:
    """RAM as far as this process may use it, and the memory of the GPUs that are used."""
    ram = psutil.virtual_memory()
    limit = memory_limit()
    gpus = offload_devices(devices)
    return Memory(
        ram=min(ram.total, limit) if limit else ram.total,
        ram_available=min(ram.available, limit) if limit else ram.available,
        gpu=sum(device.memory_total for device in gpus),
        unified=bool(gpus) and all(device.shares_ram for device in gpus),
    )
