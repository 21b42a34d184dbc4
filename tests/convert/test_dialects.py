"""A draft of every dialect of trainer, converted: the engine drafts what its trainer would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from eaglechat.engine.drafters.eagle3 import Eagle3Drafter, draft_window, norms_of
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Batch, Model
from eaglechat.gguf.header import read_header
from eaglechat.hub.convert import convert
from eaglechat.wire.protocol import LoadOptions
from tests import tiny
from tests.convert.checkpoints import Variant, draft, nested
from tests.convert.reference import Trained, behind
from tests.engine.rig import decode, open_contexts

LAYERS = [0, 2, 3]
N_DRAFT = 5
WINDOW = 24
ROUNDING = 0.005
SIZES = {
    "vocab": len(tiny.TOKENS),
    "full_vocabulary": True,
    "eagle_aux_hidden_state_layer_ids": LAYERS,
    "rope_theta": 1e4,
}


def checkpoint(prefix: str = "midlayer.", **features: Any) -> Variant:
    variant = draft(prefix, **{**SIZES, **features})
    config = {**features.get("eagle_config", {}), **features}
    if config.get("norm_before_fc"):
        variant.put("input_norm.weight", 3 * tiny.N_EMBD)
    for third in range(3 if config.get("fc_norm") else 0):
        variant.put(f"fc_norm.{third}.weight", tiny.N_EMBD)
    return variant


def speculators(**features: Any) -> Variant:
    variant = checkpoint("layers.0.", **features)
    own = {name: variant.config.pop(name, False) for name in ("fc_norm", "norm_output")}
    variant = nested(variant, "Eagle3DraftModel")
    variant.config.update(own)
    return variant


def with_model_prefix(variant: Variant) -> Variant:
    return Variant(variant.config, {f"model.{k}": v for k, v in variant.tensors.items()})


def unnormed(variant: Variant) -> Variant:
    """The norm before the head was never used, so it was never trained."""
    variant.tensors["norm.weight"] = ("F32", np.ones(tiny.N_EMBD, np.float32))
    return variant


def with_candidate_head(variant: Variant) -> Variant:
    """EAGLE-4's low-rank head, which proposes what the full head scores."""
    variant.put("efficient_lm_head.weight", len(tiny.TOKENS), 8)
    variant.put("efficient_lm_head_down_proj.weight", 8, tiny.N_EMBD)
    return variant


EAGLE_3, EAGLE_31 = Trained(), Trained("each", "normed")
DIALECTS: dict[str, tuple[Variant, Trained]] = {
    "EAGLE-3's authors": (checkpoint(architectures=["LlamaForCausalLM"]), EAGLE_3),
    "AngelSlim": (
        checkpoint(architectures=["Eagle3LlamaForCausalLM"], embeddings=True),
        EAGLE_3,
    ),
    "SpecForge": (checkpoint(full_vocabulary=False, draft_vocab=8), EAGLE_3),
    "SpecForge, norm_output false, since #879": (checkpoint(norm_output=False), EAGLE_3),
    "SpecForge, norm_output false, before #879": (
        unnormed(checkpoint(norm_output=False)),
        Trained(norms_before_head=False),
    ),
    "SpecForge, norm_output true, since #879": (
        checkpoint(norm_output=True),
        Trained(fed_back="normed"),
    ),
    "SpecForge, fc_norm": (checkpoint(fc_norm=True), Trained("each")),
    "SpecForge, fc_norm and norm_output true, since #879": (
        checkpoint(fc_norm=True, norm_output=True),
        EAGLE_31,
    ),
    "NVIDIA, flags in eagle_config": (
        checkpoint(eagle_config={"norm_before_fc": True}, architectures=["LlamaForCausalLMEagle3"]),
        Trained("whole"),
    ),
    "vLLM": (
        with_model_prefix(
            checkpoint(
                "layers.0.",
                architectures=["Eagle3LlamaForCausalLM"],
                fc_norm=True,
                norm_output=True,
                embeddings=True,
            )
        ),
        EAGLE_31,
    ),
    "speculators": (
        speculators(norm_before_residual=True),
        Trained(norms_before_residual=True),
    ),
    "speculators, norm_before_fc": (speculators(norm_before_fc=True), Trained("whole")),
    "speculators, norm_before_fc and norm_output": (
        speculators(norm_before_fc=True, norm_output=True),
        Trained("whole", "normed"),
    ),
    "EAGLE-4": (
        with_candidate_head(
            checkpoint(
                architectures=["LlamaForCausalLMEagle4"],
                fc_norm=True,
                norm_output=True,
                sliding_window=WINDOW,
            )
        ),
        Trained("each", "normed", window=WINDOW),
    ),
    "speculators, fc_norm": (speculators(fc_norm=True), Trained("each")),
    "speculators, fc_norm and norm_output": (
        speculators(fc_norm=True, norm_output=True, norm_before_residual=True),
        replace(EAGLE_31, norms_before_residual=True),
    ),
    "speculators, with a window": (
        speculators(
            norm_before_fc=True,
            norm_output=True,
            sliding_window=WINDOW,
            layer_types=["sliding_attention"],
        ),
        Trained("whole", "normed", window=WINDOW),
    ),
}


@dataclass(frozen=True)
class Target:
    file: Path
    model: Model
    matrices: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def target(tiny_files: tuple[Path, Path]) -> Iterator[Target]:
    backend.start_backend(backend.LOG_ERRORS)
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tiny_files[0]).tensors}
    matrices = {
        "embed_tokens": tensors["token_embd.weight"].astype(np.float64),
        "lm_head": tensors["output.weight"].astype(np.float64),
    }
    with Model(tiny_files[0]) as model:
        yield Target(tiny_files[0], model, matrices)


@dataclass(frozen=True)
class Drafted:
    """A draft of the engine's, and what it read."""

    features: np.ndarray
    tokens: list[int]
    draft: list[int]


def drafts(target: Target, variant: Variant, folder: Path, lengths: Sequence[int]) -> list[Drafted]:
    """What the engine drafts behind so many tokens of a text."""
    text = np.random.default_rng(6).integers(0, 26, max(lengths)).tolist()
    file = convert(variant.save(folder / "draft"), target.file, folder / "draft.gguf", "f32").path
    header = read_header(file)
    window = draft_window(header, LoadOptions().draft_window)
    found = []
    with Model(file) as model, open_contexts(target.model, model, n_seq=1) as contexts:
        for length in lengths:
            tokens = text[:length]
            with (
                closing(Eagle3Drafter(*contexts, norms=norms_of(header), window=window)) as drafter,
                Batch(contexts[0]) as batch,
            ):
                decode(contexts[0], batch, tokens[:-1], 0)
                layers = [contexts[0].layer_inputs(layer, length - 1) for layer in LAYERS]
                features = np.concatenate(layers, axis=1).astype(float)
                drafter.see(batch)
                draft = drafter.propose(length - 1, tokens[-1], Limits(N_DRAFT)).ids
            found.append(Drafted(features, tokens, draft))
            for context in contexts:
                context.forget(0, 0)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_engine_drafts_what_the_trainer_would(
    dialect: str, target: Target, tmp_path: Path
) -> None:
    variant, trained = DIALECTS[dialect]
    # The window moves 64 tokens at a time: behind these it has just moved.
    lengths = range(WINDOW + 64 + 1, 129, 3) if trained.window else range(4, 60, 4)
    found = drafts(target, variant, tmp_path, lengths)

    def furthest(trained: Trained) -> float:
        """Of any token, if the draft was trained so."""
        return max(max(behind(variant, trained, target.matrices, **vars(one))) for one in found)

    # Of two tokens as likely as each other, the precision of the KV cache decides.
    assert furthest(trained) < ROUNDING
    others = [replace(trained, fed_back="plain" if trained.fed_back == "normed" else "normed")]
    others += [replace(trained, features="plain")] if trained.features != "plain" else []
    others += [replace(trained, window=None)] if trained.window else []
    assert all(furthest(other) > 20 * ROUNDING for other in others)
