"""An EAGLE-3 draft computed from its checkpoint by numpy, as its trainer computes it: neither the
converter, nor llama.cpp, nor the engine has a part in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tests.convert.checkpoints import Variant

Array = np.ndarray


@dataclass(frozen=True)
class Trained:
    """What a trainer did that a checkpoint's tensors do not show."""

    features: Literal["plain", "whole", "each"] = "plain"
    """The norm before the encoder: none, one over all three layers, or one of each layer."""
    fed_back: Literal["plain", "normed"] = "plain"
    norms_before_head: bool = True
    norms_before_residual: bool = False
    window: int | None = None


def behind(
    variant: Variant,
    trained: Trained,
    shared: dict[str, Array],
    *,
    features: Array,
    tokens: list[int],
    draft: list[int],
) -> list[float]:
    """How far the logit of each token of a draft is below the largest, in shares of their range:
    0.0 if it is the likeliest token.

    `shared` has the target's `embed_tokens` and `lm_head`. `features` [len(tokens) - 1, 3 * hidden
    size of the target] are the inputs of the target's layers for all tokens but the last, behind
    which the draft stands.
    """
    config = {**variant.config, **variant.config.get("transformer_layer_config", {})}
    own = {_plain(name): values.astype(float) for name, (_, values) in variant.tensors.items()}
    network = _Network(config, shared | own, trained, len(tokens) - 1)
    for state, token in zip(network.encoded(features), tokens[1:], strict=True):
        output = network.output(state, token)
    found = []
    for drafted in draft:
        logits = network.logits(output)
        largest = max(logits.values())
        found.append((largest - logits[drafted]) / (largest - min(logits.values())))
        output = network.output(network.fed_back(output), drafted)
    return found


def _plain(name: str) -> str:
    parts = ("model.", "midlayer.", "layers.0.", "self_attn.", "mlp.")
    for part in parts:
        name = name.replace(part, "")
    return name.removesuffix(".weight")


class _Network:
    def __init__(
        self, config: dict[str, Any], weights: dict[str, Array], trained: Trained, n_known: int
    ) -> None:
        self._config, self._weights, self._trained = config, weights, trained
        self._keys: list[Array] = []
        self._values: list[Array] = []
        # llama.cpp's window moves between drafts, not within one.
        self._first = max(0, n_known - trained.window) if trained.window else 0

    def encoded(self, features: Array) -> Array:
        weights = self._weights
        if self._trained.features == "whole":
            features = self._normed(features, weights["input_norm"])
        elif self._trained.features == "each":
            thirds = np.split(features, 3, axis=1)
            norms = [weights[f"fc_norm.{third}"] for third in range(3)]
            normed = [self._normed(one, norm) for one, norm in zip(thirds, norms, strict=True)]
            features = np.concatenate(normed, axis=1)
        return features @ weights["fc"].T

    def output(self, state: Array, token: int) -> Array:
        """The layer's output at the next position, which reads this pair."""
        weights, config = self._weights, self._config
        position, heads = len(self._keys), config["num_attention_heads"]
        embedding = self._normed(weights["embed_tokens"][token], weights["input_layernorm"])
        normed = self._normed(state, weights["hidden_norm"])
        row = np.concatenate([embedding, normed])
        residual = normed if self._trained.norms_before_residual else state
        q, k, v = (weights[f"{name}_proj"] @ row for name in "qkv")
        kv_heads = config["num_key_value_heads"]
        self._keys.append(self._turned(k.reshape(kv_heads, -1), position))
        self._values.append(v.reshape(kv_heads, -1))
        # [position, head, value]
        keys, values = (
            np.repeat(np.stack(cached[min(self._first, position) :]), heads // kv_heads, axis=1)
            for cached in (self._keys, self._values)
        )
        queries = self._turned(q.reshape(heads, -1), position)
        scores = np.einsum("hd,phd->hp", queries, keys) / np.sqrt(queries.shape[1])
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        attended = np.einsum("hp,phd->hd", shares, values).reshape(-1)
        output = residual + weights["o_proj"] @ attended
        x = self._normed(output, weights["post_attention_layernorm"])
        gate = weights["gate_proj"] @ x
        activated = gate / (1 + np.exp(-gate)) * (weights["up_proj"] @ x)
        return output + weights["down_proj"] @ activated

    def fed_back(self, state: Array) -> Array:
        normed = self._trained.fed_back == "normed"
        return self._normed(state, self._weights["norm"]) if normed else state

    def logits(self, state: Array) -> dict[int, float]:
        """By token of the target."""
        if self._trained.norms_before_head:
            state = self._normed(state, self._weights["norm"])
        logits = self._weights["lm_head"] @ state
        ids = np.arange(len(logits)) + self._weights.get("d2t", np.zeros(len(logits)))
        return dict(zip(ids.astype(int).tolist(), logits.tolist(), strict=True))

    def _normed(self, values: Array, weights: Array) -> Array:
        mean_square = (values * values).mean(axis=-1, keepdims=True)
        return values / np.sqrt(mean_square + self._config["rms_norm_eps"]) * weights

    def _turned(self, heads: Array, position: int) -> Array:
        half = heads.shape[1] // 2
        angles = position * self._config["rope_theta"] ** (-np.arange(half) / half)
        cos, sin = np.cos(angles), np.sin(angles)
        a, b = heads[:, :half], heads[:, half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1)
