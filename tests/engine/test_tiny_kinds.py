"""The tiny models of the other kinds of drafters: their headers, and the cycle they are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eaglechat.gguf.header import GGUFHeader, read_header
from tests import tiny_kinds
from tests.tiny_kinds import BOS, EOS, MASK, TOKENS, F, N, accepted, repaired_tokens, wrong_tokens


def test_the_cycle_goes_through_all_regular_tokens() -> None:
    token, seen = 0, set()
    for _ in range(N):
        token = F[token]
        seen.add(token)
    assert seen == set(range(N))
    assert token == 0
    assert [TOKENS[i] for i in (BOS, EOS, MASK)] == ["<s>", "<end>", "<mask>"]


def test_a_draft_is_accepted_up_to_the_first_token_it_is_wrong_after() -> None:
    wrong = wrong_tokens(0.25)
    assert len(wrong) == round(0.25 * N)
    assert repaired_tokens(0.25) < wrong
    last = min(wrong)
    assert accepted(last, 5, wrong) == 0
    before = F.index(last)
    assert accepted(before, 5, {last}) == 1
    assert accepted(before, 5, ()) == 5


@pytest.mark.parametrize("heads", [1, 2])
def test_hy_v3_has_its_heads_after_the_trunk(tmp_path: Path, heads: int) -> None:
    header = read_header(tiny_kinds.write_hy_v3(tmp_path / "model.gguf", heads=heads))
    assert (header.architecture, header.n_layers) == ("hy_v3", 3)
    assert header.number("{arch}.nextn_predict_layers") == heads
    assert head_layers(header) == list(range(3, 3 + heads))


def test_qwen35_is_a_hybrid_with_one_head(tmp_path: Path) -> None:
    header = read_header(tiny_kinds.write_qwen35(tmp_path / "model.gguf"))
    assert (header.architecture, header.n_layers) == ("qwen35", 4)
    assert header.number("{arch}.nextn_predict_layers") == 1
    assert head_layers(header) == [4]
    assert "blk.0.ssm_out.weight" in names(header)


@pytest.mark.parametrize("write", [tiny_kinds.write_hy_v3, tiny_kinds.write_qwen35])
def test_heads_can_be_left_out_or_be_alone(tmp_path: Path, write: Callable[..., Path]) -> None:
    stripped = read_header(write(tmp_path / "stripped.gguf", strip=True))
    assert stripped.number("{arch}.nextn_predict_layers") == 1
    assert head_layers(stripped) == []
    sidecar = read_header(write(tmp_path / "sidecar.gguf", mtp_only=True))
    assert len(head_layers(sidecar)) == 1
    assert not any(name.startswith("blk.0.") for name in names(sidecar))


def names(header: GGUFHeader) -> set[str]:
    return {tensor.name for tensor in header.tensors}


def head_layers(header: GGUFHeader) -> list[int]:
    """The blocks that have what makes a head, in order."""
    found = [name for name in names(header) if name.endswith(".nextn.eh_proj.weight")]
    return sorted(int(name.split(".")[1]) for name in found)
