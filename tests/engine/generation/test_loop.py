"""The loop's paths, on the tiny pair; replies that are changed, continued or disturbed."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from eaglechat.engine.cache import CacheState
from eaglechat.engine.drafters.proposal import Proposal
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.llama.sampler import Sampler
from eaglechat.engine.loop import Live
from eaglechat.wire.errors import PromptError
from eaglechat.wire.protocol import AUTO, Auto, Message, Sampling, Set, Speculation
from eaglechat.wire.records import (
    FinishReason,
    Origin,
    Prefill,
    Round,
)
from tests import tiny
from tests.engine.rig import (
    GREEDY,
    Reply,
    Rig,
    check_bookkeeping,
    drafts_of,
    fresh_reply,
    open_rig,
    plainly,
)

TEXT = "the cat sat on the mat"


@pytest.fixture
def prompt(rig: Rig) -> tuple[int, ...]:
    return rig.prompt(TEXT)


# --- how a reply ends ---


@pytest.mark.parametrize(
    ("sampled", "options", "text", "tail", "reason"),
    [
        ("abc$abc", {}, "abc", "", FinishReason.STOP),
        ("helloworld", {"stop": ["low"]}, "hel", "", FinishReason.STOP),
        ("hellowo", {"stop": ["world"], "max_tokens": 7}, "hellowo", "wo", FinishReason.LENGTH),
    ],
    ids=["end token", "stop string", "held back for a stop string"],
)
def test_a_reply_ends_at_an_end_token_a_stop_string_or_its_length(  # noqa: PLR0917
    rig: Rig,
    prompt: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    sampled: str,
    options: dict[str, Any],
    text: str,
    tail: str,
    reason: FinishReason,
) -> None:
    """Whose target samples these letters, $ for the end token."""
    ids = [tiny.EOS if letter == "$" else tiny.TOKENS.index(letter) for letter in sampled]
    left = iter(ids)
    monkeypatch.setattr(Sampler, "sample", lambda *_: next(left))
    reply = rig.reply(prompt, **options)
    assert (reply.text, reply.end.tail, reply.end.finish_reason) == (text, tail, reason)
    if "$" in sampled:
        assert reply.tokens[-1] == tiny.EOS
        assert reply.rounds[-1].tokens[-1].text == ""


@pytest.mark.parametrize("letter", [0, 1, 2, 3])
def test_an_end_inside_an_accepted_draft_drops_what_follows(
    rig: Rig,
    prompt: tuple[int, ...],
    letter: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The target agrees with every drafted token; the reply ends at one of them."""
    propose = rig.drafter.propose
    drafts: list[list[int]] = []

    def remember(*args: Any) -> Proposal:
        proposal = propose(*args)
        drafts.append(proposal.ids)
        return proposal

    monkeypatch.setattr(rig.drafter, "propose", remember)
    monkeypatch.setattr(
        Sampler, "sample", lambda _self, _context, row, _place, _drawn: [*drafts[-1], tiny.EOS][row]
    )
    monkeypatch.setattr(Model, "is_end", lambda _self, id: id == [*drafts[-1], tiny.EOS][letter])

    reply = rig.reply(prompt)

    (round_,) = reply.rounds
    first = drafts[-1].index(drafts[-1][letter]) if letter < 3 else 3
    assert len(round_.tokens) == first + 1
    assert (round_.n_tested, round_.n_accepted) == (min(first + 1, 3),) * 2
    assert round_.rejected is None
    assert (
        len(rig.generator.cache.tokens) == round_.n_past == len(prompt) - 1 + 1 + round_.n_accepted
    )
    check_bookkeeping(reply, prompt)


def test_a_prompt_must_leave_room_and_must_not_be_empty(tiny_models: tuple[Model, Model]) -> None:
    with open_rig(*tiny_models, n_ctx=256) as rig:
        with pytest.raises(PromptError, match="has 256 tokens, the context holds 256"):
            rig.reply([0] * 256)
        with pytest.raises(PromptError, match="empty"):
            rig.reply([])

        reply = rig.reply([0] * 255, max_tokens=None)
        assert len(reply.tokens) == 2
        assert reply.end.finish_reason is FinishReason.CONTEXT
        assert rig.reply([3]).tokens == rig.reply([3], live=plainly()).tokens


# --- cancel ---


def test_a_cancel_in_prefill_takes_effect_within_one_chunk_and_keeps_what_was_read(
    tiny_models: tuple[Model, Model],
) -> None:
    with open_rig(*tiny_models, n_batch=32) as rig:
        prompt = rig.prompt("the quick brown fox " * 20)
        cancelled = rig.reply(prompt, cancel_at=lambda seen: seen.prefills[-1].done >= 64)
        assert (cancelled.end.finish_reason, cancelled.tokens) == (FinishReason.CANCELLED, [])
        assert [prefill.done for prefill in cancelled.prefills] == [0, 32, 64]

        reply = rig.reply(prompt)
        assert reply.end.timings.reused_tokens == 64
        assert reply.end.timings.prefill_tokens == len(prompt) - 1 - 64
        fresh = fresh_reply(tiny_models, prompt)
        assert drafts_of(reply) == drafts_of(fresh)


def test_a_cancel_ends_a_chunk_in_the_middle_and_the_next_prompt_is_read_whole(
    tiny_models: tuple[Model, Model], capfd: pytest.CaptureFixture[str]
) -> None:
    with open_rig(*tiny_models, n_batch=512) as rig:
        prompt = rig.prompt("the quick brown fox " * 20)
        asked = iter(range(1000))
        reply = rig.reply(prompt, cancel_at=lambda _so_far: next(asked) > 30)
        assert (reply.end.finish_reason, reply.tokens) == (FinishReason.CANCELLED, [])
        # Once before the chunk, then within it.
        assert 30 < next(asked) < 40
        assert not rig.generator.cache.tokens
        assert capfd.readouterr().err == ""

        again = rig.reply(prompt)
        fresh = fresh_reply(tiny_models, prompt)
        assert (again.tokens, drafts_of(again)) == (fresh.tokens, drafts_of(fresh))


def test_a_cancel_while_the_draft_catches_up_samples_nothing_more(
    tiny_models: tuple[Model, Model],
) -> None:
    with open_rig(*tiny_models, n_batch=32) as rig:
        prompt = rig.prompt("the quick brown fox " * 20)
        reply = rig.reply(
            prompt,
            live=plainly(),
            changes={0: Set(enabled=True)},
            cancel_at=lambda seen: seen.rounds and isinstance(seen.events[-1], Prefill),
        )
        assert reply.end.finish_reason is FinishReason.CANCELLED
        assert reply.end.tokens == len(reply.rounds) == 1


def test_what_is_read_again_in_mid_reply_is_not_time_of_generation(
    tiny_models: tuple[Model, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances only in prefill, by a second a batch."""
    now, read = [0.0], CacheState.read

    def slowly(cache: CacheState, *what: Any) -> bool:
        now[0] += 1.0
        return read(cache, *what)

    monkeypatch.setattr(CacheState, "read", slowly)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    with open_rig(*tiny_models, n_batch=32) as rig:
        prompt = rig.prompt("the quick brown fox " * 20)
        timings = rig.reply(prompt, live=plainly(), changes={0: Set(enabled=True)}).end.timings
    n_batches = (len(prompt) - 1 + 31) // 32
    assert now[0] >= 2.0 * n_batches
    assert (timings.prefill_ms, timings.generation_ms) == (1000.0 * n_batches, 0.0)
    assert (timings.prefill_tokens, timings.reused_tokens) == (len(prompt) - 1, 0)


# --- the draft and the prompt ---


@pytest.mark.parametrize(
    ("n_draft_max", "waits"), [(0, True), (1, False), (8, False), (AUTO, False)]
)
def test_the_prompt_waits_for_a_draft_that_is_not_asked_for(
    rig: Rig, prompt: tuple[int, ...], n_draft_max: int | Auto, waits: bool
) -> None:
    reply = rig.stream(prompt, n_draft_max=n_draft_max)
    next(event for event in reply if isinstance(event, Prefill) and event.done == event.total)
    assert rig.drafter.waiting == (len(prompt) - 1 if waits else 1)


HOT = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
PENALISED = Sampling(temperature=0.0, repeat_penalty=1.2)


# --- changes in mid-reply ---


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sampling", [GREEDY, PENALISED, HOT], ids=["greedy", "penalty", "hot"])
def test_whatever_is_turned_in_every_round_the_tokens_are_those_of_plain_decoding(
    tiny_models: tuple[Model, Model], sampling: Sampling, seed: int
) -> None:
    """Until the context is exactly full."""
    turns = random.Random(seed)
    with open_rig(*tiny_models, n_ctx=256, draft_window=16, ngram=True) as rig:
        prompt = rig.prompt("the cat sat on the mat and the cat sat on the hat")
        live = Live(Speculation(n_draft_max=16, shape="tree", ngram=True), sampling.temperature)
        events, has_ngram = [], True
        for event in rig.stream(prompt, live=live, sampling=sampling, seed=seed, max_tokens=None):
            events.append(event)
            is_round = isinstance(event, Round)
            assert has_ngram or not is_round or event.drafter != "ngram"
            shape = turns.choice(("chain", "tree", "auto"))
            n = turns.choice((0, 1, 3, 16, 16, AUTO))
            ngram, enabled = turns.random() < 0.5, turns.random() < 0.9
            live.apply(Set(n_draft_max=n, shape=shape, ngram=ngram, enabled=enabled))
            # What is changed between a round and the reading before the next waits for that one.
            has_ngram = ngram if is_round else has_ngram or ngram
        reply = Reply(tuple(events))
        plain = rig.reply(
            prompt, live=plainly(sampling.temperature), sampling=sampling, seed=seed,
            max_tokens=None,
        )  # fmt: skip
        assert (reply.tokens, reply.text) == (plain.tokens, plain.text)
        assert reply.end.finish_reason is plain.end.finish_reason
        assert {token.origin for r in plain.rounds for token in r.tokens} == {Origin.PLAIN}
        check_bookkeeping(reply, prompt)
    assert any(round_.is_tree for round_ in reply.rounds)
    # A target that draws may end its reply before.
    if sampling is not HOT:
        assert plain.end.finish_reason is FinishReason.CONTEXT
        assert len(prompt) + len(plain.tokens) == rig.target.n_ctx + 1
        assert {round_.drafter for round_ in reply.rounds} == {"eagle3", "ngram", None}


def test_a_change_that_comes_during_a_round_waits_for_the_next(
    rig: Rig, prompt: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Live(Speculation(n_draft_max=2), 0.0)
    decode = rig.target.decode

    def decode_and_change(batch: object) -> int:
        live.apply(Set(n_draft_max=5))
        return decode(batch)

    stream = rig.stream(prompt, live=live, max_tokens=30)
    next(stream)
    next(stream)
    monkeypatch.setattr(rig.target, "decode", decode_and_change)
    rounds = [event for event in stream if isinstance(event, Round)]

    assert (rounds[0].n_draft_max, len(rounds[0].drafted)) == (2, 2)
    assert (rounds[1].n_draft_max, len(rounds[1].drafted)) == (5, 5)


def test_p_min_n_min_and_temperature_change_in_mid_reply(rig: Rig, prompt: tuple[int, ...]) -> None:
    def changed_at(changes: dict[int, Set]) -> Reply:
        live = Live(Speculation(n_draft_max=3), 0.0)
        return rig.reply(prompt, live=live, changes=changes, max_tokens=60)

    reply = changed_at({2: Set(p_min=1.0), 5: Set(p_min=0.0), 6: Set(n_min=4)})
    lengths = [len(draft) for draft in drafts_of(reply)[:9]]
    assert lengths == [3, 3, 3, 0, 0, 0, 3, 0, 0]

    cold = changed_at({})
    heated, again = (changed_at({4: Set(temperature=5.0)}) for _ in range(2))
    until = sum(len(round_.tokens) for round_ in heated.rounds[:5])
    assert heated.tokens[:until] == cold.tokens[:until]
    assert heated.tokens != cold.tokens[: len(heated.tokens)]
    assert heated.tokens == again.tokens


def test_the_parts_of_a_round_do_not_overlap(
    rig: Rig, prompt: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that stands still but while features are handed over, which takes a second."""
    clock = {"now": 0.0}
    layer_inputs = rig.target.layer_inputs

    def slow_inputs(layer: int, n_rows: int) -> object:
        clock["now"] += 1.0 if layer == rig.drafter.layers[0] else 0.0
        return layer_inputs(layer, n_rows)

    monkeypatch.setattr(rig.target, "layer_inputs", slow_inputs)
    monkeypatch.setattr(time, "perf_counter", lambda: clock["now"])

    for round_ in rig.reply(prompt).rounds:
        timings = round_.timings
        assert timings.total_ms == timings.process_ms == 1000.0
        assert (timings.draft_ms, timings.verify_ms, timings.sample_ms) == (0.0, 0.0, 0.0)


# --- disturbed ---


def test_a_reply_abandoned_in_the_middle_leaves_a_usable_pair(
    rig: Rig, tiny_models: tuple[Model, Model], prompt: tuple[int, ...]
) -> None:
    stream = rig.stream(prompt)
    while not isinstance(next(stream), Round):
        pass
    stream.close()

    reply = rig.reply(prompt, max_tokens=60)

    fresh = fresh_reply(tiny_models, prompt, max_tokens=60)
    assert (reply.tokens, drafts_of(reply)) == (fresh.tokens, drafts_of(fresh))


# --- going on ---


def test_a_stopped_reply_goes_on_as_if_it_never_was_stopped(rig: Rig) -> None:
    messages = [Message(role="user", content=TEXT)]
    first = rig.prompter.conversation(messages)
    asked = first.tokens
    whole = rig.reply(asked, max_tokens=40)
    begun = rig.reply(asked, max_tokens=15)
    first.note_reply(begun.tokens)

    again = rig.prompter.conversation(messages, begun=begun.tokens)
    prompt = again.tokens
    rest = rig.reply(again, max_tokens=25)

    assert prompt == (*asked, *begun.tokens)
    assert begun.tokens + rest.tokens == whole.tokens
    assert begun.text.removesuffix(begun.end.tail) + rest.text == whole.text
    assert rest.end.tokens == 25
    # The last token alone was sampled and never decoded.
    assert rest.end.timings.prefill_tokens == 0
    assert rest.end.timings.reused_tokens == len(prompt) - 1
    check_bookkeeping(rest, prompt)


def test_a_reply_does_not_begin_with_another_model_s_tokens(rig: Rig) -> None:
    with pytest.raises(PromptError, match="not this model's"):
        rig.prompter.conversation([Message(role="user", content=TEXT)], begun=(10**9,))
