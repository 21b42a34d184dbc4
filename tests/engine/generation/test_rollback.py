"""Targets with a recurrent state: rejected tokens are taken back by its snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eaglechat.engine.drafters.pairing import check_pair
from eaglechat.engine.live import Live
from eaglechat.engine.llama.objects import Context, Model
from eaglechat.engine.loading import pair
from eaglechat.wire.errors import DecodeError
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import (
    AUTO,
    Message,
    Sampling,
    Speculation,
)
from eaglechat.wire.records import FinishReason, Round
from tests import tiny
from tests.engine.rig import GREEDY, Rig, check_bookkeeping, fresh_reply, open_rig, plainly

WARM = Sampling(temperature=0.3, min_p=0.0)


@pytest.fixture(scope="module")
def hybrids(
    tmp_path_factory: pytest.TempPathFactory, tiny_models: tuple[Model, Model]
) -> Iterator[tuple[Model, Model]]:
    """A hybrid target and a draft."""
    path = tmp_path_factory.mktemp("hybrid") / "target.gguf"
    with Model(tiny.write_hybrid_target(path)) as model:
        yield model, tiny_models[1]


@pytest.fixture
def hybrid_rig(hybrids: tuple[Model, Model]) -> Iterator[Rig]:
    with open_rig(*hybrids, n_batch=64) as rig:
        yield rig


@pytest.mark.parametrize("n_draft_max", [1, 3, 8, 16])
def test_a_reply_is_what_plain_decoding_writes(
    hybrids: tuple[Model, Model], hybrid_rig: Rig, n_draft_max: int
) -> None:
    prompt = hybrid_rig.prompt("the quick brown fox")
    reply = hybrid_rig.reply(
        prompt,
        sampling=WARM,
        live=Live(Speculation(n_draft_max=n_draft_max), WARM.temperature),
        max_tokens=150,
    )
    plain = fresh_reply(
        hybrids, prompt, sampling=WARM, live=plainly(WARM.temperature), max_tokens=150
    )

    assert reply.tokens == plain.tokens
    check_bookkeeping(reply, prompt)
    accepted = sum(round_.n_accepted for round_ in reply.rounds)
    assert 0 < accepted < sum(len(round_.drafted) for round_ in reply.rounds)
    assert max(len(round_.drafted) for round_ in reply.rounds) == min(n_draft_max, 8)


def test_a_chat_goes_on_without_reading_again_and_an_edited_one_is_read_again(
    hybrids: tuple[Model, Model], hybrid_rig: Rig
) -> None:
    first = hybrid_rig.prompt("the quick brown fox")
    reply = hybrid_rig.reply(first, max_tokens=40)
    held = list(hybrid_rig.generator.cached)
    longer = [*held, *hybrid_rig.prompt("and then")[1:]]
    second = hybrid_rig.reply(longer, max_tokens=40)
    assert second.end.timings.reused_tokens == len(held)

    edited = [*first[:-3], *hybrid_rig.prompt("and then")[1:]]
    third = hybrid_rig.reply(edited, max_tokens=40)
    assert third.end.timings.reused_tokens == 0

    for prompt, given in ((first, reply), (longer, second), (edited, third)):
        assert fresh_reply(hybrids, prompt, max_tokens=40).tokens == given.tokens


def test_with_speculation_off_a_chat_goes_on_without_reading_again(
    hybrids: tuple[Model, Model], hybrid_rig: Rig
) -> None:
    prompt = hybrid_rig.prompt("the quick brown fox")
    for turn in range(3):
        reply = hybrid_rig.reply(prompt, live=plainly(), max_tokens=20)
        assert (reply.end.timings.reused_tokens > 0) is (turn > 0)
        assert reply.end.timings.prefill_tokens <= 20
        fresh = fresh_reply(hybrids, prompt, live=plainly(), max_tokens=20)
        assert fresh.tokens == reply.tokens
        prompt = (*prompt, *reply.tokens, *hybrid_rig.prompt("and then")[1:])

    # The draft has seen nothing of it.
    drafting = hybrid_rig.reply(prompt, max_tokens=20)
    assert drafting.end.timings.reused_tokens == 0
    assert sum(len(round_.drafted) for round_ in drafting.rounds) > 0


def test_a_few_latest_tokens_are_not_taken_back_as_if_they_were_one_batch(
    hybrids: tuple[Model, Model], hybrid_rig: Rig
) -> None:
    """Snapshots are of the latest batch; each plain token is a batch of its own."""
    prompt = hybrid_rig.prompt("the quick brown fox")
    first = hybrid_rig.reply(prompt, live=plainly(), max_tokens=6)
    again = hybrid_rig.reply(prompt, live=plainly(), max_tokens=20)
    assert again.tokens[:6] == first.tokens
    fresh = fresh_reply(hybrids, prompt, live=plainly(), max_tokens=20)
    assert fresh.tokens == again.tokens


def test_auto_never_reads_all_again_for_the_draft_to_see_more(
    hybrids: tuple[Model, Model],
) -> None:
    """Though a window of 8 positions has left the draft with next to nothing of them."""
    live = Live(Speculation(n_draft_max=AUTO), 0.0)
    with open_rig(*hybrids, draft_window=8) as rig:
        prompt = rig.prompt("the quick brown fox " * 30)
        rig.reply(prompt, live=live, max_tokens=20)
        held = rig.generator.cached
        longer = [*held, *rig.prompt("and then")[1:]]
        assert rig.reply(longer, live=live).end.timings.reused_tokens == len(held)


@contextmanager
def all_or_nothing(monkeypatch: pytest.MonkeyPatch, target: Context) -> Iterator[None]:
    """The target's memory drops nothing but everything."""
    forget = Context.forget

    def refuse(context: Context, seq_id: int, start: int, end: int = -1) -> bool:
        return (context is not target or start == 0) and forget(context, seq_id, start, end)

    with monkeypatch.context() as patched:
        patched.setattr(Context, "forget", refuse)
        yield


def test_a_memory_that_cannot_drop_the_end_is_read_anew(
    rig: Rig, tiny_models: tuple[Model, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.reply(rig.prompt("the quick brown fox"), max_tokens=40)
    other = rig.prompt("the quick red fox")
    with all_or_nothing(monkeypatch, rig.target):
        reply = rig.reply(other, n_draft_max=0, max_tokens=40)
    assert reply.end.timings.reused_tokens == 0
    assert reply.tokens == fresh_reply(tiny_models, other, max_tokens=40).tokens


def test_rejected_tokens_that_stay_are_an_error_and_the_next_reply_starts_anew(
    rig: Rig, tiny_models: tuple[Model, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = rig.prompt("the quick brown fox")
    with (
        all_or_nothing(monkeypatch, rig.target),
        pytest.raises(DecodeError, match="cannot take back"),
    ):
        rig.reply(prompt, n_draft_max=16, max_tokens=200)
    assert rig.generator.cached == ()
    again = rig.reply(prompt, max_tokens=40)
    assert again.tokens == fresh_reply(tiny_models, prompt, max_tokens=40).tokens


def test_a_cancelled_prefill_leaves_nothing_half_read(
    hybrids: tuple[Model, Model], hybrid_rig: Rig
) -> None:
    prompt = hybrid_rig.prompt("the quick brown fox " * 20)
    asked = iter(range(1000))
    reply = hybrid_rig.reply(prompt, cancel_at=lambda _events: next(asked) > 100)
    assert (reply.end.finish_reason, reply.tokens) == (FinishReason.CANCELLED, [])
    assert hybrid_rig.reply(prompt).tokens == fresh_reply(hybrids, prompt).tokens


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_pair_with_such_a_target_drafts_chains_where_there_are_snapshots(
    tmp_path: Path,
    tiny_files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    snapshots: bool,
) -> None:
    if not snapshots:
        monkeypatch.setattr(pair, "N_ROLLBACK", 0)
    headers = check_pair(tiny.write_hybrid_target(tmp_path / "target.gguf"), tiny_files[1])
    loaded = pair.LoadedPair(headers, LoadOptions(n_ctx=256, n_threads=1))
    try:
        prompt = loaded.prompter.prompt([Message(role="user", content="one")])
        live = Live(Speculation(n_draft_max=3, shape="tree"), 0.0)
        events = loaded.generator.reply(prompt, GREEDY, live, seed=1, max_tokens=20)
        rounds = [event for event in events if isinstance(event, Round)]
        off, chains_only = loaded.info.speculation_off, loaded.info.chains_only
    finally:
        loaded.close()

    assert any(round_.drafted for round_ in rounds) is snapshots
    assert not any(round_.is_tree for round_ in rounds)
    if snapshots:
        assert off is None
        assert "cannot follow several paths at once" in str(chains_only)
    else:
        assert "cannot take back rejected tokens" in str(off)
        assert chains_only is None
