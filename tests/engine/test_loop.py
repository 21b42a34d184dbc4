"""The loop's paths, on the tiny pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from eaglechat.engine import loop as loop_module
from eaglechat.engine.errors import DecodeError, PromptError
from eaglechat.engine.live import Live
from eaglechat.engine.native import Context, Model, Sampler
from eaglechat.engine.protocol import Sampling, Set, Speculation
from eaglechat.engine.records import FinishReason, Origin, Prefill, ReplyEnd, Round
from eaglechat.engine.stats import stats_of
from tests import tiny
from tests.engine.rig import GREEDY, Reply, Rig, open_rig, plainly

TEXT = "the cat sat on the mat"
HOT = Sampling(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)


@pytest.fixture
def prompt(rig: Rig) -> tuple[int, ...]:
    return rig.prompt(TEXT)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets the target sample a text of our choice, then x for ever."""

    def script(text: str) -> None:
        ids = [tiny.EOS if letter == "$" else tiny.TOKENS.index(letter) for letter in text]
        left = iter(ids)
        monkeypatch.setattr(
            Sampler, "sample", lambda _self, _context, _row: next(left, tiny.TOKENS.index("x"))
        )

    return script


def check_bookkeeping(reply: Reply, prompt: Sequence[int]) -> None:
    """What must hold of every round of every reply."""
    n_past = len(prompt) - 1
    for index, round_ in enumerate(reply.rounds):
        drafted = [token.id for token in round_.drafted]
        ids = [token.id for token in round_.tokens]
        origins = [token.origin for token in round_.tokens]
        n_accepted, last = round_.n_accepted, round_ is reply.rounds[-1]

        assert round_.index == index
        assert len(drafted) <= round_.n_draft_max
        assert ids[:n_accepted] == drafted[:n_accepted]
        assert origins[:n_accepted] == [Origin.ACCEPTED] * n_accepted
        assert len(ids) == n_accepted + 1 or (last and len(ids) == n_accepted)
        if len(ids) > n_accepted:
            rejected = n_accepted < len(drafted)
            assert origins[-1] is (
                Origin.PLAIN if not drafted else Origin.CORRECTION if rejected else Origin.BONUS
            )
            assert round_.n_tested == n_accepted + rejected
            assert (round_.rejected is not None) == rejected
            assert round_.rejected is None or round_.rejected.id != ids[-1]
        else:
            assert round_.n_tested == n_accepted
        assert all(0.0 < token.probability <= 1.0 for token in round_.drafted)
        n_past += 1 + n_accepted
        assert round_.n_past == n_past
    assert reply.end.tokens == len(reply.tokens)


# --- exactness ---


@pytest.mark.parametrize("n_draft_max", [0, 1, 3, 16])
@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "temperature 0.8"])
def test_speculation_samples_the_very_tokens_of_plain_decoding(
    rig: Rig, prompt: tuple[int, ...], n_draft_max: int, sampling: Sampling
) -> None:
    """One draw of the seeded generator per token, whatever was drafted."""
    longest = 0
    for seed in range(4):
        plain = rig.reply(
            prompt, sampling=sampling, live=plainly(sampling.temperature), seed=seed, max_tokens=64
        )
        reply = rig.reply(
            prompt, sampling=sampling, n_draft_max=n_draft_max, seed=seed, max_tokens=64
        )
        assert reply.tokens == plain.tokens
        assert reply.text == plain.text
        assert {token.origin for r in plain.rounds for token in r.tokens} == {Origin.PLAIN}
        check_bookkeeping(reply, prompt)
        longest = max(longest, len(reply.tokens))
    assert longest == 64


def test_the_tiny_pair_takes_every_path(rig: Rig, prompt: tuple[int, ...]) -> None:
    """The tests here would show little on a draft that is always right or always wrong."""
    rounds = [
        round_
        for n_draft_max in (1, 3)
        for round_ in rig.reply(prompt, n_draft_max=n_draft_max, max_tokens=200).rounds[:-1]
    ]

    stats = stats_of(rounds)
    assert stats.acceptance_rate is not None
    assert 0.1 < stats.acceptance_rate < 0.9
    assert len(stats.per_position) == 3
    assert {token.origin for round_ in rounds for token in round_.tokens} == {
        Origin.ACCEPTED,
        Origin.CORRECTION,
        Origin.BONUS,
    }


@pytest.mark.parametrize("repeat_penalty", [1.0, 1.8])
def test_a_repeat_penalty_sees_the_prompt_and_what_was_sampled(
    rig: Rig, prompt: tuple[int, ...], repeat_penalty: float
) -> None:
    sampling = Sampling(temperature=0.0, repeat_penalty=repeat_penalty)
    plain = rig.reply(prompt, sampling=sampling, live=plainly(), max_tokens=60)
    reply = rig.reply(prompt, sampling=sampling, max_tokens=60)

    assert reply.tokens == plain.tokens
    loops = any(plain.tokens[-2 * n : -n] == plain.tokens[-n:] for n in range(1, 12))
    assert loops == (repeat_penalty == 1.0)


def test_a_seed_gives_the_same_reply_and_another_seed_another(
    rig: Rig, prompt: tuple[int, ...]
) -> None:
    replies = [rig.reply(prompt, sampling=HOT, seed=seed, max_tokens=40) for seed in (5, 5, 6)]

    assert replies[0].tokens == replies[1].tokens != replies[2].tokens
    assert [reply.end.seed for reply in replies] == [5, 5, 6]


# --- how a reply ends ---


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 7])
def test_a_reply_is_exactly_as_long_as_allowed(
    rig: Rig, prompt: tuple[int, ...], max_tokens: int
) -> None:
    reply = rig.reply(prompt, n_draft_max=16, max_tokens=max_tokens)

    assert len(reply.tokens) == reply.end.tokens == max_tokens
    assert reply.end.finish_reason is FinishReason.LENGTH
    check_bookkeeping(reply, prompt)


def test_an_end_token_ends_the_reply_and_writes_nothing(
    rig: Rig, prompt: tuple[int, ...], scripted: Callable[[str], None]
) -> None:
    scripted("abc$abc")

    reply = rig.reply(prompt)

    assert (reply.text, reply.end.finish_reason) == ("abc", FinishReason.STOP)
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
    draft = rig.session.draft
    drafts: list[list[int]] = []

    def remember(*args: int) -> list[int]:
        drafts.append(draft(*args))
        return drafts[-1]

    monkeypatch.setattr(rig.session, "draft", remember)
    monkeypatch.setattr(
        Sampler, "sample", lambda _self, _context, row: [*drafts[-1], tiny.EOS][row]
    )
    monkeypatch.setattr(Model, "is_end", lambda _self, id: id == [*drafts[-1], tiny.EOS][letter])

    reply = rig.reply(prompt)

    (round_,) = reply.rounds
    first = drafts[-1].index(drafts[-1][letter]) if letter < 3 else 3
    assert len(round_.tokens) == first + 1
    assert (round_.n_tested, round_.n_accepted) == (min(first + 1, 3),) * 2
    assert round_.rejected is None
    assert len(rig.generator.cached) == round_.n_past == len(prompt) - 1 + 1 + round_.n_accepted
    check_bookkeeping(reply, prompt)


def test_a_stop_string_over_several_tokens_ends_the_reply_before_it(
    rig: Rig, prompt: tuple[int, ...], scripted: Callable[[str], None]
) -> None:
    scripted("helloworld")

    reply = rig.reply(prompt, stop=["low"])

    assert (reply.text, reply.end.finish_reason) == ("hel", FinishReason.STOP)
    assert reply.end.tail == ""


def test_text_held_back_for_a_stop_string_comes_out_at_the_end(
    rig: Rig, prompt: tuple[int, ...], scripted: Callable[[str], None]
) -> None:
    scripted("hellowo")

    reply = rig.reply(prompt, stop=["world"], max_tokens=7)

    assert (reply.text, reply.end.tail) == ("hellowo", "wo")
    assert reply.end.finish_reason is FinishReason.LENGTH


def test_a_character_of_two_tokens_is_one_piece_of_text(
    rig: Rig, prompt: tuple[int, ...], scripted: Callable[[str], None]
) -> None:
    scripted("aÃ©b")

    reply = rig.reply(prompt, n_draft_max=0, max_tokens=4)

    assert [round_.text for round_ in reply.rounds] == ["a", "", "é", "b"]


def test_a_full_context_ends_the_reply_at_its_last_position(
    tiny_models: tuple[Model, Model],
) -> None:
    with open_rig(*tiny_models, n_ctx=256) as rig:
        prompt = rig.prompt("the cat " * 20)
        for n_draft_max in (0, 16):
            reply = rig.reply(prompt, n_draft_max=n_draft_max, max_tokens=None)
            assert reply.end.finish_reason is FinishReason.CONTEXT
            assert len(prompt) + len(reply.tokens) == rig.target.n_ctx + 1
            assert reply.rounds[-1].n_past <= rig.target.n_ctx
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


def test_a_prompt_of_one_token_is_enough(rig: Rig) -> None:
    plain = rig.reply([3], live=plainly(), max_tokens=20)

    reply = rig.reply([3], max_tokens=20)

    assert reply.tokens == plain.tokens
    assert stats_of(reply.rounds).drafted > 0


# --- cancel ---


def test_a_cancel_takes_effect_within_one_round(rig: Rig, prompt: tuple[int, ...]) -> None:
    rounds: list[Round] = []
    for event in rig.stream(prompt, max_tokens=None, cancelled=lambda: len(rounds) == 3):
        if isinstance(event, Round):
            rounds.append(event)
    assert len(rounds) == 3
    assert isinstance(event, ReplyEnd)
    assert event.finish_reason is FinishReason.CANCELLED
    assert event.tokens == sum(len(round_.tokens) for round_ in rounds)


def test_a_cancel_in_prefill_takes_effect_within_one_chunk_and_keeps_what_was_read(
    tiny_models: tuple[Model, Model],
) -> None:
    with open_rig(*tiny_models, n_batch=32) as rig:
        prompt = rig.prompt("the quick brown fox " * 20)
        seen: list[int] = []
        for event in rig.stream(prompt, cancelled=lambda: seen[-1] >= 64):
            if isinstance(event, Prefill):
                seen.append(event.done)
        assert isinstance(event, ReplyEnd)
        assert (event.finish_reason, event.tokens) == (FinishReason.CANCELLED, 0)
        assert seen == [0, 32, 64]

        reply = rig.reply(prompt)
        assert reply.end.timings.reused_tokens == 63
        assert reply.end.timings.prefill_tokens == len(prompt) - 1 - 63
        fresh = fresh_reply(tiny_models, prompt)
        assert drafts_of(reply) == drafts_of(fresh)


def test_a_cancel_while_the_draft_catches_up_samples_nothing_more(
    tiny_models: tuple[Model, Model],
) -> None:
    with open_rig(*tiny_models, n_batch=32) as rig:
        prompt = rig.prompt("the quick brown fox " * 20)
        live, state = plainly(), {"cancelled": False}
        n_rounds = 0
        for event in rig.stream(prompt, live=live, cancelled=lambda: state["cancelled"]):
            if isinstance(event, Round):
                n_rounds += 1
                live.apply(Set(enabled=True))
            elif isinstance(event, Prefill) and n_rounds:
                state["cancelled"] = True
        assert isinstance(event, ReplyEnd)
        assert event.finish_reason is FinishReason.CANCELLED
        assert event.tokens == n_rounds == 1


# --- changes in mid-reply ---


def changed_at(
    rig: Rig, prompt: Sequence[int], changes: dict[int, Set], *, max_tokens: int = 60
) -> Reply:
    """A reply during which settings change after the rounds of these numbers."""
    live = Live(Speculation(n_draft_max=3), 0.0)
    events = []
    for event in rig.stream(prompt, live=live, max_tokens=max_tokens):
        events.append(event)
        if isinstance(event, Round) and event.index in changes:
            live.apply(changes[event.index])
    return Reply(tuple(events))


def drafts_of(reply: Reply) -> list[tuple[int, ...]]:
    return [tuple(token.id for token in round_.drafted) for round_ in reply.rounds]


def fresh_reply(models: tuple[Model, Model], prompt: Sequence[int], **options: object) -> Reply:
    with open_rig(*models) as rig:
        return rig.reply(prompt, **options)


def test_n_draft_max_changes_from_the_next_round_on(rig: Rig, prompt: tuple[int, ...]) -> None:
    plain = rig.reply(prompt, live=plainly(), max_tokens=60)

    reply = changed_at(
        rig, prompt, {2: Set(n_draft_max=8), 4: Set(n_draft_max=0), 6: Set(n_draft_max=1)}
    )

    assert [round_.n_draft_max for round_ in reply.rounds[:9]] == [3, 3, 3, 8, 8, 0, 0, 1, 1]
    assert [len(draft) for draft in drafts_of(reply)[:9]] == [3, 3, 3, 8, 8, 0, 0, 1, 1]
    assert reply.tokens == plain.tokens
    check_bookkeeping(reply, prompt)


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


def test_p_min_and_temperature_change_in_mid_reply(rig: Rig, prompt: tuple[int, ...]) -> None:
    reply = changed_at(rig, prompt, {2: Set(p_min=1.0), 5: Set(p_min=0.0)})
    lengths = [len(draft) for draft in drafts_of(reply)[:8]]
    assert lengths == [3, 3, 3, 0, 0, 0, 3, 3]

    cold = rig.reply(prompt, max_tokens=60)
    heated = changed_at(rig, prompt, {4: Set(temperature=5.0)})
    again = changed_at(rig, prompt, {4: Set(temperature=5.0)})
    until = sum(len(round_.tokens) for round_ in heated.rounds[:5])
    assert heated.tokens[:until] == cold.tokens[:until]
    assert heated.tokens != cold.tokens[: len(heated.tokens)]
    assert heated.tokens == again.tokens


@pytest.mark.parametrize("by", ["n_draft_max", "enabled"])
def test_drafts_after_speculation_was_off_are_as_if_it_never_was(
    rig: Rig, tiny_models: tuple[Model, Model], prompt: tuple[int, ...], by: str
) -> None:
    off = Set(n_draft_max=0) if by == "n_draft_max" else Set(enabled=False)
    on = Set(n_draft_max=3) if by == "n_draft_max" else Set(enabled=True)

    reply = changed_at(rig, prompt, {3: off, 8: on})

    assert drafts_of(reply)[4:9] == [()] * 5
    assert {r.n_draft_max for r in reply.rounds[4:9]} == {0}
    assert {token.origin for r in reply.rounds[4:9] for token in r.tokens} == {Origin.PLAIN}
    # A fresh pair that reads the same tokens as a prompt drafts the same from there on.
    emitted = [token.id for round_ in reply.rounds[:9] for token in round_.tokens]
    fresh = fresh_reply(tiny_models, [*prompt, *emitted], max_tokens=60)
    assert drafts_of(reply)[9:20] == drafts_of(fresh)[:11]
    assert all(drafts_of(fresh)[:11])


def test_a_catch_up_in_mid_reply_is_not_the_prompt_s_prefill(
    rig: Rig, prompt: tuple[int, ...]
) -> None:
    reply = changed_at(rig, prompt, {3: Set(enabled=False), 8: Set(enabled=True)})

    assert reply.end.timings.prefill_tokens == len(prompt) - 1
    assert reply.end.timings.reused_tokens == 0
    assert [p for p in reply.prefills if p.total > len(prompt)]


def test_the_parts_of_a_round_do_not_overlap(
    rig: Rig, prompt: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that stands still but for process(), which takes a second."""
    clock = {"now": 0.0}
    process = rig.session.process

    def slow_process(batch: object) -> None:
        process(batch)
        clock["now"] += 1.0
        rig.session._counts.process_s += 1.0

    monkeypatch.setattr(rig.session, "process", slow_process)
    monkeypatch.setattr(loop_module.time, "perf_counter", lambda: clock["now"])

    for round_ in rig.reply(prompt).rounds:
        timings = round_.timings
        assert timings.total_ms == timings.process_ms == 1000.0
        assert (timings.draft_ms, timings.verify_ms, timings.sample_ms) == (0.0, 0.0, 0.0)


# --- the next turn ---


def conversation(rig: Rig, **options: object) -> tuple[Reply, tuple[int, ...]]:
    """A first reply, and the prompt of the turn after it."""
    first = rig.prompt("the cat sat on the mat and saw the bird in the tree")
    reply = rig.reply(first, **options)
    rig.prompter.note_reply(first, reply.tokens)
    question = "the cat sat on the mat and saw the bird in the tree"
    return reply, rig.prompt(question, "x" + reply.text, "and then")


@pytest.mark.parametrize("n_draft_max", [0, 3])
def test_a_second_turn_reads_only_what_is_new_in_both_caches(
    rig: Rig, tiny_models: tuple[Model, Model], n_draft_max: int
) -> None:
    _, prompt = conversation(rig, n_draft_max=n_draft_max)

    second = rig.reply(prompt, max_tokens=60)

    timings = second.end.timings
    assert timings.reused_tokens + timings.prefill_tokens == len(prompt) - 1
    assert timings.prefill_tokens < 16
    assert second.prefills[0].done == second.prefills[0].reused == timings.reused_tokens > 70
    fresh = fresh_reply(tiny_models, prompt, max_tokens=60)
    assert second.tokens == fresh.tokens
    assert drafts_of(second) == drafts_of(fresh)


def test_a_turn_without_speculation_in_between_does_not_spoil_the_next(
    rig: Rig, tiny_models: tuple[Model, Model]
) -> None:
    _, prompt = conversation(rig, live=plainly())

    second = rig.reply(prompt, max_tokens=60)

    assert drafts_of(second) == drafts_of(fresh_reply(tiny_models, prompt, max_tokens=60))


def test_a_prompt_that_departs_early_keeps_only_what_is_common(
    rig: Rig, tiny_models: tuple[Model, Model], prompt: tuple[int, ...]
) -> None:
    rig.reply(prompt, max_tokens=60)
    other = rig.prompt("the cat ran")
    common = next(i for i, (a, b) in enumerate(zip(prompt, other, strict=False)) if a != b)

    reply = rig.reply(other, max_tokens=60)

    assert reply.end.timings.reused_tokens == common - 1
    fresh = fresh_reply(tiny_models, other, max_tokens=60)
    assert (reply.tokens, drafts_of(reply)) == (fresh.tokens, drafts_of(fresh))


def test_the_same_prompt_again_gives_the_same_reply(rig: Rig, prompt: tuple[int, ...]) -> None:
    first, again = rig.reply(prompt, max_tokens=60), rig.reply(prompt, max_tokens=60)

    assert (first.tokens, drafts_of(first)) == (again.tokens, drafts_of(again))
    assert again.end.timings.prefill_tokens == 1


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


# --- failures ---


def fail_after(
    monkeypatch: pytest.MonkeyPatch, context: Context, name: str, *, calls: int, status: int = -3
) -> None:
    """The context's `name` returns `status` after so many calls."""
    real, left = getattr(context, name), iter(range(calls))
    monkeypatch.setattr(
        context, name, lambda batch: real(batch) if next(left, None) is not None else status
    )


@pytest.mark.parametrize("part", ["decode", "encode"])
def test_a_draft_that_fails_ends_speculation_with_a_reason_and_the_reply_goes_on(
    rig: Rig,
    tiny_models: tuple[Model, Model],
    prompt: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    part: str,
) -> None:
    plain = rig.reply(prompt, live=plainly(), max_tokens=60)
    with monkeypatch.context() as patch:
        fail_after(patch, rig.draft, part, calls=12)
        reply = rig.reply(prompt, max_tokens=60)

    (off,) = reply.offs
    assert "status -3" in off.reason
    assert reply.tokens == plain.tokens
    assert reply.end.finish_reason is FinishReason.LENGTH
    before = reply.events.index(off)
    assert any(r.drafted for r in reply.events[:before] if isinstance(r, Round))
    after = [event for event in reply.events[before + 2 :] if isinstance(event, Round)]
    assert after
    assert not any(r.drafted or r.n_draft_max for r in after)

    # The next reply drafts again, as well as a fresh pair.
    again = rig.reply(prompt, max_tokens=60)
    assert again.offs == []
    assert drafts_of(again) == drafts_of(fresh_reply(tiny_models, prompt, max_tokens=60))


def test_a_draft_without_output_ends_speculation_too(
    rig: Rig, prompt: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_output(_row: int) -> None:
        raise DecodeError("llama.cpp returned no output")

    plain = rig.reply(prompt, live=plainly())
    monkeypatch.setattr(rig.draft, "state", no_output)

    reply = rig.reply(prompt)

    assert [off.reason for off in reply.offs] == ["the draft failed: llama.cpp returned no output"]
    assert reply.tokens == plain.tokens


@pytest.mark.parametrize("failure", [(1, "no room"), (-3, "status -3")])
def test_a_target_that_fails_is_an_error_and_the_next_reply_works(
    rig: Rig,
    tiny_models: tuple[Model, Model],
    prompt: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    failure: tuple[int, str],
) -> None:
    status, says = failure
    with monkeypatch.context() as patch:
        fail_after(patch, rig.target, "decode", calls=6, status=status)
        with pytest.raises(DecodeError, match=says):
            rig.reply(prompt, max_tokens=60)

    reply = rig.reply(prompt, max_tokens=60)

    fresh = fresh_reply(tiny_models, prompt, max_tokens=60)
    assert (reply.tokens, drafts_of(reply)) == (fresh.tokens, drafts_of(fresh))
