"""What the engine reported of one request."""

from __future__ import annotations

import pytest

from eaglechat.chat.packing import pack, unpack
from eaglechat.chat.recording import Recording, TurnPart
from eaglechat.chat.turns import Turns
from eaglechat.wire.protocol import Message
from eaglechat.wire.records import Round
from eaglechat.wire.stats import stats_of
from tests.chat.records import TERMS, end_of, plainly, recorded, round_of, thinking


def test_rounds_on_disk_are_read_when_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def reads(packed: bytes) -> list[Round]:
        read.append(packed)
        return unpack(packed)

    monkeypatch.setattr("eaglechat.chat.recording.unpack", reads)
    recording = Recording(TERMS)
    recording.hold((pack([round_of(1, 2)]),), "from disk", "", 7)
    recording.finish(end_of(2, 10.0), stats_of([round_of(1, 2)]))
    assert (recording.text, recording.n_past) == ("from disk", 7)
    assert recording.is_answering
    assert recording.stats.tokens == 2
    assert recording.measured.tokens_per_second == 200.0
    assert not read
    assert len(recording.rounds) == 1
    assert recording.text == " t1 t2"


def test_the_statistics_are_the_engines_own_once_it_has_said_them() -> None:
    recording = plainly(1, 2, ms=10.0)
    assert recording.stats.rounds == 2
    said = stats_of([round_of(1)] * 7)
    recording.finish(end_of(2, 10.0), said)
    assert recording.stats is said


def test_a_recording_that_was_cut_off_still_has_numbers() -> None:
    recording = Recording(TERMS)
    recording.hold((pack([round_of(1, 2), round_of(3)]),), "", "", 0)
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
