"""What holds of every drafter below the loop, of whatever kind: it drafts as one that has seen
nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eaglechat.engine.drafters.base import Limits, Proposal
from eaglechat.engine.live import Live
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Batch
from eaglechat.wire.errors import ProcessError
from eaglechat.wire.protocol import Sampling, Speculation
from tests.engine.kind_pairs import RANDOM, Opened, Write, all_drafters, cycle
from tests.engine.rig import Reply, decode, plainly

HOT = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)


@pytest.fixture(scope="module", autouse=True)
def _backend() -> None:
    backend.start_backend(backend.LOG_ERRORS)


def check_same(found: Proposal, wanted: Proposal) -> None:
    assert found.ids == wanted.ids
    assert found.probabilities == pytest.approx(wanted.probabilities, abs=0.02)


def fresh(pair: Opened, text: Sequence[int], n_max: int) -> Proposal:
    """The draft behind a text of one that reads it at once."""
    with Batch(pair.target) as batch:
        driver = pair.driver(batch, n_max)
        driver.prefill(text, chunk=100)
        return driver.propose()


@all_drafters
def test_a_draft_behind_rejected_tokens_is_one_of_fresh_contexts(
    write: Write, kind: str, drafter: str
) -> None:
    files = write(kind, mixed=True)
    n_max = min(7, files.kind.longest(drafter))
    text = RANDOM[:19]
    with files.opened(drafter) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch, n_max)
        driver.prefill(RANDOM[:20])
        for _ in range(12):
            before = driver.id_last
            drafted, n_accepted = driver.round()
            text += [before, *drafted[:n_accepted]]
        found = driver.propose()
        text.append(driver.id_last)
    with files.opened(drafter) as pair:
        check_same(found, fresh(pair, text, n_max))


@all_drafters
@pytest.mark.parametrize("take_in", [False, True])
def test_what_waits_is_drafted_with_like_what_was_taken_in(
    write: Write, kind: str, drafter: str, *, take_in: bool
) -> None:
    """More may wait than one batch of the draft holds."""
    files = write(kind, mixed=True)
    with files.opened(drafter, n_batch=32) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch, 3)
        driver.prefill(RANDOM[:100], take_in=take_in)
        assert (pair.drafter.waiting == 0) is take_in
        found = driver.propose()
    with files.opened(drafter) as pair:
        check_same(found, fresh(pair, RANDOM[:100], 3))


@all_drafters
def test_it_drafts_behind_as_many_rows_as_a_batch_holds(
    write: Write, kind: str, drafter: str
) -> None:
    with write(kind).opened(drafter, n_batch=32) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch, 3)
        driver.prefill(cycle(33), chunk=32)
        assert driver.propose()


@all_drafters
def test_a_draft_is_as_long_as_asked_and_as_likely(write: Write, kind: str, drafter: str) -> None:
    with write(kind).opened(drafter) as pair, Batch(pair.target) as batch:
        assert not pair.drafter.propose(0, 3, Limits(3))
        driver = pair.driver(batch)
        driver.prefill(cycle(20))
        longest = driver.propose()
        assert pair.drafter.name == longest.drafter == drafter
        assert len(longest) == pair.drafter.longest
        assert all(0.0 < probability <= 1.0 for probability in longest.probabilities)
        for limits, wanted in (
            (Limits(2), longest.ids[:2]),
            (Limits(16, p_min=1.01), []),
            (Limits(16, is_worth=lambda path, _: len(path) < 2), longest.ids[:1]),
            (Limits(0), []),
            (Limits(16), longest.ids),
        ):
            driver.limits = limits
            assert [*driver.propose().ids] == [*wanted]


@all_drafters
@pytest.mark.parametrize("n_taken", [0, 7, 12, 20])
def test_positions_that_leave_the_cache_leave_the_drafter(
    write: Write, kind: str, drafter: str, n_taken: int
) -> None:
    """Also if some of them wait. What is read of this target follows from its token alone."""
    files, text = write(kind), cycle(20)
    if files.kind.is_hybrid or files.kind.target == "gemma4":
        pytest.skip("a recurrent state cannot shift, and an assistant reads the target's keys")
    with files.opened(drafter) as pair, Batch(pair.target) as batch:
        for part in (text[:n_taken], text[n_taken:]):
            if part:
                decode(pair.target, batch, part, pair.drafter.known, output=False)
                pair.drafter.take_in()
                pair.drafter.see(batch)
        pair.target.shift(0, 5, 10)
        pair.drafter.shift(5, 10)
        assert pair.drafter.known == 15
        shifted = pair.drafter.propose(15, text[-1], Limits(7))
        pair.drafter.shift(12, 20)
        assert pair.drafter.known in (11, 12)
    with files.opened(drafter) as pair:
        check_same(shifted, fresh(pair, [*text[:5], *text[10:], text[-1]], 7))


@all_drafters
def test_what_it_has_not_seen_is_noticed(write: Write, kind: str, drafter: str) -> None:
    with write(kind).opened(drafter) as pair, Batch(pair.target) as batch:
        decode(pair.target, batch, RANDOM[:4], 0)
        pair.drafter.see(batch)
        decode(pair.target, batch, RANDOM[4:8], 4)
        with pytest.raises(ProcessError, match=r"saw 4 positions, .* needs 8"):
            pair.drafter.propose(8, 3, Limits(3))
        decode(pair.target, batch, RANDOM[8:10], 8)
        with pytest.raises(ProcessError, match=r"saw 4 positions, .* goes on at 8"):
            pair.drafter.see(batch)


@all_drafters
def test_at_any_temperature_the_tokens_are_the_very_ones_of_plain_sampling(
    write: Write, kind: str, drafter: str
) -> None:
    """One draw of the seeded generator for each token: so the tokens are drawn from the target's
    own distribution, whatever was drafted."""
    n_accepted = 0
    with write(kind, mixed=True).opened(drafter) as pair:
        for seed in range(3):

            def reply(live: Live, seed: int = seed) -> Reply:
                stream = pair.generator.reply(RANDOM[:30], HOT, live, seed=seed, max_tokens=40)
                return Reply(tuple(stream))

            drafted = reply(Live(Speculation(n_draft_max=3), HOT.temperature))
            assert drafted.offs == []
            assert drafted.tokens == reply(plainly(HOT.temperature)).tokens
            n_accepted += sum(round_.n_accepted for round_ in drafted.rounds)
    assert n_accepted > 0
