"""What a model's file says of how to sample it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from eaglechat.engine.llama.objects import Model
from eaglechat.wire.protocol import RecommendedSampling

_KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "penalty_repeat",
}
"""Of `general.sampling`, by what they are called here."""


def recommended_sampling(model: Model) -> RecommendedSampling:
    """The recommendations of a model; values that make no sense are passed over."""
    found: dict[str, Any] = {}
    for name, key in _KEYS.items():
        text = model.metadata(f"general.sampling.{key}")
        if text is not None:
            with suppress(msgspec.ValidationError):
                value = msgspec.convert({name: text}, RecommendedSampling, strict=False)
                found[name] = getattr(value, name)
    return RecommendedSampling(**found)
