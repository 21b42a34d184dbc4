"""EAGLE-4 checkpoints: converted without their candidate head, they draft under their own name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eaglechat.engine.auto import calibration
from eaglechat.engine.llama import backend
from eaglechat.gguf.header import read_header
from eaglechat.gguf.pairing import kind_of
from eaglechat.hub.convert import convert
from eaglechat.hub.downloads.find_drafts import judge
from tests import tiny
from tests.convert.checkpoints import Variant, draft
from tests.engine.kind_pairs import Files, Kind, counts
from tests.hub.fakehub import Shelf

CLASS = "LlamaForCausalLMEagle4"
N, RANK = tiny.N_EMBD, 8


def checkpoint(**changes: Any) -> Variant:
    """A draft that guesses what follows the token that it reads: attention takes the state that was
    fed back out of the sum of both, which it can only if the output norm has made it small."""
    facts: dict[str, Any] = {
        "architectures": [CLASS],
        "fc_norm": True,
        "norm_output": True,
        "sliding_window": 4096,
        "max_position_embeddings": 262_144,
        "efficient_lm_head_config": {"type": "low_rank", "rank": RANK, "num_candidates": 8},
        "eagle_aux_hidden_state_layer_ids": [0, 2, 3],
    }
    variant = draft(
        vocab=len(tiny.TOKENS),
        heads=tiny.N_HEADS,
        kv_heads=tiny.N_HEADS,
        full_vocabulary=True,
        lm_head=False,
        **{**facts, **changes},
    )
    output_norm = 0.05
    token, state = np.eye(N, 2 * N), np.eye(N, 2 * N, N)
    values = {
        "q_proj": 10 * token, "k_proj": 10 * token, "v_proj": 2 * token - output_norm * state,
        "o_proj": np.eye(N), "down_proj": np.zeros((N, 2 * N)), "fc": np.zeros((N, 3 * N)),
        "layernorm": np.ones(N), "hidden_norm": np.ones(N), "norm": np.full(N, output_norm),
    }  # fmt: skip
    for name in variant.tensors:
        found = [part for part in values if name.removesuffix(".weight").endswith(part)]
        if found:
            variant.tensors[name] = ("F32", values[found[0]])
    for third in range(3):
        variant.put(f"fc_norm.{third}.weight", N)
    variant.put("efficient_lm_head.weight", len(tiny.TOKENS), RANK)
    variant.put("efficient_lm_head_down_proj.weight", RANK, N)
    return variant


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tiny.write_target(tmp_path / "target.gguf", looks_back=False)


def test_it_drafts_with_its_full_head_under_its_own_name(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.start_backend(backend.LOG_ERRORS)
    monkeypatch.setattr(calibration, "BUDGET_S", 0.0)
    folder = target.parent
    report = convert(checkpoint().save(folder / "draft"), target, folder / "draft.gguf", "f32")
    header = read_header(report.path)
    assert kind_of(header) == "eagle4"
    assert header.get("eaglechat.sliding_window") == 4096
    assert not [tensor.name for tensor in header.tensors if "efficient" in tensor.name]
    assert "an EAGLE-4 draft" in report.notes[-1]
    files = Files(Kind("llama", 0.0, ("eagle4",)), target, report.path)
    with files.loaded() as pair:
        prompt = list(range(20))
        wanted = pair.reply(prompt, enabled=False).tokens
        reply = pair.reply(prompt, drafter="eagle4", n=4)
    assert reply.offs == []
    assert reply.tokens == wanted
    assert {token.drafter for round_ in reply.rounds for token in round_.drafted} == {"eagle4"}
    # The norms make the second guess of a draft as good as the first.
    assert max(counts(reply)) > 1


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({}, 4096),
        ({"max_position_embeddings": 4096}, 4096),
        ({"layer_types": ["sliding_attention"]}, 4096),
        ({"layer_types": ["full_attention"]}, None),
        ({"sliding_window": None}, None),
    ],
)
def test_its_window_is_used_unless_its_layer_has_none(
    changes: dict[str, Any], window: int | None, target: Path
) -> None:
    folder = target.parent
    out = folder / "draft.gguf"
    convert(checkpoint(**changes).save(folder / "draft"), target, out, "f32")
    assert read_header(out).get("eaglechat.sliding_window") == window


@pytest.mark.parametrize("class_", [CLASS, "Eagle4LlamaForCausalLM"])
def test_the_hub_is_asked_for_its_config_alone(class_: str, target: Path) -> None:
    folder = target.parent / "draft"
    folder.mkdir()
    config = checkpoint(architectures=[class_]).config
    (folder / "config.json").write_text(json.dumps(config))
    shelf = Shelf(folder)
    judged = judge(shelf, shelf.listing(), read_header(target))
    assert (judged.problem, judged.kind) == (None, "eagle4")
