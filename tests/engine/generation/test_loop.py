"""The loop's paths, on the tiny pair."""

from __future__ import annotations

import time
from typing import Any

import pytest

from eaglechat.engine.cache import CacheState
from eaglechat.engine.drafters.proposal import Proposal
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.llama.sampler import Sampler
from eaglechat.wire.errors import PromptError
from eaglechat.wire.protocol import AUTO, Auto, Set, Shape
from eaglechat.wire.records import (
    FinishReason,
    Prefill,
)
from tests import tiny
from tests.engine.rig import (
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


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("left", [6, 60])
def test_a_full_context_ends_the_reply_at_its_last_position(
    tiny_models: tuple[Model, Model], shape: Shape, left: int
) -> None:
    """Though drafts are longer than the room that is left."""
    with open_rig(*tiny_models, n_ctx=256, shape=shape) as rig:
        prompt = rig.prompt("the cat sat " * 30)[: 256 - left]
        plain, reply = (
            rig.reply(prompt, n_draft_max=n_draft_max, max_tokens=None) for n_draft_max in (0, 16)
        )
        assert reply.end.finish_reason is FinishReason.CONTEXT
        assert (reply.tokens, reply.offs) == (plain.tokens, [])
        assert len(prompt) + len(reply.tokens) == rig.target.n_ctx + 1
        assert reply.rounds[-1].n_past <= rig.target.n_ctx
        assert any(drafts_of(reply))
        assert any(round_.is_tree for round_ in reply.rounds) is (shape == "tree")
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
