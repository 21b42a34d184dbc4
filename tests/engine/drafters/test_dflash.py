"""DFlash, DSpark and DFlash2, beside what holds of every drafter (test_laws)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eaglechat.engine.drafters import dflash
from eaglechat.engine.drafters.proposal import Limits, Proposal
from eaglechat.engine.llama.objects import Batch
from tests import tiny_kinds
from tests.engine.kind_pairs import KINDS, Files, cycle

VARIANTS: tuple[tiny_kinds.Variant, ...] = ("dflash", "dspark", "dspark-bonus", "dflash2")
Write = Callable[..., Files]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a target and a block drafter; options are those of `write_dflash`."""

    def written(variant: tiny_kinds.Variant, **options: object) -> Files:
        draft = tiny_kinds.write_dflash(tmp_path / "draft.gguf", variant=variant, **options)
        kind = KINDS[f"llama, {variant}"]
        return Files(kind, tiny_kinds.write_llama(tmp_path / "target.gguf"), draft)

    return written


def proposed(files: Files, n_max: int = 16, p_min: float = 0.0) -> Proposal:
    """The draft behind 20 tokens."""
    (name,) = files.kind.drafters
    with files.opened(name) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch)
        driver.limits = Limits(n_max, p_min=p_min)
        driver.prefill(cycle(20))
        return driver.propose()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("block_size", "n_ubatch"), [(4, 64), (8, 64), (8, 5)])
def test_no_block_is_longer_than_trained_or_than_a_ubatch(
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    variant: tiny_kinds.Variant,
    block_size: int,
    n_ubatch: int,
) -> None:
    """The features come in pieces of a ubatch too."""
    files = write(variant, block_size=block_size, from_features=True)
    longest = min(block_size, n_ubatch) - (variant != "dspark")
    monkeypatch.setattr(dflash, "_UBATCH", n_ubatch)
    (name,) = files.kind.drafters
    with files.opened(name) as pair, Batch(pair.target) as batch:
        assert pair.drafter.longest == longest
        blocks: list[int] = []
        draft = pair.drafter.draft
        run = draft.decode
        monkeypatch.setattr(draft, "decode", lambda batch: blocks.append(len(batch)) or run(batch))
        driver = pair.driver(batch)
        driver.prefill(cycle(40, 9 - block_size))
        for n_max in (16, 1, 3, 0):
            driver.limits = Limits(n_max)
            drafted, n_accepted = driver.round()
            assert len(drafted) == n_accepted == min(n_max, longest)
        assert max(blocks) <= n_ubatch


@pytest.mark.parametrize("variant", ["dspark", "dspark-bonus"])
def test_dspark_s_confidence_cuts_what_would_be_rejected(
    write: Write, variant: tiny_kinds.Variant
) -> None:
    with write(variant, wrong=0.25).loaded() as pair:
        cut, free = (pair.reply(cycle(20), n=16, length=60, p_min=p_min) for p_min in (0.5, 0.0))
    for reply, is_cut in ((cut, True), (free, False)):
        drafted = sum(len(round_.drafted) for round_ in reply.rounds)
        n_accepted = sum(round_.n_accepted for round_ in reply.rounds)
        assert drafted >= n_accepted > 20
        assert (drafted == n_accepted) is is_cut


def test_without_a_confidence_head_a_token_has_its_share_among_the_likeliest(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write("dspark", wrong=0.25)
    confidences = proposed(files)
    block_of = dflash.block_of
    monkeypatch.setattr(
        dflash, "block_of", lambda header: replace(block_of(header), has_confidence=False)
    )
    shares = proposed(files)
    assert shares.ids == confidences.ids
    assert {round(p, 3) for p in confidences.probabilities} <= {0.0, 1.0}
    assert shares.probabilities[0] > shares.probabilities[2] > 0.1


@pytest.mark.parametrize("variant", ["dflash", "dflash2"])
def test_what_is_further_away_is_less_likely(write: Write, variant: tiny_kinds.Variant) -> None:
    free = proposed(write(variant)).probabilities
    assert len(free) == 7
    assert free == sorted(free, reverse=True)
    assert free[-1] < 0.5 < free[0]


@pytest.mark.parametrize("causal", [None, True, False])
def test_a_row_sees_the_whole_block_unless_the_header_says_causal(
    write: Write, *, causal: bool | None
) -> None:
    files = write("dflash", blur=True, causal=causal)
    alone, of_seven = (proposed(files, n).probabilities[0] for n in (1, 7))
    assert (abs(alone - of_seven) < 1e-6) is bool(causal)


def test_a_draft_with_positions_of_several_numbers_drafts(write: Write) -> None:
    """Its KV cache cannot shift."""
    with write("dflash", from_features=True, mrope=True).opened("dflash") as pair:
        reply = pair.reply(cycle(20), n=16)
        assert not pair.drafter.draft.can_shift
        pair.drafter.shift(5, 9)
        assert pair.drafter.known == 5
    assert all(len(one.drafted) == one.n_accepted for one in reply.rounds)
