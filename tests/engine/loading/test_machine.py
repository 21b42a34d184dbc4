"""The memory of a machine, from its devices."""

from __future__ import annotations

import psutil

from eaglechat.engine.llama.backend import Device
from eaglechat.engine.loading.machine import memory

CPU = Device("CPU", "a processor", 0, 16 << 30, is_gpu=False, shares_ram=False)
CARD = Device("CUDA0", "a card", 7 << 30, 8 << 30, is_gpu=True, shares_ram=False)
ON_CHIP = Device("MTL0", "a GPU that shares", 5 << 30, 6 << 30, is_gpu=True, shares_ram=True)


def test_gpus_count_together_and_the_processor_does_not() -> None:
    assert memory([CPU]).gpu == 0
    two = memory([CARD, CARD, CPU])
    assert (two.gpu, two.unified) == (16 << 30, False)
    assert memory([ON_CHIP, CPU]).unified
    assert not memory([ON_CHIP, CARD]).unified


def test_ram_is_no_more_than_the_machine_has() -> None:
    found = memory()
    assert 0 < found.ram_available <= found.ram <= psutil.virtual_memory().total
