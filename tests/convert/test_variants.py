"""Every dialect of checkpoint becomes exactly what llama.cpp's own converter makes of it.

golden.json was written by make_golden.py with llama.cpp's convert_hf_to_gguf classes (the sources
in llama-cpp-python 0.3.36), torch 2.13 and transformers 5.23.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from eaglechat.engine.drafters.eagle3 import norms_of
from eaglechat.gguf.pairing import check_pair
from eaglechat.hub.convert import convert
from tests.convert.checkpoints import (
    HEADS,
    HIDDEN,
    KV_HEADS,
    N_LAYERS,
    YARN_SCALING,
    Variant,
    draft,
    fields,
    tensors,
    variants,
    write_target,
)

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden.json").read_text())


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target.gguf")


def converted(variant: Variant, target: Path, kind: str = "f32", name: str = "draft") -> Path:
    checkpoint = variant.save(target.parent / name)
    return convert(checkpoint, target, target.parent / f"{name}-{kind}.gguf", kind).path


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("name", variants())
def test_the_result_is_what_llama_cpp_writes(name: str, kind: str, target: Path) -> None:
    path = converted(variants()[name], target, kind, name)
    expected = GOLDEN[f"{name}-{kind}"]
    assert tensors(path) == expected["tensors"]
    written = {k: v for k, v in fields(path).items() if not k.startswith("tokenizer.")}
    head_dim = expected["fields"]["eagle3.rope.dimension_count"]
    # Upstream leaves these out where config.json does; llama.cpp then assumes the same values.
    for key in ("eagle3.attention.key_length", "eagle3.attention.value_length"):
        expected["fields"].setdefault(key, head_dim)
    assert written == expected["fields"]
    _, header = check_pair(target, path)
    assert header is not None
    assert header.numbers("eagle3.target_layers") == (2, N_LAYERS // 2, N_LAYERS - 3)


def test_the_tokenizer_is_the_targets(target: Path) -> None:
    path = converted(draft(), target)
    expected = {k: v for k, v in fields(target).items() if k.startswith("tokenizer.")}
    assert "tokenizer.chat_template" in expected
    assert {k: v for k, v in fields(path).items() if k.startswith("tokenizer.")} == expected


@pytest.mark.parametrize("place", ["top", "eagle_config"])
@pytest.mark.parametrize(
    ("ids", "layers"), [([2, 5, 8], [2, 5, 8]), ([1, 5, 8], [2, 6, 9]), ([0, 5, 8], [0, 5, 8])]
)
def test_layer_ids_are_read_in_both_conventions(
    place: str, ids: list[int], layers: list[int], target: Path, tmp_path: Path
) -> None:
    flags = {"eagle_aux_hidden_state_layer_ids": ids}
    variant = draft(**flags) if place == "top" else draft(eagle_config=flags)
    report = convert(variant.save(tmp_path / "draft"), target, tmp_path / "draft.gguf", "f32")
    assert list(report.target_layers) == layers
    assert fields(report.path)["eagle3.target_layers"] == ["ARRAY/INT32", layers]
    assert any("count outputs" in note for note in report.notes) == (ids[0] == 1)


@pytest.mark.parametrize(
    "given",
    [
        {"sliding_window": 512},
        {"sliding_window": 4096, "layer_types": ["sliding_attention"]},
        {"sliding_window": None, "use_sliding_window": True},
        {"sliding_window": 512, "layer_types": ["full_attention"]},
    ],
)
def test_a_window_that_is_not_used_or_not_passed_changes_nothing(
    given: dict[str, Any], target: Path
) -> None:
    plain = converted(draft(), target, name="plain")
    assert tensors(converted(draft(**given), target, name="window")) == tensors(plain)


@pytest.mark.parametrize("last", ["full_attention", "sliding_attention"])
def test_rope_parameters_by_layer_type_are_read_as_the_trainer_speculators_reads_them(
    last: str, target: Path
) -> None:
    """Whatever their order is, those of sliding attention come first."""
    thetas = {"full_attention": 1e6, "sliding_attention": 1e4}
    ordered = sorted(thetas, key=lambda layer_type: layer_type == last)
    nested = {one: {"rope_type": "default", "rope_theta": thetas[one]} for one in ordered}
    path = converted(draft(rope_parameters=nested), target)
    assert fields(path)["eagle3.rope.freq_base"] == ["FLOAT32", 1e4]


def test_hunyuans_scaling_of_rope_enlarges_its_base(target: Path) -> None:
    scaling = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}
    path = converted(draft(head_dim=128, rope_theta=1e4, rope_scaling=scaling), target)
    kind, base = fields(path)["eagle3.rope.freq_base"]
    # As llama.cpp converts Hunyuan's models.
    assert (kind, base) == ("FLOAT32", pytest.approx(11158840, rel=1e-4))
    assert not any("rope.scaling" in name for name in fields(path))


@pytest.mark.parametrize("place", ["top", "rope_parameters"])
def test_a_share_of_each_head_is_rotated(place: str, target: Path) -> None:
    share = {"partial_rotary_factor": 0.5}
    variant = (
        draft(head_dim=16, **share)
        if place == "top"
        else draft(head_dim=16, rope_parameters={"rope_theta": 500000.0, **share})
    )
    path = converted(variant, target)
    assert fields(path)["eagle3.rope.dimension_count"] == ["UINT32", 8]
    assert fields(path)["eagle3.attention.key_length"] == ["UINT32", 16]
    stored = {t.name: t.data for t in gguf.GGUFReader(path).tensors}
    state = np.random.default_rng(1).standard_normal(2 * HIDDEN)
    for name, heads in (("q", HEADS), ("k", KV_HEADS)):
        _, weights = variant.tensors[f"midlayer.self_attn.{name}_proj.weight"]
        ours = stored[f"blk.0.attn_{name}.weight"].reshape(weights.shape)
        # Rotated by 3 positions as transformers does it, and as ggml does it in NORM order.
        theirs_rotated = [rotated_in_halves(h) for h in (weights @ state).reshape(heads, 16)]
        ours_rotated = [rotated_in_pairs(h) for h in (ours @ state).reshape(heads, 16)]
        for one, other in zip(theirs_rotated, ours_rotated, strict=True):
            pairs = np.concatenate([one[:8].reshape(2, 4).T.reshape(8), one[8:]])
            np.testing.assert_allclose(other, pairs, rtol=1e-6)


ANGLES = 3 * 500000.0 ** (-np.arange(0, 8, 2) / 8)


def rotated_in_halves(head: np.ndarray) -> np.ndarray:
    a, b, rest = head[:4], head[4:8], head[8:]
    cos, sin = np.cos(ANGLES), np.sin(ANGLES)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest])


def rotated_in_pairs(head: np.ndarray) -> np.ndarray:
    pairs = head[:8].reshape(4, 2)
    cos, sin = np.cos(ANGLES), np.sin(ANGLES)
    turned = [pairs[:, 0] * cos - pairs[:, 1] * sin, pairs[:, 1] * cos + pairs[:, 0] * sin]
    return np.concatenate([np.stack(turned, axis=1).reshape(8), head[8:]])


def test_the_tensors_decide_the_head_size(target: Path, tmp_path: Path) -> None:
    checkpoint = draft(head_dim=16).save(tmp_path / "right")
    wrong = draft(head_dim=16)
    wrong.config["head_dim"] = 8
    right_path = convert(checkpoint, target, tmp_path / "right.gguf", "f32").path
    report = convert(wrong.save(tmp_path / "wrong"), target, tmp_path / "wrong.gguf", "f32")
    assert tensors(report.path) == tensors(right_path)
    assert fields(report.path)["eagle3.attention.key_length"] == ["UINT32", 16]
    assert report.notes[1] == "config.json says head_dim 8, the tensors have 16"
    assert "the usual 2, 6, 9 were taken" in report.notes[0]


def test_tensors_larger_than_one_piece_are_the_same(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = converted(draft(embeddings=True, head_dim=16), target, "q8_0", "whole")
    monkeypatch.setattr("eaglechat.hub.convert.draft_gguf.CHUNK_VALUES", 100)
    pieces = converted(draft(embeddings=True, head_dim=16), target, "q8_0", "pieces")
    assert tensors(pieces) == tensors(whole)


def test_norms_of_eagle_3_1_are_multiplied_in_and_named(target: Path, tmp_path: Path) -> None:
    variant = draft(
        fc_norm=True, norm_output=True, dtype="F32", architectures=["Eagle3LlamaForCausalLM"]
    )
    for third in range(3):
        variant.put(f"fc_norm.{third}.weight", HIDDEN, dtype="F32")
    report = convert(variant.save(tmp_path / "draft"), target, tmp_path / "draft.gguf", "f32")
    stored = {tensor.name: tensor.data for tensor in gguf.GGUFReader(report.path).tensors}
    norms = [variant.tensors[f"fc_norm.{third}.weight"][1] for third in range(3)]
    assert np.array_equal(stored["fc.weight"], variant.tensors["fc.weight"][1] * np.hstack(norms))
    assert set(stored) == set(tensors(converted(draft(), target, name="plain")))
    for key in ("eaglechat.fc_norm", "eaglechat.norm_output"):
        assert fields(report.path)[key] == ["BOOL", True]
    assert "an EAGLE-3.1 draft" in report.notes[-1]
    _, header = check_pair(target, report.path)
    assert header is not None
    norm = norms_of(header)
    assert norm.features
    assert norm.output is not None
    assert np.array_equal(norm.output, variant.tensors["norm.weight"][1])


@pytest.mark.parametrize(("beta_fast", "is_noted"), [(32.0, False), (16.0, True)])
def test_figures_of_yarn_that_llama_cpp_ignores_are_pointed_out(
    beta_fast: float, is_noted: bool, target: Path, tmp_path: Path
) -> None:
    variant = draft(rope_scaling={**YARN_SCALING, "beta_fast": beta_fast})
    report = convert(variant.save(tmp_path / "draft"), target, tmp_path / "draft.gguf", "f32")
    assert any("beta_fast 32" in note for note in report.notes) == is_noted
