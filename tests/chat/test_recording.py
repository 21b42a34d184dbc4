"""What the engine reported of one request, and what is measured of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from eaglechat.chat.measured import by_part, measured
from eaglechat.chat.recording import Recording, TurnPart
from eaglechat.chat.turns import Turns
from eaglechat.wire.protocol import Message
from eaglechat.wire.records import Origin, Part, Round, Token
from eaglechat.wire.stats import stats_of
from tests.chat.records import TERMS, end_of, plainly, recorded, round_of, thinking
from tests.wire.test_stats import a_round


def test_the_statistics_are_the_engines_own_once_it_has_said_them() -> None:
    recording = plainly(1, 2, ms=10.0)
    assert recording.stats.rounds == 2
    said = stats_of([round_of(1)] * 7)
    recording.finish(end_of(2, 10.0), said)
    assert recording.stats is said


def test_a_recording_that_was_cut_off_still_has_numbers() -> None:
    recording = Recording(TERMS)
    recording.add(round_of(1, 2))
    recording.add(round_of(3))
    assert recording.text == " t1 t2 t3"
    assert recording.stats.rounds == 2
    assert recording.measured.tokens_per_second == 150.0
    assert Recording(TERMS).measured.tokens_per_second is None


def test_reasoning_is_a_part_of_its_own_and_sent_in_its_own_field() -> None:
    recording = recorded(
        thinking("let me", " see"), thinking("<marker>", part=None), round_of(1), round_of(2)
    )
    assert recording.text == " t1 t2"
    assert recording.reasoning == "let me see"
    turns = Turns()
    reply = turns.answer(turns.ask([TurnPart("why?")]).id, recording)
    assert turns.messages_to(reply.id) == (
        Message(role="user", content="why?"),
        Message(role="assistant", content=" t1 t2", reasoning="let me see"),
    )


def test_the_speed_is_tokens_over_the_wall_time_of_the_rounds() -> None:
    rounds = [a_round(drafted=1, accepted=1, ms=20.0)] * 3
    assert measured(rounds).tokens_per_second == pytest.approx(2 * 1000.0 / 20.0)
    assert measured([]).tokens_per_second is None


def part_round(*parts: Part | None, ms: float = 10.0) -> Round:
    """A plain round for each token would be usual; here one round gives them all."""
    tokens = tuple(Token(1, "t", Origin.PLAIN, None, part) for part in parts)
    return replace(a_round(drafted=0, accepted=0, ms=ms), tokens=tokens)


def test_parts_are_counted_apart_and_markers_belong_to_the_part_before() -> None:
    stats = by_part(
        [
            part_round(None),
            part_round(Part.REASONING, Part.REASONING, ms=20.0),
            part_round(Part.REASONING, None, Part.ANSWER, ms=30.0),
            part_round(Part.ANSWER, ms=5.0),
        ]
    )

    assert (stats[Part.REASONING].tokens, stats[Part.ANSWER].tokens) == (5, 2)
    assert (stats[Part.REASONING].ms, stats[Part.ANSWER].ms) == (50.0, 15.0)
    assert stats[Part.REASONING].tokens_per_second == pytest.approx(5 / 0.05)


def test_a_reply_without_reasoning_has_one_part() -> None:
    rounds = [a_round(drafted=3, accepted=2)]
    ((part, own),) = by_part(rounds).items()
    assert (part, own.tokens, own.ms, own.stats) == (Part.ANSWER, 3, 10.0, stats_of(rounds))
