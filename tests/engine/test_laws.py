"""What holds of every kind of drafter: below the loop it drafts as one that has seen nothing else,
and a loaded pair writes what plain decoding writes. What a pair's past must not change is in
`test_past.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

import eaglechat
from eaglechat.engine.auto import calibration
from eaglechat.engine.drafters.base import ProcessError
from eaglechat.engine.drafters.dflash import DflashDrafter
from eaglechat.engine.drafters.proposal import Limits, Proposal
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.gguf import pairing
from eaglechat.wire.drafters import DRAFTERS, DrafterChoice, DrafterKind
from eaglechat.wire.errors import DecodeError, ModelLoadError
from eaglechat.wire.protocol import Sampling, Set, Shape
from eaglechat.wire.records import Prefill, Round
from tests import tiny_kinds
from tests.engine.kind_pairs import (
    KINDS,
    RANDOM,
    Kind,
    Opened,
    Turns,
    Write,
    all_drafters,
    all_kinds,
    counts,
    cycle,
)
from tests.engine.rig import N_THREADS, Reply, check_bookkeeping, decode, drafts_of
from tests.tiny_kinds import accepted

HOT = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
CUT = Sampling(temperature=0.8, top_k=12, top_p=0.9, min_p=0.04, repeat_penalty=1.3)


@pytest.fixture(scope="module", autouse=True)
def _quickly() -> Iterator[None]:
    """A load does not time drafts: the lengths that auto chooses are not this file's matter."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calibration, "BUDGET_S", 0.0)
        yield


def test_no_table_lacks_a_kind() -> None:
    known = {*get_args(DrafterKind)}
    assert known == {*pairing.KINDS} == {*DRAFTERS}
    assert {"auto", *known, "ngram", "none"} == {*get_args(DrafterChoice)}
    # EAGLE-4 is drafted as EAGLE-3 is.
    assert {one for kind in KINDS.values() for one in kind.drafters} == known - {"eagle4"}


def test_a_kind_is_three_files() -> None:
    """Its module, its row of what it fits, and its row of names, from which all others read: kinds
    that no file treats in a way of its own stand in no other."""
    package = Path(eaglechat.__file__).parent
    found = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        for kind in ("dflash", "dspark", "dflash2")
        if f'"{kind}"' in file.read_text(encoding="utf-8")
    }
    assert found == {"engine/drafters/dflash.py", "gguf/pairing.py", "wire/drafters.py"}


# --- below the loop ---


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
        if drafter == "eagle3":
            # The last row is paired with the token that follows.
            assert (pair.drafter.waiting == 1) is take_in
        else:
            assert (pair.drafter.waiting == 0) is take_in
        # A row of features is some ten thousand numbers, a token is one.
        assert pair.drafter.waiting <= 32 or drafter == "model"
        found = driver.propose()
    with files.opened(drafter) as pair:
        check_same(found, fresh(pair, RANDOM[:100], 3))


@all_drafters
def test_a_target_may_decode_in_small_pieces(write: Write, kind: str, drafter: str) -> None:
    files = write(kind, mixed=True)

    def reply(n_ubatch: int) -> Reply:
        with files.opened(drafter, n_ubatch=n_ubatch) as pair:
            return pair.reply(RANDOM[:60], n=7, length=16)

    # A recurrent state has to keep a snapshot behind each row of a piece.
    small, large = reply(16 if files.kind.is_hybrid else 4), reply(128)
    assert small.offs == []
    assert (small.tokens, drafts_of(small)) == (large.tokens, drafts_of(large))


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

        def drafted(limits: Limits) -> Proposal:
            pair.drafter.resume([])
            pair.target.forget(0, 0)
            driver = pair.driver(batch)
            driver.prefill(cycle(20))
            driver.limits = limits
            return driver.propose()

        longest = drafted(Limits(16))
        assert pair.drafter.name == longest.drafter == drafter
        assert len(longest) == pair.drafter.longest
        assert all(0.0 < probability <= 1.0 for probability in longest.probabilities)
        p_min = sorted(longest.probabilities)[1]
        n_likely = [share >= p_min for share in [*longest.probabilities, 0.0]].index(False)
        for limits, n in (
            (Limits(2), 2),
            (Limits(16, p_min=1.01), 0),
            (Limits(16, p_min=p_min), n_likely),
            (Limits(16, p_min=p_min, n_min=n_likely + 1), 0),
            (Limits(16, worth=[0.0, 1.1], by_probability=[1.0] * 10), 1),
            (Limits(0), 0),
            (Limits(16), len(longest)),
        ):
            assert [*drafted(limits).ids] == [*longest.ids[:n]]


@all_drafters
@pytest.mark.parametrize("n_taken", [0, 7, 12, 20])
def test_positions_that_leave_the_cache_leave_the_drafter(
    write: Write, kind: str, drafter: str, n_taken: int
) -> None:
    """Also if some of them wait. What is read of this target follows from its token alone."""
    files, text = write(kind), cycle(20)
    if not files.kind.can_shift:
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
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_at_any_temperature_the_tokens_are_the_very_ones_of_plain_sampling(
    write: Write, kind: str, drafter: str, shape: Shape
) -> None:
    """One draw of the seeded generator for each token: so the tokens are drawn from the target's
    own distribution, whatever was drafted."""
    n_accepted = 0
    with write(kind, mixed=True).opened(drafter) as pair:
        for seed, sampling in enumerate((HOT, HOT, CUT)):
            asked = {"sampling": sampling, "seed": seed, "length": 40, "shape": shape}
            drafted = pair.reply(RANDOM[:30], **asked)
            assert drafted.offs == []
            assert drafted.tokens == pair.reply(RANDOM[:30], enabled=False, **asked).tokens
            assert drafted.end.seed == seed
            check_bookkeeping(drafted, RANDOM[:30])
            n_accepted += sum(counts(drafted))
        is_tree = any(round_.is_tree for round_ in drafted.rounds)
        assert is_tree is (shape == "tree" and pair.drafter.grows_trees)
    assert n_accepted > 0


# --- loaded pairs ---


def check_reads_nothing_twice(reply: Reply) -> None:
    """A drafter that falls behind would have the target decode again in mid-reply."""
    kinds = [type(event) for event in reply.events]
    assert Prefill not in kinds[kinds.index(Round) :]


@all_drafters
def test_a_reply_drafts_as_long_as_asked(write: Write, kind: str, drafter: str) -> None:
    files = write(kind)
    longest = files.kind.longest(drafter)
    with files.loaded() as pair:
        info = pair.loaded.info
        assert [one.kind for one in info.drafters] == [*files.kind.drafters]
        # The others are heads in the target's file.
        in_files = [one.file is not None for one in info.drafters]
        assert in_files == [files.draft is not None, False][: len(in_files)]
        assert info.speculation_off is None
        for n in (16, 0, 1, 3):
            reply = pair.reply(cycle(20), drafter=drafter, n=n, length=40)
            assert reply.offs == []
            assert reply.tokens == cycle(60)[20:]
            assert max(len(round_.drafted) for round_ in reply.rounds) == min(n, longest)
            check_counts(reply, files.kind, drafter, cycle(20)[-1])
            check_reads_nothing_twice(reply)


@all_drafters
def test_the_smallest_batch_is_large_enough(write: Write, kind: str, drafter: str) -> None:
    """For a prompt in several batches, and for the longest draft that is verified."""
    files = write(kind)
    with files.loaded(n_batch=32) as pair:
        reply = pair.reply(cycle(100), drafter=drafter, n=16, length=40)
    assert reply.offs == []
    assert reply.tokens == cycle(140)[100:]
    assert max(len(round_.drafted) for round_ in reply.rounds) == files.kind.longest(drafter)
    check_counts(reply, files.kind, drafter, cycle(100)[-1])


def check_counts(reply: Reply, kind: Kind, drafter: str, id_last: int) -> None:
    """What a pair that is not mixed accepts is what its weights say."""
    wrong = (
        kind.wrong_after(drafter) if drafter in kind.drafters else frozenset(range(tiny_kinds.N))
    )
    for round_ in reply.rounds:
        assert round_.n_accepted == accepted(id_last, len(round_.drafted), wrong)
        id_last = round_.tokens[-1].id


@all_drafters
@pytest.mark.parametrize("without", [Set(enabled=False), Set(n_draft_max=0)], ids=["off", "0"])
def test_drafting_goes_off_and_on_again_within_a_reply(
    write: Write, kind: str, drafter: str, without: Set
) -> None:
    files = write(kind)
    changes = {1: without, 6: Set(enabled=True, n_draft_max=2)}
    with files.loaded() as pair:
        for _ in range(2):
            reply = pair.reply(cycle(20), drafter=drafter, n=2, changes=changes, length=40)
            assert reply.offs == []
            assert reply.tokens == cycle(60)[20:]
            drafted = [len(round_.drafted) for round_ in reply.rounds]
            assert drafted[:9] == [2, 2, 0, 0, 0, 0, 0, 2, 2]
            check_counts(reply, files.kind, drafter, cycle(20)[-1])
            if without.n_draft_max == 0:
                # The drafter has seen it all.
                check_reads_nothing_twice(reply)


@all_drafters
def test_drafting_goes_on_when_the_context_is_full(write: Write, kind: str, drafter: str) -> None:
    files, prompt = write(kind), cycle(200)
    with files.loaded(n_ctx=256) as pair:
        reply = pair.reply(Turns(prompt, 40), drafter=drafter, length=150)
        held = [*pair.loaded.generator.cache.tokens, reply.tokens[-1]]
        again = pair.reply(held, drafter=drafter)
    assert [window.kv_kept for window in reply.windows][:1] == [not files.kind.is_hybrid]
    assert reply.offs == again.offs == []
    assert reply.tokens == cycle(350)[200:]
    check_counts(reply, files.kind, drafter, prompt[-1])
    check_counts(again, files.kind, drafter, held[-1])
    assert again.tokens == cycle(25, held[-1])[1:]


@all_drafters
@pytest.mark.parametrize("meanwhile", ["none", "ngram"])
def test_a_drafter_hears_of_turns_that_leave_while_it_is_not_asked(
    write: Write, kind: str, drafter: str, meanwhile: str
) -> None:
    files = write(kind)
    with files.loaded(n_ctx=256) as pair:
        first = pair.reply(cycle(200), drafter=drafter, length=20)
        prompt = cycle(240)
        reply = pair.reply(Turns(prompt, 40), drafter=meanwhile, length=30)
        # Behind what moved down, and long enough before the end.
        held = tuple(pair.loaded.generator.cache.tokens[:120])
        again = pair.reply(held, drafter=drafter)
    assert len(reply.windows) == 1
    assert first.offs == reply.offs == again.offs == []
    assert reply.tokens == cycle(270)[240:]
    assert again.tokens == cycle(25, held[-1])[1:]
    check_counts(again, files.kind, drafter, held[-1])


@all_drafters
def test_n_grams_are_ahead_of_a_drafter(write: Write, kind: str, drafter: str) -> None:
    """They know what has been written before, where the drafter is wrong."""
    files = write(kind)
    with files.loaded() as pair:
        reply = pair.reply(cycle(80), drafter=drafter, n=7, ngram=True, length=40)
    assert reply.tokens == cycle(120)[80:]
    drafters = [token.drafter for round_ in reply.rounds for token in round_.drafted]
    assert set(drafters) == {"ngram"}
    assert sum(counts(reply)) > 30


# --- who drafts ---


@all_kinds
def test_the_drafter_is_switched_between_replies_in_every_order(write: Write, kind: str) -> None:
    files = write(kind)
    choices = [*files.kind.drafters, "ngram", "none", "auto", "eagle3"]
    # Each after each other.
    order = [choices[0]]
    for one in choices:
        for other in choices:
            order += [one, other]
    held = cycle(20, 7)
    with files.loaded() as pair:
        for index, choice in enumerate(order):
            prompt = [*held, *cycle(3, 11 * index % tiny_kinds.N)]
            reply = pair.reply(prompt, drafter=choice, length=12)
            assert reply.offs == []
            assert reply.tokens == cycle(13, prompt[-1])[1:]
            check_reads_nothing_twice(reply)
            name = files.kind.drafters[0] if choice == "auto" else choice
            if name in files.kind.drafters:
                assert len(reply.rounds[0].drafted) > 0
                check_counts(reply, files.kind, name, prompt[-1])
            names = {token.drafter for round_ in reply.rounds for token in round_.drafted}
            assert names <= {name}
            held = [*prompt, *reply.tokens]
            if len(held) > 400:
                held = held[:150]


@pytest.mark.parametrize(
    ("drafter", "between"), [("mtp", "none"), ("dflash", "ngram"), ("mtp", "dflash")]
)
def test_a_hybrid_reads_again_what_another_drafter_has_not_seen(
    write: Write, drafter: str, between: str
) -> None:
    """And nothing else."""
    files = write("qwen35, dflash", mixed=True)
    with files.loaded() as pair:
        held: list[int] = []
        reused = []
        for index, name in enumerate((drafter, drafter, between, drafter, drafter)):
            prompt = [*held, *RANDOM[20 * index : 20 * index + 20]]
            reply = pair.reply(prompt, drafter=name)
            reused.append(reply.prefills[0].reused)
            held = [*prompt, *reply.tokens]
    # A question of 20 tokens, a reply of 24: the last token that was sampled is not held.
    assert reused[:2] == [0, 43]
    # None of these needs a draft's cache. The draft goes on behind the last question that it saw.
    assert reused[2:] == ([87, 63, 175] if between in ("none", "ngram") else [0, 0, 175])


# --- failures ---


def test_the_other_drafter_takes_over_from_one_that_fails(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is said of the failure of one that is not asked."""
    files, prompt = write("qwen35, dflash"), cycle(20)
    with files.loaded() as pair:

        def fails(*_: object) -> Proposal:
            raise RuntimeError("broken")

        with monkeypatch.context() as patched:
            patched.setattr(DflashDrafter, "propose", fails)
            replies = [
                pair.reply(prompt, drafter=drafter)
                for drafter in ("dflash", "dflash", "mtp", "auto", "dflash")
            ]
    assert [bool(reply.offs) for reply in replies] == [True, True, False, False, True]
    for index in (2, 3):
        check_counts(replies[index], files.kind, "mtp", prompt[-1])
        assert sum(counts(replies[index])) > 10


@pytest.mark.parametrize("kind", ["hy_v3", "qwen35, dflash"])
def test_heads_without_a_context_are_named_and_the_pair_runs(
    write: Write, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = Context.__init__

    def too_large(self: Context, *args: Any, runs_heads: bool = False, **options: Any) -> None:
        if runs_heads:
            raise ModelLoadError("llama.cpp cannot make a context")
        init(self, *args, **options)

    monkeypatch.setattr(Context, "__init__", too_large)
    files = write(kind)
    with files.loaded() as pair:
        info = pair.loaded.info
        reply = pair.reply(cycle(20), ngram=True)
        asked = pair.reply(cycle(20), drafter="mtp")
    assert info.undrafted == {"mtp": "llama.cpp cannot make a context"}
    assert [one.kind for one in info.drafters] == [
        one for one in files.kind.drafters if one != "mtp"
    ]
    assert info.speculation_off is None
    assert reply.offs == asked.offs == []
    assert reply.tokens == asked.tokens == cycle(44)[20:]
    assert not any(round_.drafted for round_ in asked.rounds)


# --- what ends the process is refused from the headers ---


def test_inputs_that_were_not_exported_are_not_read(tmp_path: Path) -> None:
    with (
        Model(tiny_kinds.write_llama(tmp_path / "llama.gguf")) as model,
        Context(model, n_ctx=256, n_batch=32, n_threads=N_THREADS) as target,
        Batch(target) as batch,
    ):
        for exports in (False, True, False):
            target.extract_layer_inputs((1, 2), exports)
            decode(target, batch, cycle(4), 0)
            target.forget(0, 0)
            if exports:
                assert target.layer_inputs(2, 4).shape == (4, model.n_embd)
            else:
                with pytest.raises(DecodeError, match="did not export the inputs of layer 2"):
                    target.layer_inputs(2, 4)
        target.extract_layer_inputs((1, 2), True)
        with pytest.raises(DecodeError, match="did not export the inputs of layer 1"):
            target.layer_inputs(1, 4)


def test_a_model_that_drafts_for_itself_is_always_right(write: Write) -> None:
    files = write("llama, model", mixed=True)
    with replace(files, draft=files.target).loaded() as pair:
        reply = pair.reply(cycle(20, 7), drafter="model", n=5, length=25)
    assert reply.offs == []
    assert all(round_.n_accepted == len(round_.drafted) for round_ in reply.rounds)
    assert sum(counts(reply)) >= 20
