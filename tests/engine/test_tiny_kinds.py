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


def test_llama_has_nothing_that_drafts(tmp_path: Path) -> None:
    header = read_header(tiny_kinds.write_llama(tmp_path / "model.gguf"))
    assert (header.architecture, header.n_layers) == ("llama", 4)
    assert head_layers(header) == []


def test_the_assistant_of_gemma4_gives_states_as_wide_as_the_target(tmp_path: Path) -> None:
    target = read_header(tiny_kinds.write_gemma4(tmp_path / "target.gguf", window=32))
    assistant = read_header(tiny_kinds.write_gemma4_assistant(tmp_path / "a.gguf", window=32))
    assert (target.architecture, assistant.architecture) == ("gemma4", "gemma4-assistant")
    assert assistant.number("{arch}.nextn_predict_layers") == 2
    assert assistant.number("{arch}.embedding_length_out") == target.n_embd != assistant.n_embd
    for header in (target, assistant):
        assert header.number("{arch}.attention.sliding_window") == 32
        assert header.flags("{arch}.attention.sliding_window_pattern") == (True, False)


@pytest.mark.parametrize(
    ("variant", "own"),
    [
        ("dflash", set()),
        ("dspark", {"markov_w1.weight"}),
        ("dspark-bonus", {"markov_w1.weight"}),
        ("dflash2", {"selector_hidden.weight"}),
    ],
)
def test_a_block_drafter_is_told_by_its_tensors(
    tmp_path: Path, variant: tiny_kinds.Variant, own: set[str]
) -> None:
    file = tmp_path / "draft.gguf"
    header = read_header(
        tiny_kinds.write_dflash(file, variant=variant, block_size=6, layers=(0, 2))
    )
    assert header.architecture == "dflash"
    assert header.number("{arch}.block_size") == 6
    assert header.numbers("{arch}.target_layers") == (0, 2)
    assert header.number("tokenizer.ggml.mask_token_id") == MASK
    assert names(header) & {"markov_w1.weight", "selector_hidden.weight"} == own
    assert header.get("{arch}.sample_from_anchor", True) is (variant != "dspark-bonus")
    assert header.get("{arch}.attention.causal") is None


def test_a_block_drafter_borrows_its_ends_or_has_them(tmp_path: Path) -> None:
    borrows = read_header(tiny_kinds.write_dflash(tmp_path / "borrows.gguf"))
    assert not names(borrows) & {"token_embd.weight", "output.weight"}
    has = read_header(tiny_kinds.write_dflash(tmp_path / "has.gguf", own_head=True, causal=True))
    assert names(has) >= {"token_embd.weight", "output.weight"}
    assert has.get("{arch}.attention.causal") is True


def names(header: GGUFHeader) -> set[str]:
    return {tensor.name for tensor in header.tensors}


def head_layers(header: GGUFHeader) -> list[int]:
    """The blocks that have what makes a head, in order."""
    found = [name for name in names(header) if name.endswith(".nextn.eh_proj.weight")]
    return sorted(int(name.split(".")[1]) for name in found)
