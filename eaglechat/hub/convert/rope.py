"""Rotary embedding of a draft: from a config's dialects to GGUF fields and the llama3 factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from eaglechat.hub.convert.config import DraftConfig
from eaglechat.hub.convert.errors import ConversionError

_PLAIN = ("default", "none", "llama3", "dynamic")
"""Types that need no scaling field: llama3 is a tensor, dynamic acts beyond the trained context."""


def rope_parameters(config: DraftConfig) -> dict[str, Any]:
    """One table whichever of `rope_parameters`, `rope_scaling` and `rope_theta` the config uses.

    It always has `rope_type` and `rope_theta`.
    """
    parameters = dict(config.rope_parameters or config.rope_scaling)
    parameters = dict(parameters.get("full_attention") or parameters)
    if parameters.get("rope_theta") is None:
        parameters["rope_theta"] = 10000.0 if config.rope_theta is None else config.rope_theta
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    parameters["rope_type"] = str(kind).lower()
    return parameters


def scaling_fields(config: DraftConfig) -> list[tuple[str, Any]]:
    """Fields under `eagle3.rope.scaling.`; none for drafts without scaling.

    Raises ConversionError for a scaling that llama.cpp's eagle3 graph would ignore.
    """
    parameters = rope_parameters(config)
    kind = parameters["rope_type"]
    if kind in _PLAIN and "alpha" not in parameters:
        return []
    if kind not in ("linear", "yarn"):
        raise ConversionError(
            f"the draft scales RoPE by the type {kind}, which llama.cpp's eagle3 graph cannot"
        )
    try:
        fields: list[tuple[str, Any]] = [("type", kind), ("factor", float(parameters["factor"]))]
        if kind == "yarn":
            original = parameters.get("original_max_position_embeddings")
            fields += [
                ("original_context_length", int(original or config.max_position_embeddings)),
                ("yarn_ext_factor", _number(parameters, "extrapolation_factor")),
                ("yarn_attn_factor", _number(parameters, "attention_factor", "attn_factor")),
                ("yarn_beta_fast", _number(parameters, "beta_fast")),
                ("yarn_beta_slow", _number(parameters, "beta_slow")),
            ]
    except (KeyError, TypeError, ValueError) as error:
        raise ConversionError(f"the RoPE scaling in config.json cannot be used: {error}") from error
    return [(key, value) for key, value in fields if value is not None]


def _number(parameters: dict[str, Any], *keys: str) -> float | None:
    value = next((parameters[key] for key in keys if parameters.get(key) is not None), None)
    return None if value is None else float(value)


def llama3_factors(config: DraftConfig, head_dim: int) -> npt.NDArray[np.float32] | None:
    """The divisors [head_dim / 2] of RoPE's frequencies; None for other kinds of scaling.

    Low frequencies are divided by `factor`, high ones kept, those between interpolated: the
    arithmetic of llama.cpp's converter, in float32 as there.
    """
    parameters = rope_parameters(config)
    if parameters["rope_type"] != "llama3":
        return None
    theta, factor = float(parameters["rope_theta"]), float(parameters.get("factor", 8.0))
    low = float(parameters.get("low_freq_factor", 1.0))
    high = float(parameters.get("high_freq_factor", 4.0))
    original = float(parameters.get("original_max_position_embeddings", 8192))
    if high <= low or factor <= 0 or original <= 0:
        raise ConversionError(
            f"the llama3 RoPE scaling in config.json is impossible: factor {factor:g}, "
            f"frequency factors {low:g} to {high:g}, context {original:g}"
        )
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    frequencies = np.float32(1) / np.power(theta, exponents, dtype=np.float64).astype(np.float32)
    wavelengths = np.float32(2 * np.pi) / frequencies
    smooth = (np.float32(original) / wavelengths - np.float32(low)) / np.float32(high - low)
    between = np.float32(1) / ((np.float32(1) - smooth) / np.float32(factor) + smooth)
    factors: npt.NDArray[np.float32] = np.where(
        wavelengths < original / high,
        np.float32(1),
        np.where(wavelengths > original / low, np.float32(factor), between),
    )
    return factors
