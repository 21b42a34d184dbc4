from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Model
from eaglechat.hub.convert import convert
from tests import tiny
from tests.convert.checkpoints import draft


@pytest.fixture
def tiny_target(tiny_files: tuple[Path, Path]) -> Iterator[Model]:
    backend.start_backend(backend.LOG_ERRORS)
    with Model(tiny_files[0]) as model:
        yield model


@pytest.fixture
def publish(tmp_path: Path) -> Callable[..., Path]:
    """Converts a checkpoint of random weights with these features, for a tiny target."""

    def publish(target: Path, *, hidden_size: int = tiny.N_EMBD, **features: Any) -> Path:
        # Not SpecForge's, whose norm_output would be measured.
        config = {
            "architectures": ["Eagle3LlamaForCausalLM"],
            "eagle_aux_hidden_state_layer_ids": [0, 2, 3],
            "rope_theta": 1e4,
            "target_hidden_size": tiny.N_EMBD,
            **features,
        }
        variant = draft(
            hidden=hidden_size, vocab=len(tiny.TOKENS), head_dim=16, full_vocabulary=True, **config
        )
        variant.put("fc.weight", hidden_size, 3 * tiny.N_EMBD)
        if features.get("norm_before_fc"):
            variant.put("input_norm.weight", 3 * tiny.N_EMBD)
        for layer in range(3 if features.get("fc_norm") else 0):
            variant.put(f"fc_norm.{layer}.weight", tiny.N_EMBD)
        checkpoint = variant.save(tmp_path / "checkpoint")
        return convert(checkpoint, target, tmp_path / "published.gguf", "f32").path

    return publish
