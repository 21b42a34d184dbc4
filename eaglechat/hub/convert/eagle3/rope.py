"""Rotary embedding of a draft: the GGUF's fields for its scaling, and the llama3 factors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eaglechat.hub.convert.errors import ConversionError
from eaglechat.hub.convert.source.config import DraftConfig

_PLAIN = ("default", "none", "llama3", "dynamic")
"""Types that need no scaling field: llama3 is a tensor, dynamic acts beyond the trained context."""


def scaling_fields(config: DraftConfig) -> dict[str, str | int | float]:
    """Fields under `eagle3.rope.scaling.`; none for drafts without scaling.

    Raises ConversionError for a scaling that llama.cpp's eagle3 graph would ignore.
    """
    rope = config.rope
    kind = rope.rope_type.lower()
    if kind in _PLAIN and rope.alpha is None:
        return {}
    if kind not in ("linear", "yarn"):
        raise ConversionError(
            f"the draft scales RoPE by the type {kind}, which llama.cpp's eagle3 graph cannot"
        )
    if rope.factor is None:
        raise ConversionError(f"config.json scales RoPE by the type {kind}, but names no factor")
    fields: dict[str, str | int | float] = {"type": kind, "factor": rope.factor}
    if kind == "yarn":
        original = rope.original_max_position_embeddings or config.max_position_embeddings
        fields["original_context_length"] = int(original)
        optional = {
            "yarn_ext_factor": rope.extrapolation_factor,
            "yarn_attn_factor": rope.attention_factor,
            "yarn_beta_fast": rope.beta_fast,
            "yarn_beta_slow": rope.beta_slow,
        }
        fields.update((key, value) for key, value in optional.items() if value is not None)
    return fields


def llama3_factors(config: DraftConfig, n_rot: int) -> npt.NDArray[np.float32] | None:
    """The divisors [n_rot / 2] of RoPE's frequencies; None for other kinds of scaling.

    Low frequencies are divided by `factor`, high ones kept, those between interpolated: the
    arithmetic of llama.cpp's converter, in float32 as there.
    """
    rope = config.rope
    if rope.rope_type.lower() != "llama3":
        return None
    factor, low, high = rope.factor or 8.0, rope.low_freq_factor, rope.high_freq_factor
    original = rope.original_max_position_embeddings or 8192.0
    if high <= low:
        raise ConversionError(
            "the llama3 RoPE scaling in config.json is impossible: "
            f"its frequency factors go from {low:g} to {high:g}"
        )
    exponents = np.arange(0, n_rot, 2, dtype=np.float32) / np.float32(n_rot)
    powers = np.power(rope.rope_theta, exponents, dtype=np.float64).astype(np.float32)
    wavelengths = np.float32(2 * np.pi) / (np.float32(1) / powers)
    smooth = (np.float32(original) / wavelengths - np.float32(low)) / np.float32(high - low)
    between = np.float32(1) / ((np.float32(1) - smooth) / np.float32(factor) + smooth)
    factors: npt.NDArray[np.float32] = np.where(
        wavelengths < original / high,
        np.float32(1),
        np.where(wavelengths > original / low, np.float32(factor), between),
    )
    return factors
