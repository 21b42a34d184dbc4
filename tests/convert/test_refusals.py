"""What llama.cpp cannot run is refused before anything is written, with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eaglechat.gguf.header import read_header
from eaglechat.hub.convert import ConversionError, convert
from eaglechat.hub.downloads.find_drafts import judge
from tests.convert.checkpoints import (
    DRAFT_VOCAB,
    HIDDEN,
    LLAMA3_SCALING,
    VOCAB,
    Variant,
    draft,
    draft_tokens,
    nested,
    write_target,
)
from tests.hub.fakehub import Shelf


def with_tensor(name: str, *shape: int, dtype: str = "BF16", **config: Any) -> Variant:
    variant = draft(**config)
    variant.put(name, *shape, dtype=dtype)
    return variant


def without(name: str) -> Variant:
    variant = draft()
    del variant.tensors[name]
    return variant


def gated_q() -> Variant:
    return with_tensor("midlayer.self_attn.q_proj.weight", 2 * HIDDEN, 2 * HIDDEN)


def d2t(*changes: tuple[int, int]) -> Variant:
    variant, ids = draft(), draft_tokens()
    for place, token in changes:
        ids[place] = token
    variant.tensors["d2t"] = ("I64", ids - np.arange(DRAFT_VOCAB))
    return variant


def damaged(value: float, dtype: str = "BF16") -> Variant:
    variant = draft(dtype=dtype)
    _, values = variant.tensors["fc.weight"]
    values[3, 5] = value
    return variant


Case = tuple[Callable[[], Variant], str]

REFUSED_BY_CONFIG: dict[str, Case] = {
    "MLA by name": (
        lambda: draft(architectures=["Eagle3DeepseekV2ForCausalLM"]), "DeepSeek's multi-head latent"
    ),
    "MLA by config": (lambda: draft(kv_lora_rank=512), "DeepSeek's multi-head latent"),
    "two norms before fc": (
        lambda: draft(fc_norm=True, norm_before_fc=True), "two ways to norm the same features"
    ),
    "P-EAGLE by config": (lambda: draft(parallel_drafting=True), "P-EAGLE"),
    "P-EAGLE by model type": (
        lambda: Variant(
            {**nested(draft(), "PEagleDraftModel").config, "speculators_model_type": "peagle"}
        ),
        "P-EAGLE",
    ),
    "DFlash by its class": (
        lambda: draft(architectures=["DFlashDraftModel"], num_hidden_layers=5),
        "DFlashDraftModel is a DFlash draft, and only EAGLE-3 checkpoints are converted: look for",
    ),
    "DSpark by its class": (lambda: draft(architectures=["Qwen3DSparkModel"]), "a DSpark draft"),
    "DFlash by its type": (
        lambda: draft(architectures=None, speculators_model_type="dflash"), "checkpoint is a DFlash"
    ),
    "two layers by config": (lambda: draft(num_hidden_layers=2), "has 2 layers.*drafts of 1"),
    "one hidden state by config": (
        lambda: draft(eagle_config={"use_aux_hidden_state": False}), "reads one hidden state"
    ),
    "four layers of the target": (
        lambda: draft(eagle_aux_hidden_state_layer_ids=[2, 4, 6, 8]), "reads 4 layers"
    ),
    "layers the target lacks": (
        lambda: draft(eagle_aux_hidden_state_layer_ids=[2, 6, 12]),
        r"layers 2, 6, 12 of its target, target.gguf offers 0 to 11",
    ),
    "nothing rotated": (lambda: draft(partial_rotary_factor=0.0), "partial_rotary_factor"),
    "another activation": (lambda: draft(hidden_act="gelu"), "activation gelu"),
    "longrope": (
        lambda: draft(rope_scaling={"type": "longrope"}), "RoPE by the type longrope"
    ),
    "impossible llama3 scaling": (
        lambda: draft(rope_scaling={**LLAMA3_SCALING, "high_freq_factor": 1.0}), "impossible"
    ),
    "yarn without a factor": (lambda: draft(rope_scaling={"type": "yarn"}), "names no factor"),
    "llama3 scaling by zero": (
        lambda: draft(rope_scaling={**LLAMA3_SCALING, "low_freq_factor": 0}), "low_freq_factor"
    ),
    "config with a list for a table": (lambda: draft(eagle_config=[1]), "Expected `object`"),
    "config with an endless size": (lambda: draft(max_position_embeddings=2**70), "max_position"),
    "config without hidden_size": (lambda: draft(hidden_size=None), "hidden_size"),
    "config with a wrong type": (lambda: draft(vocab_size="many"), r"Expected `int`.*vocab_size"),
    "EAGLE-4 with latent experts": (
        lambda: draft(architectures=["LlamaForCausalLMEagle4"], enable_moe=True),
        r"Eagle4 is a latent mixture of experts \(enable_moe\)",
    ),
    "EAGLE-4 without RoPE": (
        lambda: draft(architectures=["LlamaForCausalLMEagle4"], use_rope=False),
        r"Eagle4 has no rotary position embedding \(use_rope is false\)",
    ),
}  # fmt: skip

REFUSED_BY_TENSORS: dict[str, Case] = {
    "gated Q": (gated_q, r"k_proj.weight has the shape \[16, 64\].* needs \[32, 64\]"),
    "MLA by tensor": (
        lambda: with_tensor("midlayer.self_attn.kv_a_proj_with_mqa.weight", 8, 64),
        "no place for.*kv_a_proj_with_mqa",
    ),
    "missing fc_norm": (lambda: draft(fc_norm=True), "lacks fc_norm.0.weight, fc_norm.1.weight, f"),
    "unannounced fc_norm": (
        lambda: with_tensor("fc_norm.0.weight", HIDDEN), "sets neither norm_before_fc nor fc_norm"
    ),
    "P-EAGLE by tensor": (
        lambda: with_tensor("mask_hidden", 1, 3 * HIDDEN), "no place for.*mask_hidden"
    ),
    "two layers by tensor": (
        lambda: with_tensor("layers.1.input_layernorm.weight", HIDDEN), "no place for.*layers.1"
    ),
    "Q bias": (
        lambda: with_tensor("midlayer.self_attn.q_proj.bias", HIDDEN), "no biases.*q_proj.bias"
    ),
    "experts": (
        lambda: with_tensor("midlayer.mlp.experts.0.up_proj.weight", 8, HIDDEN), "mixture of expert"
    ),
    "quantised weights": (
        lambda: with_tensor("midlayer.mlp.up_proj.weight_scale", 64, 1), "already quantised"
    ),
    "F8 weights": (
        lambda: with_tensor("fc.weight", HIDDEN, 3 * HIDDEN, dtype="F8_E4M3"), "stored as F8_E4M3"
    ),
    "norms of queries and keys": (
        lambda: with_tensor("midlayer.self_attn.q_norm.weight", 8), "norms queries and.*q_norm"
    ),
    "unknown tensor": (
        lambda: with_tensor("midlayer.self_attn.sinks", 8), "no place for.*sinks"
    ),
    "one hidden state by tensor": (
        lambda: with_tensor("fc.weight", HIDDEN, HIDDEN), r"shape \[32, 32\].*needs \[32, 96\]"
    ),
    "an odd share of rotated values": (
        lambda: draft(partial_rotary_factor=0.4), "rotates 3 of the 8 values of a head"
    ),
    "EAGLE-2": (
        lambda: without("midlayer.hidden_norm.weight"), "not an EAGLE-3 dr.*: it lacks layers.0.h"
    ),
    "a plain model": (lambda: without("fc.weight"), "not an EAGLE-3 dr.*: it lacks fc.weight"),
    "missing tensors": (lambda: without("midlayer.mlp.up_proj.weight"), "lacks.*up_proj"),
    "missing lm_head": (lambda: without("lm_head.weight"), "not whole: it lacks lm_head.weight"),
    "missing input_norm": (lambda: draft(norm_before_fc=True), "lacks input_norm.weight"),
    "unannounced input_norm": (
        lambda: with_tensor("input_norm.weight", 3 * HIDDEN), "sets neither norm_before_fc nor fc_"
    ),
    "d2t out of range": (lambda: d2t((63, VOCAB)), "names token 320, target.gguf has tokens 0 to"),
    "d2t negative": (lambda: d2t((0, -1)), "names token -1"),
    "d2t duplicated": (lambda: d2t((5, 3)), "names token 3 twice"),
    "d2t as floats": (
        lambda: with_tensor("d2t", DRAFT_VOCAB, dtype="F32"), "d2t is stored as F32"
    ),
    "another shape": (
        lambda: with_tensor("lm_head.weight", 60, HIDDEN), r"shape \[60, 32\].*needs \[64, 32\]"
    ),
    "heads that do not divide": (lambda: draft(num_attention_heads=5), "do not divide"),
    "NaN": (lambda: damaged(np.nan), "fc.weight holds NaN or infinity"),
    "too large for F16": (lambda: damaged(1e9), "too large for F16; convert to bf16"),
}  # fmt: skip


@pytest.mark.parametrize("case", [*REFUSED_BY_CONFIG, *REFUSED_BY_TENSORS])
def test_refused(case: str, tmp_path: Path) -> None:
    make, reason = {**REFUSED_BY_CONFIG, **REFUSED_BY_TENSORS}[case]
    checkpoint = make().save(tmp_path / "draft")
    target = write_target(tmp_path / "target.gguf")
    out = tmp_path / "out" / "draft.gguf"
    out.parent.mkdir()
    with pytest.raises(ConversionError, match=reason):
        convert(checkpoint, target, out, "f16")
    assert list(out.parent.iterdir()) == []
    # On the Hub, before its download, it is judged by its config.json.
    shelf = Shelf(checkpoint)
    judged = judge(shelf, shelf.listing(), read_header(target))
    if case in REFUSED_BY_CONFIG:
        assert re.search(reason, judged.problem or "")
    else:
        assert judged.problem is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden": 48}, "target with hidden size 32, target.gguf has 48"),
        ({"vocab": 300}, "vocabulary of 320 tokens, target.gguf has 300"),
        ({"architecture": "phi3"}, "has the architecture phi3, whose llama.cpp graph"),
        ({"architecture": "eagle3"}, "is itself an EAGLE-3 draft"),
    ],
)
def test_a_target_that_does_not_fit(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    variant = draft()
    if changes.get("vocab"):
        # Tokens beyond the smaller vocabulary would be refused first.
        variant.tensors["d2t"] = ("I64", np.zeros(DRAFT_VOCAB, np.int64))
    target = write_target(tmp_path / "target.gguf", **changes)
    with pytest.raises(ConversionError, match=reason):
        convert(variant.save(tmp_path / "draft"), target, tmp_path / "draft.gguf")


def test_a_narrow_draft_needs_its_own_embeddings(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target.gguf", hidden=2 * HIDDEN)
    variant = draft(target_hidden_size=2 * HIDDEN)
    variant.put("fc.weight", HIDDEN, 3 * 2 * HIDDEN)
    with pytest.raises(ConversionError, match=r"not whole: it lacks embed_tokens\.weight"):
        convert(variant.save(tmp_path / "draft"), target, tmp_path / "draft.gguf")
    variant.put("embed_tokens.weight", VOCAB, HIDDEN)
    report = convert(variant.save(tmp_path / "draft"), target, tmp_path / "draft.gguf")
    assert report.path.exists()
