"""The memory of the machine the engine runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import psutil

from eaglechat.engine.loading.control_groups import memory_limit
from eaglechat.engine.loading.placement import offload_devices
from eaglechat.wire.protocol import Memory

if TYPE_CHECKING:
    from eaglechat.engine.llama.backend import Device


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
