"""Replies that are changed, continued or disturbed, on the tiny pair."""

from __future__ import annotations

import random
import time

import pytest

from eaglechat.engine.llama.objects import Model
from eaglechat.engine.loop import Live
from eaglechat.wire.errors import PromptError
from eaglechat.wire.protocol import AUTO, Message, Sampling, Set, Speculation
from eaglechat.wire.records import FinishReason, Origin, Round
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
HOT = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)
PENALISED = Sampling(temperature=0.0, repeat_penalty=1.2)


@pytest.fixture
def prompt(rig: Rig) -> tuple[int, ...]:
    return rig.prompt(TEXT)


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
