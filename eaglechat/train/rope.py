"""The rotary embedding of a draft, as llama.cpp computes it from the fields of its GGUF."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eaglechat.engine.llama.bindings import Floats
from eaglechat.gguf.header import GGUFHeader
from eaglechat.train.settings import TrainingError

DEFAULT_BASE = 10000.0
"""llama.cpp's default."""
FIELDS = "eagle3.rope."
FACTORS = "rope_freqs.weight"
"""Divisors of the frequencies, for llama3's scaling."""

_KNOWN = {
    f"{FIELDS}{key}"
    for key in (
        "freq_base", "dimension_count", "scaling.type", "scaling.factor",
        "scaling.original_context_length",
        # llama.cpp reads these for other architectures only.
        "dimension_sections", "scaling.yarn_ext_factor", "scaling.yarn_attn_factor",
        "scaling.yarn_beta_fast", "scaling.yarn_beta_slow",
    )
}  # fmt: skip
_MOST_TURNS, _LEAST_TURNS = 32.0, 1.0
"""YaRN keeps the frequency of pairs that rotate more than 32 times in the trained context, and
divides that of pairs that rotate less than once. The bounds are llama.cpp's."""


@dataclass(frozen=True)
class Rope:
    """Rotates the first values of a head, in neighbouring pairs."""

    base: float
    frequencies: tuple[float, ...]
    """Radians per position, for each pair."""
    magnitude: float = 1.0
    """What YaRN multiplies the rotated values by."""

    @property
    def n_rot(self) -> int:
        """How many values of a head are rotated."""
        return 2 * len(self.frequencies)


def plain_rope(base: float, n_rot: int) -> Rope:
    """Without scaling."""
    return Rope(base, tuple(base ** (-2.0 * pair / n_rot) for pair in range(n_rot // 2)))


def read_rope(draft: GGUFHeader, head_dim: int, factors: Floats | None) -> Rope:
    """The RoPE that llama.cpp computes for a draft; `factors` are its divisors of frequencies.

    Raises TrainingError for a kind of scaling that this code does not compute.
    """
    kind = str(draft.get(f"{FIELDS}scaling.type") or "linear")
    unknown = sorted(key for key in draft.fields if key.startswith(FIELDS) and key not in _KNOWN)
    if unknown or kind not in ("none", "linear", "yarn"):
        feature = unknown[0] if unknown else f"{FIELDS}scaling.type = {kind}"
        raise TrainingError(
            f"training cannot start from {draft.path.name}: its RoPE has {feature}; training "
            "computes plain, linear, yarn and llama3 scaling"
        )
    base = _figure(draft, "freq_base", DEFAULT_BASE)
    n_rot = draft.number(f"{FIELDS}dimension_count", head_dim)
    factor = _figure(draft, "scaling.factor", 1.0) if kind != "none" else 1.0
    frequencies = np.array(plain_rope(base, n_rot).frequencies)
    if factors is not None:
        if len(factors) != len(frequencies):
            raise TrainingError(
                f"training cannot start from {draft.path.name}: its {FACTORS} has {len(factors)} "
                f"values for {len(frequencies)} pairs"
            )
        frequencies = frequencies / factors
    if kind != "yarn":
        return Rope(base, tuple((frequencies / factor).tolist()))
    kept = _kept(
        base, n_rot, draft.number(f"{FIELDS}scaling.original_context_length", draft.n_ctx_train)
    )
    scaled = frequencies * ((1.0 - kept) / factor + kept)
    return Rope(base, tuple(scaled.tolist()), 1.0 + 0.1 * math.log(max(factor, 1.0)))


def _kept(base: float, n_rot: int, trained: int) -> npt.NDArray[np.float64]:
    """The share of each pair's frequency that YaRN keeps, 0 to 1."""

    def pair_of(turns: float) -> float:
        return n_rot * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    first = max(0, math.floor(pair_of(_MOST_TURNS)))
    last = min(n_rot - 1, math.ceil(pair_of(_LEAST_TURNS)))
    return 1.0 - np.clip((np.arange(n_rot // 2) - first) / max(0.001, last - first), 0.0, 1.0)


def _figure(draft: GGUFHeader, key: str, default: float) -> float:
    return float(draft.get(f"{FIELDS}{key}") or default)
