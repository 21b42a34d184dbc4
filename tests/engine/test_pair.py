"""How a pair is loaded: number formats of the KV caches, how far a draft looks back, and what a
model's file recommends of sampling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from eaglechat.engine.drafters.eagle3 import draft_window
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.pair import LoadedPair, recommended_sampling
from eaglechat.gguf.pairing import check_pair
from eaglechat.gguf.preflight import DRAFT_WINDOW
from eaglechat.settings.model import Settings
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import LoadOptions


@pytest.mark.parametrize("role", ["target", "draft"])
def test_heads_of_a_width_that_q8_0_cannot_hold_are_named(
    tiny_files: tuple[Path, Path], role: str
) -> None:
    option = "kv_type" if role == "target" else "draft_kv_type"
    with pytest.raises(EngineError, match=rf"{role}\.gguf has attention heads 8 wide"):
        LoadedPair(check_pair(*tiny_files), LoadOptions(**{option: "q8_0"}))


@pytest.mark.real
def test_q8_0_without_flash_attention_is_refused(real_files: tuple[Path, Path]) -> None:
    options = LoadOptions(kv_type="q8_0", flash_attention="off")
    with pytest.raises(EngineError, match="needs flash attention, which is switched off"):
        LoadedPair(check_pair(*real_files), options)


@pytest.mark.parametrize(("wanted", "is_seen"), [(2048, 64), (0, 64), (16, 16)])
def test_a_draft_looks_back_no_further_than_it_was_trained_to(
    tiny_files: tuple[Path, Path], wanted: int, is_seen: int
) -> None:
    _, draft = check_pair(*tiny_files)
    assert draft is not None
    draft = replace(draft, fields={**draft.fields, DRAFT_WINDOW: 64})
    assert draft_window(draft, wanted) == is_seen


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
