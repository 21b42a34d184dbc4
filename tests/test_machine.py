"""The memory of a machine, from its devices."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from eaglechat.engine.llama.placement import Device, free_memory, memory
from eaglechat.wire.protocol import LoadOptions

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
    found = memory([])
    assert 0 < found.ram_available <= found.ram <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("options", "free"),
    [
        (LoadOptions(), 12 << 30),
        (LoadOptions(split_mode="none", main_gpu=1), 5 << 30),
        (LoadOptions(n_gpu_layers=10), None),
        (LoadOptions(n_gpu_layers=0), None),
    ],
)
def test_models_find_the_memory_of_what_they_are_loaded_to(
    options: LoadOptions, free: int | None
) -> None:
    """None: the RAM, where any layer stays there."""
    gpus = [replace(CARD, name=f"CUDA{i}", memory_free=size << 30) for i, size in enumerate((7, 5))]

    found = free_memory(options, gpus)

    assert found == free if free else abs(found - memory([]).ram_available) < 1 << 30
