"""What a model's file recommends of sampling."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from eaglechat.engine.llama.objects import Model
from eaglechat.engine.pair import recommended_sampling
from eaglechat.settings.model import Settings


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, {}),
        (
            {"temp": "0.600000", "top_k": "20", "top_p": "0.95", "min_p": "0", "xtc": "1"},
            {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0},
        ),
        (
            {"temp": "hot", "top_k": "-3", "top_p": "1.7", "penalty_repeat": "1.05"},
            {"repeat_penalty": 1.05},
        ),
    ],
)
def test_what_makes_sense_of_it_is_read(values: dict[str, str], found: dict[str, float]) -> None:
    fields = {f"general.sampling.{name}": value for name, value in values.items()}
    model = cast(Model, SimpleNamespace(metadata=fields.get))
    assert recommended_sampling(model) == found


def test_what_somebody_has_set_wins_over_what_is_recommended() -> None:
    recommended = {"temperature": 0.6, "top_k": 20}
    same_as_default = Settings().with_value("generation", "top_k", 40)

    assert Settings().to_sampling().temperature == 0.7
    assert Settings().to_sampling(recommended).temperature == 0.6
    assert Settings().to_sampling(recommended).top_p == 0.95
    assert same_as_default.to_sampling(recommended).top_k == 40
