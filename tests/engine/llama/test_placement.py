"""Where target and draft go, on machines with made-up GPUs."""

from __future__ import annotations

import pytest

from eaglechat.engine.llama.placement import (
    Device,
    chosen_devices,
    for_the_draft,
    offload_devices,
)
from eaglechat.wire.errors import ModelLoadError
from eaglechat.wire.protocol import LoadOptions


def device(name: str, *, gpu: bool = True, shared: bool = False, hardware: str = "") -> Device:
    backend = name.rstrip("0123456789")
    return Device(
        name, f"a {backend}", 7 << 30, 8 << 30, is_gpu=gpu, shares_ram=shared,
        backend=backend, hardware_id=hardware, splits_rows=backend == "SYCL",
    )  # fmt: skip


CPU = device("CPU", gpu=False)
FIRST, SECOND = device("CUDA0", hardware="01:00.0"), device("CUDA1", hardware="02:00.0")
ON_CHIP = device("Vulkan0", shared=True)


def test_a_chip_with_shared_memory_works_only_where_there_is_no_card() -> None:
    assert offload_devices([CPU]) == []
    assert offload_devices([ON_CHIP, CPU]) == [ON_CHIP]
    assert offload_devices([FIRST, ON_CHIP, CPU]) == [FIRST]


def test_a_card_that_two_backends_see_is_used_once() -> None:
    again = device("Vulkan0", hardware=FIRST.hardware_id)
    assert offload_devices([FIRST, SECOND, again, CPU]) == [FIRST, SECOND]
    assert offload_devices([ON_CHIP, device("ROCm0", shared=True), CPU]) == [ON_CHIP]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (LoadOptions(split_mode="none", main_gpu=2), r"no GPU 2 .* 0 is CUDA0, 1 is CUDA1"),
        (LoadOptions(tensor_split=(1, 1, 1)), r"shares for 3 GPUs, there are 2"),
        (LoadOptions(tensor_split=(0, 0)), r"no GPU a share"),
        (LoadOptions(split_mode="row"), r"CUDA cannot split rows .* layer or none"),
    ],
)
def test_what_the_gpus_cannot_do_is_refused_before_the_load(
    options: LoadOptions, complaint: str
) -> None:
    with pytest.raises(ModelLoadError, match=complaint):
        chosen_devices(options, [FIRST, SECOND, CPU])


def test_without_a_gpu_in_play_its_options_do_not_matter() -> None:
    """A configuration made for another machine still loads here."""
    chosen_devices(LoadOptions(split_mode="row", main_gpu=3, tensor_split=(0, 0)), [CPU])
    on_cpu = LoadOptions(n_gpu_layers=0, split_mode="none", main_gpu=3)
    chosen_devices(on_cpu, [FIRST, CPU])


def test_rows_are_split_where_the_backend_can() -> None:
    chosen_devices(LoadOptions(split_mode="row"), [device("SYCL0"), CPU])


def test_the_draft_goes_whole_to_the_gpu_of_the_output_head() -> None:
    """It sees the other GPUs too: it may use tensors of the target that lie there."""
    layers = for_the_draft(LoadOptions(), 3)
    assert (layers.split_mode, layers.tensor_split) == ("layer", (0, 0, 1))
    rows = for_the_draft(LoadOptions(split_mode="row"), 2)
    assert (rows.split_mode, rows.tensor_split) == ("layer", (0, 1))
    shares = for_the_draft(LoadOptions(tensor_split=(3, 1, 0)), 3)
    assert shares.tensor_split == (0, 1, 0)


def test_the_draft_of_a_target_on_one_device_goes_there_too() -> None:
    alone = LoadOptions(split_mode="none", main_gpu=1)
    assert for_the_draft(alone, 1) == alone
    assert for_the_draft(LoadOptions(n_gpu_layers=12), 1) == LoadOptions(n_gpu_layers=12)
    assert for_the_draft(LoadOptions(), 0) == LoadOptions()
