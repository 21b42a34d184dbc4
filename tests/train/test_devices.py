"""Where training computes, and that one thread at a time does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the extra train")

from eaglechat.hub.convert.target import read_target
from eaglechat.train import trainer
from eaglechat.train.batches import Place, prepared
from eaglechat.train.corpus import Sample
from eaglechat.train.network import TrainingSetup
from eaglechat.train.settings import Recipe
from eaglechat.train.target import shape_of
from eaglechat.train.trainer import best_device, best_type

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("has_cuda", "has_mps", "chosen"),
    [(True, False, "cuda"), (True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_a_gpu_is_chosen_where_there_is_one(
    has_cuda: bool, has_mps: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: has_mps)

    assert best_device().type == chosen


@pytest.mark.parametrize(
    ("device", "cpu", "chosen"),
    [
        ("mps", "flags : avx512_bf16", torch.float32),
        ("cpu", "flags : avx512f avx512_bf16 avx512_vnni", torch.bfloat16),
        ("cpu", "Features : fp asimd bf16 i8mm", torch.bfloat16),
        ("cpu", "flags : avx2 fma", torch.float32),
    ],
)
def test_bfloat16_is_used_where_the_processor_has_it(
    device: str, cpu: str, chosen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, features = cpu.partition(" : ")
    monkeypatch.setattr(trainer, "cpu_info", lambda field: features if field == name else "")
    assert best_type(torch.device(device)) is chosen


class Zeros:
    """Features of nothing."""

    def rows(self, sample: Sample) -> Any:
        return np.zeros((len(sample.tokens), 4 * 8), dtype=np.float16)


def test_only_one_thread_touches_the_device(
    tiny_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved_by = []
    move: Callable[..., Any] = torch.Tensor.to

    def watched(tensor: Any, *args: Any) -> Any:
        moved_by.append(threading.current_thread())
        return move(tensor, *args)

    monkeypatch.setattr(torch.Tensor, "to", watched)
    setup = TrainingSetup(
        shape=shape_of(read_target(tiny_files[0])), recipe=Recipe(), feature_scale=None,
        embeddings=None, target_head=None, soft_cap=None, draft_ids=np.arange(32),
        dtype=torch.float32, device=torch.device("meta"),
    )  # fmt: skip
    samples = [Sample(np.arange(20, dtype=np.int32), ((5, 20),))]

    with closing(prepared(samples, Place(), Zeros(), setup)) as coming:
        batches = [next(coming)[0] for _ in range(3)]

    assert {batch.features.device.type for batch in batches} == {"meta"}
    assert {batch.labels.device.type for batch in batches} == {"meta"}
    assert set(moved_by) == {threading.current_thread()}
