"""Rounds on disk come back as they were, but for what is rounded."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eaglechat.chat.packing import STEPS, pack, unpack
from eaglechat.chat.store import ReplyRecord
from eaglechat.wire.records import (
    AutoDraft,
    AutoReason,
    DraftToken,
    Likely,
    Origin,
    Part,
    Round,
    RoundTimings,
    Token,
)
from tests.chat.records import round_of

# Text of models comes from UTF-8: no half characters of UTF-16.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ids = st.integers(0, 300_000)
ms = st.floats(0, 10_000)
drafters = st.sampled_from(["eagle3", "ngram", ""])
choices = st.builds(
    AutoDraft,
    n=st.just(0),
    reason=st.sampled_from(AutoReason),
    tokens_per_second=st.lists(st.floats(0, 1000), max_size=17).map(tuple),
    lost_ms=st.floats(-1e6, 1e6),
    allowed_ms=st.floats(0, 1e6),
    shape=st.sampled_from(["chain", "tree"]),
)


of_ten_thousand = st.integers(0, 10_000).map(lambda n: n / 10_000)
places = st.lists(st.builds(Likely, ids, texts, of_ten_thousand, of_ten_thousand), max_size=3).map(
    tuple
)


@st.composite
def some_rounds(draw: st.DrawFn) -> list[Round]:
    rounds = []
    for index in range(draw(st.integers(7, 9)), 10):
        drafted = tuple(
            DraftToken(
                draw(ids | st.none()),
                draw(texts | st.none()),
                draw(st.floats(0, 1) | st.none()),
                parent=draw(st.integers(-1, max(place - 1, -1))),
                drafter=draw(drafters),
            )
            for place in range(draw(st.integers(0, 3)))
        )
        # What was drafted in the same place, or something else.
        guesses = [*drafted[: draw(st.integers(0, 4))], *[DraftToken(None, None, None)] * 5]
        tokens = tuple(
            Token(
                draw(ids) if guess.id is None else guess.id,
                draw(texts) if guess.text is None else guess.text,
                draw(st.sampled_from(Origin)),
                draw(drafters) or None,
                draw(st.sampled_from([*Part, None])),
            )
            for guess in guesses[: draw(st.integers(1, 4))]
        )
        n_tested = draw(st.integers(0, len(drafted)))
        n_draft_max = draw(st.integers(0, 300))
        auto = draw(st.none() | choices)
        rounds.append(
            Round(
                index=index,
                n_draft_max=n_draft_max,
                drafted=drafted,
                n_tested=n_tested,
                n_accepted=draw(st.integers(0, n_tested)),
                tokens=tokens,
                n_past=draw(st.integers(0, 10**6)),
                timings=RoundTimings(*(draw(ms | st.none()) for _ in range(4)), draw(ms)),
                auto=auto and replace(auto, n=n_draft_max),
                given=tuple(draw(st.lists(ids, max_size=2))),
                likely=tuple(draw(st.lists(places, max_size=2))),
                is_plain_check=draw(st.booleans()),
            )
        )
    return rounds


STEP = 0.51 / STEPS


@settings(max_examples=40)
@given(some_rounds())
def test_rounds_come_back(rounds: list[Round]) -> None:
    back = unpack(pack(rounds))
    for was, now in zip(rounds, back, strict=True):
        for name in ("draft_ms", "verify_ms", "process_ms", "sample_ms", "total_ms"):
            assert getattr(now.timings, name) == pytest.approx(getattr(was.timings, name), abs=STEP)
        for one, other in zip(was.drafted, now.drafted, strict=True):
            assert other == replace(one, probability=other.probability)
            assert other.probability == pytest.approx(one.probability, abs=STEP)
        assert (was.auto is None) == (now.auto is None)
        if was.auto and now.auto:
            assert now.auto.reason is was.auto.reason
            assert now.auto.shape == was.auto.shape
            assert now.auto.lost_ms == pytest.approx(was.auto.lost_ms, abs=STEP)
        for place, others in zip(was.likely, now.likely, strict=True):
            for like, unlike in zip(place, others, strict=True):
                assert (unlike.id, unlike.text) == (like.id, like.text)
                assert unlike.chance == pytest.approx(like.chance, abs=STEP)
        rounded = {name: getattr(now, name) for name in ("timings", "drafted", "auto", "likely")}
        assert now == replace(was, **rounded)
    if rounds[-1].auto:
        assert back[-1].auto
        expected = pytest.approx(rounds[-1].auto.tokens_per_second, abs=STEP)
        assert back[-1].auto.tokens_per_second == expected


@settings(max_examples=40)
@given(some_rounds(), st.data())
def test_damaged_rounds_say_so(rounds: list[Round], data: st.DataObject) -> None:
    packed = pack(rounds)
    place = data.draw(st.integers(0, len(packed) - 1))
    changed = bytes([packed[place] ^ data.draw(st.integers(1, 255))])
    damaged = [packed[:place], packed[:place] + changed + packed[place + 1 :], b""]
    with pytest.raises(ValueError, match=r"."):
        unpack(data.draw(st.sampled_from(damaged)))


def test_numbers_that_are_none_and_half_characters_do_no_harm() -> None:
    token = Token(1, "\ud83d", Origin.PLAIN)
    drafted = (DraftToken(1, "\ud83d", float("nan")),)
    timings = RoundTimings(0.0, 0.0, 0.0, 0.0, float("inf"))
    (back,) = unpack(pack([Round(0, 1, drafted, 0, 0, (token,), 1, timings)]))
    assert (back.text, back.timings.total_ms) == ("?", float("inf"))


def test_rounds_of_another_version_have_the_fields_that_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = Token(1, "one", Origin.PLAIN)
    round_ = Round(3, 0, (), 0, 0, (token,), 1, RoundTimings(1.0, None, 0.0, 0.0, 2.0))
    to_builtins = msgspec.to_builtins

    def of_another_version(rounds: list[Round]) -> list[dict[str, object]]:
        records = to_builtins(rounds)
        for record in records:
            del record["given"]
            record["new"] = [{"field": 1.5}]
        return records

    monkeypatch.setattr(msgspec, "to_builtins", of_another_version)
    assert unpack(pack([round_])) == [round_]


ROUNDS = [
    round_of(*range(1, 21)),
    replace(round_of(3, drafted=0), index=1),
    replace(round_of(4, 5), drafted=(DraftToken(4, " t4", 0.5),)),
]
PACKED = (
    "eNp1Uktu2zAQJe0eoIsC2RLool2G6f8WvYHAiGOXsEwK5OTjA3RZoJUu0I+kOA7QQyTe9gAFcoDsuunenZiWLAfuYCRQM0"
    "9v3gynuPCQOq/DpwpnOZQ/RnD2pfbuxOrlkDFWG6vhvKjzTBlbMs6ubKK9GmEyVV14wAYX6yDoss5MwLDN8KKt8PG70R0R"
    "W1UI51hWwU2hvLm5jpW/6eWAsavcu2N1bDKDs6IOCHkof/G/0ZtcebDYMq3YalPbR4qva91zmyDQn7qncWETlaaQ70R5g2"
    "4CNjwQ/oQPdoU33gRjx7fsgO+xP5zHfur7dyDUsLVHW6Ov3+8FSoFHAl8IfCnwlcDXAt8IfCvwHaUO6aG8JIAkhCSIJIwk"
    "kCSUJJgk3NFhR9A4b8ak+L75YkGCSTUaZ2MjywO2xzhj3dDWN0CCr/fbZiCfKxo7xgk3yoYz8PupyRqb5CpgO7JSUzU0Uz"
    "qG7Uznmy0K3QUP76JfnoI3o1k/9fR59AUtRgoh9HJU7zKoaZ7BbnCODlXWJ3n2OHqlTtBtFq/XYD02p2AfrAERtfkmMxPI"
    "Zv8H/DQhWZ+S9AOkkxZBJf4BLPZR/w=="
)
"""`ROUNDS`, as the first version with a store packed them: in all kinds of columns it wrote."""
RECORD = (
    b'{"terms":{"pair":"p","target":"/t.gguf"},"n_past":7,"changed":["p_min"],"end":{"finish_reason":"stop","seed":7,'
    b'"tokens":24,"tail":"","timings":{"prefill_ms":5.0,"prefill_tokens":33,"reused_tokens":0,'
    b'"generation_ms":2611.7,"draft_ms":412.3,"verify_ms":2169.3,"process_ms":22.4,"sample_ms":1.8},'
    b'"tail_part":null},"stats":{"rounds":12,"verify_steps":11,"tokens":24,"drafted":54,"tested":23,'
    b'"accepted":12,"tested_at":[11,12],"accepted_at":[7,5],"siblings":0,"trees":0,"by_drafter":{}}}'
)


def test_what_the_first_store_kept_of_a_reply_is_read() -> None:
    """A field that a record gets without a default would make it vanish."""
    assert unpack(base64.b64decode(PACKED)) == ROUNDS
    record = msgspec.json.decode(RECORD, type=ReplyRecord)
    assert record.end is not None
    assert record.stats is not None
    assert (record.end.tokens, record.stats.accepted) == (24, 12)
