"""Number formats of the KV caches, and combinations that cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eaglechat.engine.drafters.eagle3 import draft_window
from eaglechat.engine.pair import LoadedPair
from eaglechat.gguf.pairing import check_pair
from eaglechat.gguf.preflight import DRAFT_WINDOW
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
