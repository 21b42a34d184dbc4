"""`eaglechat run` with a model that thinks before it answers."""

from __future__ import annotations

import io

import msgspec
import pytest
from msgspec.structs import replace

from eaglechat.chat.recording import Recording, Terms
from eaglechat.cli import run
from eaglechat.wire.protocol import OWN_ENGINE, PROTOCOL_VERSION, Done, Hello, Progress, Settled
from eaglechat.wire.records import (
    FinishReason,
    Origin,
    Part,
    ReplyEnd,
    ReplyTimings,
    Round,
    RoundTimings,
    Token,
)
from eaglechat.wire.stats import stats_of
from tests.tui.scripted_reports import pair_info

HELLO = Hello(
    protocol=PROTOCOL_VERSION, can=OWN_ENGINE, eaglechat="0", llama_cpp="scripted", devices=()
)
SAID = (
    ("", None),
    ("Two", Part.REASONING),
    (", two.", Part.REASONING),
    ("", None),
    ("4", Part.ANSWER),
)
ROUNDS = [
    Round(
        index, 0, (), 0, 0, (Token(index, text, Origin.PLAIN, None, part),), index,
        RoundTimings(0.0, 10.0, 0.0, 0.0, 10.0),
    )
    for index, (text, part) in enumerate(SAID)
]  # fmt: skip
END = ReplyEnd(
    FinishReason.STOP, 1, 5, ".", ReplyTimings(1.0, 3, 0, 50.0, 0.0, 50.0, 0.0, 0.0), Part.ANSWER
)
ANSWERS = [*(Progress(id=1, step=round_) for round_ in ROUNDS),
           Done(id=1, end=END, stats=stats_of(ROUNDS))]  # fmt: skip


@pytest.mark.parametrize("shows_reasoning", [False, True])
def test_the_answer_goes_to_one_stream_and_reasoning_to_the_other(shows_reasoning: bool) -> None:
    out, err = io.StringIO(), io.StringIO()
    written = {Part.ANSWER: run.ReplyStream(out)}
    if shows_reasoning:
        written[Part.REASONING] = run.ReplyStream(err)

    run.write_reply(ANSWERS, Recording(Terms()), trace=None, written=written)

    assert out.getvalue() == "4."
    assert err.getvalue() == ("Two, two.\n" if shows_reasoning else "")


def test_json_has_both_and_the_numbers_of_each_part() -> None:
    recording = Recording(Terms())
    run.write_reply(ANSWERS, recording, trace=None, written={})

    reply = run.FinishedReply(recording, "pair", pair_info("t", None, None), HELLO, None)
    report = msgspec.json.decode(msgspec.json.encode(reply.report()))

    assert (report["reasoning"], report["text"]) == ("Two, two.", "4.")
    assert report["parts"]["reasoning"]["tokens"] == 2
    assert report["parts"]["answer"]["tokens_per_second"] == pytest.approx(100.0)


def test_rounds_that_an_engine_settles_count_in_place_of_those_told_before() -> None:
    final = replace(ROUNDS[1], timings=replace(ROUNDS[1].timings, total_ms=20.0))
    answers = [Progress(id=1, step=ROUNDS[1]), Progress(id=1, step=Settled((final,))), ANSWERS[-1]]
    trace = io.BytesIO()

    recording = Recording(Terms())
    run.write_reply(answers, recording, trace=trace, written={})

    assert recording.reasoning == "Two"
    counted = recording.by_part[Part.REASONING]
    assert (counted.written, counted.ms) == (1, 20.0)
    written = [msgspec.json.decode(line, type=Round) for line in trace.getvalue().splitlines()]
    assert written == [ROUNDS[1], final]
