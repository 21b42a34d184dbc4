"""A race between ways to draft and plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from eaglechat.chat.racing import (
    FEWEST_HEATS,
    HEAT_TOKENS,
    HEATS,
    Fork,
    Heat,
    Leg,
    Race,
    Result,
    contenders,
    first_fork,
    result_of,
)
from eaglechat.chat.recording import Recording
from eaglechat.engine.bench.measure import PLAINLY
from eaglechat.hub.local.speeds import Speeds
from eaglechat.tui.texts import racing
from eaglechat.wire import protocol
from eaglechat.wire.capabilities import EVERYTHING, Capabilities
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import FinishReason, Origin, Token
from tests.chat.headless import Headless
from tests.chat.records import plainly, recorded, round_of
from tests.tui.scripted_reports import pair_info

THREE = Speculation(n_draft_max=3)
EIGHT = Speculation(n_draft_max=8)


def reply(reason: FinishReason = FinishReason.STOP) -> Recording:
    return recorded(round_of(1, 2), round_of(3), reason=reason)


def raced(*times: tuple[float, float], drafted: int = 2, who: Speculation = THREE) -> Result:
    """The result of heats of three tokens, by the milliseconds of plain decoding and of drafts."""
    heats = []
    for place, (plain, ours) in enumerate(times):
        by_drafts = recorded(round_of(1, 2, 3, drafted=drafted), reason=FinishReason.LENGTH)
        by_itself = plainly(1, 2, 3, ms=plain, reason=FinishReason.LENGTH)
        legs = {PLAINLY: Leg(by_itself, 3, plain), who: Leg(by_drafts, 3, ours)}
        heats.append(Heat(3 * place, legs))
    return result_of(heats, [PLAINLY, who])


def test_a_gain_has_its_error_and_a_slow_moment_that_hits_both_is_none() -> None:
    result = raced((60.0, 40.0), (61.0, 41.0), (59.0, 39.0), (600.0, 400.0), (60.0, 40.0))
    (_, score) = result.scores
    assert score.gain.speed_up == pytest.approx(1.5, abs=0.01)
    said = racing.sentence(result)
    assert said == "1.50x ±0.01 faster than plain with length 3; same text in 15 tokens."


@pytest.mark.parametrize(
    ("times", "drafted", "said"),
    [
        ([(60, 40), (60, 80), (60, 50), (60, 66)], 2, "No difference that could be measured"),
        ([(60, 55), (60, 54), (60, 56), (60, 55)], 0, "auto drafted nothing here"),
        ([(60, 80), (61, 80), (60, 81), (60, 80)], 2, "Slower than plain: auto is 0.75x ±0.0"),
        ([(60, 40)] * (FEWEST_HEATS - 1), 2, "too early to tell"),
        ([], 2, "before anything was measured"),
    ],
)
def test_noise_is_no_gain(times: Sequence[tuple[float, float]], drafted: int, said: str) -> None:
    result = raced(*times, drafted=drafted, who=Speculation(n_draft_max=AUTO))
    assert said in racing.sentence(result)


def race(chat: Headless, *who: Speculation) -> Race:
    asked = chat.session.to_race()
    hello = chat.session.hello
    assert asked is not None
    assert hello is not None
    race = Race(chat.engine, hello, asked, who, lambda: None)
    race.start()
    return race


def requests(chat: Headless) -> list[protocol.Chat]:
    """The requests of a race: those after the chat's own."""
    return chat.engine.requests(protocol.Chat)[1:]


def test_in_each_heat_all_continue_the_same_text_with_the_same_seed(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    turns = chat.texts
    running = race(chat, THREE, EIGHT)
    chat.pump_until(lambda: running.is_over)

    asked = requests(chat)
    heats = [asked[at : at + 3] for at in range(0, len(asked), 3)]
    assert len(heats) == HEATS
    for heat in heats:
        assert {one.speculation.n_draft_max for one in heat if one.speculation.enabled} == {3, 8}
        assert len({(one.begun, one.sampling.seed) for one in heat}) == 1
    # The scripted reply has 54 tokens: it ends in the third heat, and begins again.
    assert [len(heat[0].begun) for heat in heats[:4]] == [0, HEAT_TOKENS, 2 * HEAT_TOKENS, 0]
    assert len({heat[0].sampling.seed for heat in heats}) == HEATS
    assert {heat[0].messages for heat in heats} == {chat.last_request.messages}

    result = running.result()
    best = result.best
    assert best is not None
    assert (best.who, best.verdict, best.fork) == (THREE, "faster", None)
    assert result.scores[0].tokens_per_second == pytest.approx(1000 / 12)
    assert chat.texts == turns

    speeds = Speeds(tmp_path)
    result.note(speeds, chat.pair)
    gain, plain = speeds.gain(chat.pair), speeds.plain(chat.pair, result.n_past)
    assert gain is not None
    assert (gain.speed_up, gain.n_draft_max, gain.by) == (best.gain.speed_up, 3, "chat")
    assert plain is not None
    assert plain.tokens_per_second == pytest.approx(1000 / 12)


def test_a_fork_is_found_where_it_is(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.engine.plain_fork_at = 30
    chat.ask("why?")
    running = race(chat, THREE)
    chat.pump_until(lambda: running.is_over)
    said = racing.sentence(running.result())
    assert "first difference at token 31: “ side:”, plainly “ otherwise”" in said


def test_a_race_that_is_stopped_keeps_the_heats_that_ended(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    running = race(chat, THREE)
    chat.pump_until(lambda: len(running.heats) == FEWEST_HEATS)
    running.stop()
    chat.pump_until(lambda: running.is_over)
    assert len(running.heats) == FEWEST_HEATS
    assert racing.sentence(running.result()).startswith("1.")


def test_a_race_ends_with_the_engine(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    running = race(chat, THREE)
    chat.engine.die()
    chat.pump_until(lambda: running.is_over)
    assert running.failure is not None


def test_a_server_writes_short_replies_from_the_beginning(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    hello = chat.engine.hello
    assert hello is not None
    chat.engine.hello = msgspec.structs.replace(hello, can=Capabilities(plain=True))
    chat.ask("why?")
    asked = chat.session.to_race()
    assert asked is not None
    (as_started,) = contenders(asked.terms.speculation, chat.info, chat.engine.hello)
    running = race(chat, as_started)
    chat.pump_until(lambda: running.is_over)
    assert {one.begun for one in requests(chat)} == {()}
    assert running.result().scores[1].verdict == "faster"


def test_who_can_race() -> None:
    info = pair_info("t.gguf", "d.gguf", None)
    everything = protocol.Hello(protocol=3, can=EVERYTHING, eaglechat="", llama_cpp="", devices=())
    now = Speculation(enabled=False, n_draft_max=0)
    names = [racing.name(one) for one in contenders(now, info, everything)]
    # What is set would decode plainly, so auto races.
    assert names[:3] == ["auto", "length 1", "length 2"]
    assert names[-1] == "n-grams"


@pytest.mark.parametrize(
    ("plain_ids", "plain_end", "fork"),
    [
        ((1, 2), FinishReason.STOP, Fork(2, " t3", None)),
        ((1, 2), FinishReason.CANCELLED, None),
        ((1, 9, 3), FinishReason.STOP, Fork(1, " t2", " t9")),
        ((1, 2, 3, 4), FinishReason.LENGTH, Fork(3, None, " t4")),
        ((1, 2, 3), FinishReason.LENGTH, None),
    ],
)
def test_the_first_fork(
    plain_ids: tuple[int, ...], plain_end: FinishReason, fork: Fork | None
) -> None:
    assert first_fork(reply(), plainly(*plain_ids, ms=10.0, reason=plain_end)) == fork


def sent(*chunks: str, reason: FinishReason = FinishReason.STOP) -> Recording:
    """A reply of a server that names no tokens, by what it sent at once."""
    tokens = (Token(None, text, Origin.UNKNOWN) for text in chunks)
    rounds = (replace(round_of(1, drafted=0), tokens=(token,)) for token in tokens)
    return recorded(*rounds, reason=reason)


@pytest.mark.parametrize(
    ("speculative", "plain", "fork"),
    [
        (sent("A", " cat sat", "."), sent("A", " cat", " sat", "."), None),
        (sent("A", " cat sat"), sent("A", " cat", " ran"), Fork(1, " cat sat", " cat ran")),
        (sent("A", " cat"), sent("A", " cat", " ran"), Fork(2, None, " ran")),
        (sent("A"), sent("A", " cat", reason=FinishReason.LENGTH), Fork(1, None, " cat")),
        (sent("A", reason=FinishReason.LENGTH), sent("A", " cat"), None),
    ],
)
def test_what_a_server_sends_at_once_is_no_difference(
    speculative: Recording, plain: Recording, fork: Fork | None
) -> None:
    assert first_fork(speculative, plain) == fork
