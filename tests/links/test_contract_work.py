"""What every engine answers to what it is asked: replies, prompts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglechat.chat.comparing import Asked, Comparison
from eaglechat.chat.recording import Terms
from eaglechat.wire import protocol as p
from eaglechat.wire.records import FinishReason
from eaglechat.wire.stats import stats_of
from eaglechat.words.comparing import named
from tests.engine_client import Client
from tests.links.conftest import connected
from tests.links.engines import OUR_OWN, chat, endless, of_our_own
from tests.tui.scripted_reports import pair_info


@pytest.fixture(scope="module", params=[*OUR_OWN, "http"])
def client(
    request: pytest.FixtureRequest,
    tiny_files: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Client]:
    """One engine for all tests here, as starting one takes seconds."""
    with connected(request, tiny_files, tmp_path_factory.mktemp("engine")) as client:
        yield client


# --- replies ---


def test_a_reply_is_prefill_rounds_and_done(loaded: Client) -> None:
    reply = loaded.answer(chat())

    prefills, rounds = reply.of(p.Prefill), reply.rounds
    assert [event.step for event in reply.events[:-1]] == [*prefills, *rounds]
    assert prefills[-1].done == prefills[0].total
    done = reply.last
    assert done.stats == stats_of(rounds)
    assert done.end.tokens == sum(len(round_.tokens) for round_ in rounds) == 40
    assert done.end.finish_reason is FinishReason.LENGTH
    assert [round_.index for round_ in rounds] == list(range(len(rounds)))


def test_a_comparison_continues_one_text_heat_by_heat(loaded: Client) -> None:
    greedy = chat(max_tokens=30)
    terms = Terms(sampling=greedy.sampling, max_tokens=greedy.max_tokens)
    hello, info = loaded.link.hello, pair_info("t.gguf", "d.gguf", None)
    assert hello is not None
    lengths = (3, p.AUTO) if hello.can.draft_length else (3,)
    drafting = named(
        [p.PLAINLY, *(p.Speculation(n_draft_max=length) for length in lengths)], hello.can
    )
    running = Comparison(
        loaded.link,
        hello,
        info,
        Asked({"q": greedy.messages}, terms, heat_tokens=8),
        drafting,
        changed=lambda: None,
    )
    running.start()
    loaded.until(lambda: len(running.heats) >= 4, "four heats")
    running.stop()
    loaded.until(lambda: running.result, "the end of it")

    assert running.failure is None
    if hello.can.own:
        # The fourth would go beyond the limit of the reply, which begins again.
        assert [bool(heat.before) for heat in running.heats][:4] == [False, True, True, False]
        legs = [leg for heat in running.heats for leg in heat.legs.values()]
        # Without those of plain checks they may be fewer.
        assert all(8 <= leg.recording.stats.tokens <= 24 for leg in legs)
    assert [*map(running.so_far().fork, running.so_far().scores)] == [None] * len(drafting)


@of_our_own
def test_requests_are_answered_one_after_the_other(loaded: Client) -> None:
    render = p.Render(messages=chat().messages)
    asked = [loaded.ask(request) for request in (chat(), render, chat(max_tokens=3), p.Unload())]
    assert len({one.id for one in asked}) == 4
    loaded.end(*asked)

    answers = [event for event in loaded.heard if hasattr(event, "id")]
    assert answers[-sum(len(one.events) for one in asked) :] == [
        event for one in asked for event in one.events
    ]
    assert [type(one.last) for one in asked] == [p.Done, p.Rendered, p.Done, p.Unloaded]


@of_our_own
def test_changes_reach_a_running_reply_and_the_one_that_waits(loaded: Client) -> None:
    first, second = loaded.ask(endless(loaded)), loaded.ask(chat(max_tokens=8))
    loaded.until(lambda: first.of(p.Round), "a round")
    loaded.link.send(p.Set(n_draft_max=1))
    loaded.until(lambda: first.rounds[-1].n_draft_max == 1, "a round with the new length")
    loaded.link.send(p.Cancel(id=first.id))
    loaded.end(first, second)

    lengths = [round_.n_draft_max for round_ in first.rounds]
    assert (lengths[0], lengths[-1]) == (3, 1)
    assert lengths == sorted(lengths, reverse=True)
    assert {round_.n_draft_max for round_ in second.rounds} == {1}


def test_a_cancel_ends_the_request_that_it_names(loaded: Client) -> None:
    long = endless(loaded)
    first, second, third = (loaded.ask(one) for one in (long, long, chat(max_tokens=8)))
    loaded.until(lambda: first.of(p.Round), "a round")
    loaded.link.send(p.Cancel(id=second.id))
    loaded.link.send(p.Cancel(id=first.id))
    loaded.end(first, second, third)

    reasons = [one.last.end.finish_reason for one in (first, second, third)]
    assert reasons == [FinishReason.CANCELLED, FinishReason.CANCELLED, FinishReason.LENGTH]
    assert first.last.end.tokens > 0
    assert second.last.end.tokens == 0


@of_our_own
def test_a_cancel_that_names_none_ends_them_all(loaded: Client) -> None:
    asked = [loaded.ask(endless(loaded)), loaded.ask(chat())]
    loaded.link.send(p.Cancel())
    loaded.end(*asked)

    assert [one.last.end.finish_reason for one in asked] == [FinishReason.CANCELLED] * 2


def test_a_cancel_of_what_is_over_is_nothing(loaded: Client) -> None:
    over = loaded.answer(chat())
    loaded.link.send(p.Cancel(id=over.id))
    assert loaded.answer(chat()).last.end.finish_reason is FinishReason.LENGTH


def test_a_listener_may_ask_on(loaded: Client) -> None:
    heard: list[p.Answer] = []

    def go_on(event: p.Answer) -> None:
        heard.append(event)
        if isinstance(event, p.Done) and len(heard) < 100:
            loaded.link.request(p.Unload(), heard.append)

    loaded.link.request(chat(max_tokens=2), go_on)
    loaded.until(lambda: heard and isinstance(heard[-1], p.Unloaded), "the second request's end")


# --- prompts ---


@of_our_own
def test_a_prompt_is_shown_as_the_reply_reads_it(loaded: Client) -> None:
    render = p.Render(messages=chat().messages)
    (shown,) = loaded.answer(render).events

    assert isinstance(shown, p.Rendered)
    assert "the cat sat on the mat" in "".join(run.text for run in shown.runs)
    assert any(run.is_control for run in shown.runs)
    (prefill, *_) = loaded.answer(chat()).of(p.Prefill)
    # All but the last token, which the first round decodes.
    assert prefill.total in (shown.tokens, shown.tokens - 1)


@of_our_own
def test_a_prompt_that_is_only_shown_changes_nothing(loaded: Client) -> None:
    first = loaded.answer(chat(max_tokens=2))
    other = (p.Message(role="user", content="something else altogether"),)
    for _ in range(12):
        loaded.answer(p.Render(messages=other))
    again = loaded.answer(chat(max_tokens=2)).of(p.Prefill)[0]
    assert again.reused >= again.total - 1 > 0
    assert first.events


@of_our_own
def test_without_a_pair_there_is_no_prompt(client: Client) -> None:
    client.ready()
    client.answer(p.Unload())
    (error,) = client.answer(p.Render(messages=chat().messages)).events
    assert error.code == "no_pair"
