"""The draft as llama.cpp's eagle3 graph computes it, unrolled for training.

At position P the draft reads the pair (token[P+1], g[P]) and predicts token[P+2]; `fc` makes g[P]
from the inputs of three layers of the target. Step j of the chain that begins at base P is at
position P+j-1, reads (token[P+j], the state of step j-1 before the output norm) and predicts
token[P+j+1]. This is the training-time test of EAGLE-3 (arXiv 2503.01840). The keys that other
positions see are made from g, never from a state. RoPE rotates neighbouring pairs (llama.cpp's
NORM type). Weights have their GGUF names and numpy's order, [outputs, inputs].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import linear, rms_norm, silu

from eaglechat.gguf.preflight import EXTRACT_LAYERS
from eaglechat.hub.convert.draft import weight_shapes
from eaglechat.train.attention import chain_attention
from eaglechat.train.settings import Recipe
from eaglechat.train.target import HEAD, DraftShape


@dataclass(frozen=True)
class TrainingSetup:
    """What does not change while a draft is trained."""

    shape: DraftShape
    recipe: Recipe
    feature_scale: Any
    """[3 * n_embd]: the median size of each dimension of the features, which are divided by it."""
    embeddings: Any
    """[n_vocab, n_embd], each row divided by its root mean square."""
    target_head: Any
    """[draft vocabulary, n_embd]: rows of the target's output head."""
    soft_cap: float | None
    draft_ids: npt.NDArray[np.int64]
    """[n_vocab]: each token's index in the draft's vocabulary, or -1."""
    dtype: Any
    device: Any


Weights = Mapping[str, Any]

FEATURE_NORM = "enc.output_norm.weight"
FC = "fc.weight"
OUTPUT_NORM = "output_norm.weight"
TOKEN_NORM = "blk.0.attn_norm.weight"
STATE_NORM = "blk.0.attn_norm_2.weight"
FEED_NORM = "blk.0.ffn_norm.weight"
Q, K, V = (f"blk.0.attn_{part}.weight" for part in "qkv")
OUT = "blk.0.attn_output.weight"
GATE, UP, DOWN = (f"blk.0.ffn_{part}.weight" for part in ("gate", "up", "down"))


def trained_shapes(shape: DraftShape, n_draft_vocab: int) -> dict[str, tuple[int, ...]]:
    """The shape of every weight that is trained, in the order of the file."""
    shapes = weight_shapes(
        shape.n_embd,
        n_features=shape.n_features,
        q_rows=shape.n_heads * shape.head_dim,
        kv_rows=shape.n_kv_heads * shape.head_dim,
        feed_forward=shape.feed_forward,
        n_draft_vocab=n_draft_vocab,
    )
    if not shape.norm_before_fc:
        del shapes[FEATURE_NORM]
    return shapes


def new_weights(shape: DraftShape, head: Any, final_scale: Any, seed: int) -> dict[str, Any]:
    """Random weights to begin with.

    The output head begins as `head` [vocabulary, n_embd], the target's rows for the draft's
    vocabulary; the output norm as `final_scale` [n_embd], the size of the target's final states.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, extent in trained_shapes(shape, len(head)).items():
        if len(extent) == 1:
            weights[name] = torch.ones(extent)
        elif name == HEAD:
            weights[name] = head.clone().float()
        else:
            weights[name] = torch.randn(extent, generator=generator) / math.sqrt(extent[1])
    for name in (OUT, DOWN):
        weights[name] *= 0.5
    weights[OUTPUT_NORM] = final_scale.clone().float()
    return weights


@dataclass(frozen=True)
class Batch:
    """The rows of several samples, where chains begin in them, and what these learn. On one
    device."""

    features: Any
    """[rows, n_features] of all samples."""
    tokens: Any
    """[rows + steps]: the token of each row, then padding."""
    positions: Any
    """[rows]: the position of each row in its sample."""
    lengths: tuple[int, ...]
    """The number of rows of each sample."""
    bases: Any
    """[chains]: the rows where chains begin, ascending."""
    max_steps: Any
    """[rows]: the most steps of a chain that begins at this row; 0 if none begins there."""
    labels: Any
    """[rows + steps]: each token in the draft's vocabulary; -1 if that lacks it."""
    final_states: Any
    """[rows, n_embd]: the target's states after its output norm."""


@dataclass(frozen=True)
class Step:
    """One step of the chains that reach it."""

    bases: Any
    """[chains]: the row where each chain began."""
    normed: Any
    """[chains, n_embd]: the state after the output norm."""
    state: Any
    """[chains, n_embd]: the state before the output norm."""


class Unrolled:
    """A forward pass over chains, step by step. The caller decides which chains go on."""

    def __init__(self, weights: Weights, setup: TrainingSetup, batch: Batch) -> None:
        """The weights' `fc` is for features that are divided by the setup's scale."""
        dtype = setup.dtype
        self._shape = setup.shape
        self._weights = {
            name: weight.to(dtype) if weight.ndim > 1 else weight
            for name, weight in weights.items()
            if name != HEAD
        }
        self._embeddings = setup.embeddings
        self._batch = batch
        self._dtype = dtype
        frequencies = setup.shape.rope.frequencies
        self._frequencies = torch.tensor(frequencies, device=batch.features.device)
        features = normed_features(batch.features.float(), self._weights, setup.shape)
        features = (features / setup.feature_scale).to(dtype)
        g = linear(features, self._weights[FC]).float()
        rows = torch.arange(len(g), device=g.device)
        everything = self._inputs(batch.tokens[rows + 1], g)
        self._text_k = self._rotated(self._heads(everything, K), batch.positions)
        self._text_v = self._heads(everything, V)
        self._everything, self._g = everything, g
        self._chain_k, self._chain_v = (
            part[batch.bases][None][:0] for part in (self._text_k, self._text_v)
        )

    def first(self) -> Step:
        """Step 1 of all chains, from the target's features."""
        bases = self._batch.bases
        inputs, state = self._everything[bases], self._g[bases]
        return self._step(1, bases, inputs, state)

    def following(self, number: int, before: Step, going_on: Any) -> Step:
        """Step `number` of the chains of step `before` whose indices are in `going_on`."""
        bases = before.bases[going_on]
        state = before.state[going_on]
        if self._shape.norm_output:
            state = self._normed(state, OUTPUT_NORM)
        inputs = self._inputs(self._batch.tokens[bases + number], state)
        positions = self._batch.positions[bases] + (number - 1)
        key, value = self._rotated(self._heads(inputs, K), positions), self._heads(inputs, V)
        self._chain_k = torch.cat([self._chain_k[:, going_on], key[None]])
        self._chain_v = torch.cat([self._chain_v[:, going_on], value[None]])
        return self._step(number, bases, inputs, state)

    def _step(self, number: int, bases: Any, inputs: Any, state: Any) -> Step:
        positions = self._batch.positions[bases] + (number - 1)
        query = self._rotated(self._heads(inputs, Q), positions)
        text, chain = (self._text_k, self._text_v), (self._chain_k, self._chain_v)
        mixed = chain_attention(query, text, chain, bases, self._batch.lengths)
        if self._shape.norm_before_residual:
            state = self._normed(state, STATE_NORM)
        state = state + linear(mixed.flatten(1), self._weights[OUT]).float()
        feed = self._normed(state, FEED_NORM).to(self._dtype)
        feed = silu(linear(feed, self._weights[GATE])) * linear(feed, self._weights[UP])
        state = state + linear(feed, self._weights[DOWN]).float()
        return Step(bases, self._normed(state, OUTPUT_NORM).to(self._dtype), state)

    def _inputs(self, tokens: Any, state: Any) -> Any:
        embedding = self._embeddings[tokens].float() * self._weights[TOKEN_NORM]
        return torch.cat([embedding, self._normed(state, STATE_NORM)], -1).to(self._dtype)

    def _normed(self, values: Any, name: str) -> Any:
        return rms_norm(values, values.shape[-1:], self._weights[name], self._shape.rms_eps)

    def _heads(self, inputs: Any, name: str) -> Any:
        return linear(inputs, self._weights[name]).unflatten(1, (-1, self._shape.head_dim))

    def _rotated(self, heads: Any, positions: Any) -> Any:
        """RoPE over the first n_rot values of each head, in neighbouring pairs."""
        rope = self._shape.rope
        angles = positions[:, None].float() * self._frequencies
        cos, sin = (rope.magnitude * part[:, None] for part in (angles.cos(), angles.sin()))
        pairs = heads[..., : rope.n_rot].float().unflatten(-1, (-1, 2))
        even, odd = pairs[..., 0], pairs[..., 1]
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
        return torch.cat([turned.flatten(-2).to(heads.dtype), heads[..., rope.n_rot :]], -1)


def normed_features(features: Any, weights: Weights, shape: DraftShape) -> Any:
    """The features [rows, n_features] after the draft's norms before `fc`."""
    if shape.fc_norm:
        layers = features.unflatten(-1, (EXTRACT_LAYERS, -1))
        features = rms_norm(layers, layers.shape[-1:], eps=shape.rms_eps).flatten(-2)
    if shape.norm_before_fc:
        scale = weights[FEATURE_NORM]
        features = rms_norm(features, features.shape[-1:], scale, shape.rms_eps)
    return features
