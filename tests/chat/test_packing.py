"""Rounds on disk come back as they were, but for what is rounded."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eaglechat.chat.packing import DECIMALS, pack, unpack
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

ROUND = Round(
    3, 0, (), 0, 0, (Token(1, "one", Origin.PLAIN),), 1, RoundTimings(1.0, None, 0.0, 0.0, 2.0)
)
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


@settings(max_examples=40)
@given(some_rounds())
def test_rounds_come_back(rounds: list[Round]) -> None:
    """Only the last one with what auto expected of each length."""
    wanted = [
        replace(one, auto=one.auto and replace(one.auto, tokens_per_second=()))
        for one in rounds[:-1]
    ]
    records = msgspec.to_builtins([*wanted, rounds[-1]])
    assert msgspec.to_builtins(unpack(pack(rounds))) == rounded(records)


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(rounded, value))
    return pytest.approx(value, abs=0.51 / 10**DECIMALS) if isinstance(value, float) else value


@settings(max_examples=40)
@given(some_rounds(), st.data())
def test_damaged_rounds_say_so(rounds: list[Round], data: st.DataObject) -> None:
    packed = pack(rounds)
    place = data.draw(st.integers(0, len(packed) - 1))
    changed = bytes([packed[place] ^ data.draw(st.integers(1, 255))])
    damaged = [packed[:place], packed[:place] + changed + packed[place + 1 :], b""]
    with pytest.raises(ValueError, match=r"."):
        unpack(data.draw(st.sampled_from(damaged)))


def test_rounds_of_another_version_have_the_fields_that_are_known() -> None:
    (record,) = msgspec.to_builtins([ROUND])
    del record["given"]
    record["new"] = [{"field": 1.5}]
    assert unpack(zlib.compress(msgspec.json.encode([record]))) == [ROUND]


RECORD = (
    b'{"terms":{"pair":"p","target":"/t.gguf"},"n_past":7,"changed":["p_min"],"end":{"finish_reason":"stop","seed":7,'
    b'"tokens":24,"tail":"","timings":{"prefill_ms":5.0,"prefill_tokens":33,"reused_tokens":0,'
    b'"generation_ms":2611.7,"draft_ms":412.3,"verify_ms":2169.3,"process_ms":22.4,"sample_ms":1.8},'
    b'"tail_part":null},"stats":{"rounds":12,"verify_steps":11,"tokens":24,"drafted":54,"tested":23,'
    b'"accepted":12,"tested_at":[11,12],"accepted_at":[7,5],"siblings":0,"trees":0,"by_drafter":{}}}'
)


def test_what_the_first_store_kept_of_a_reply_is_read() -> None:
    """A field that a record gets without a default would make it vanish."""
    record = msgspec.json.decode(RECORD, type=ReplyRecord)
    assert record.end is not None
    assert record.stats is not None
    assert (record.end.tokens, record.stats.accepted) == (24, 12)


IN_COLUMNS = (
    b"eNqNkmGPgjAMhv/KZZ85AnKeF/+KMaSOiotzW7ahEsJ/v26IQtTLfWLd2rdvn7LpmG8NsjWzulEVS5hQFV7Z"
    b"OkuYKisLe1+egOIiYTHCiq03HRP0WSbM49VT7QdQobF6BzshhW+pPF3RswGLihI+87HaUjZCLbFgfTLIfD9k"
    b"ds8yE5Xslcg2+PToorFFCIBzNDGkrl4fUbl3lrUVtVAU3WtetIgGQgkod6GH0ffqocWnWlxbi9wLraZqqpHy"
    b"SSmaN+DoLifvXpyEqsltx27k6ZwHBGe0Yt/GeJEulpESR+fiTZYSGQcnI/EW5yHFaw8yXnylWZ8waLwefdTi"
    b"jOR1QwakOKJsh7NwpZEgVMkPyI9svQfpMMz7+h/J//pHZovJ5ovJnhbzc4c5RRnNvKMYzjOCxRuCQ9EMYTYn"
    b"OGTMEM4AFhOAHVNxAIvg9N3kx0BsnKs0aEuHXKuAIqd+1DPA1s4/GoCU+oLV2IIcHCBy5ocwd//vPXnbYL/9"
    b"BcWTOeE="
)
"""Two rounds as earlier programs packed them."""


def test_rounds_of_earlier_programs_are_read() -> None:
    first, second = unpack(base64.b64decode(IN_COLUMNS))
    assert first == Round(
        0,
        3,
        (
            DraftToken(5, " a", 0.75, drafter="eagle3"),
            DraftToken(6, " b", 0.5, parent=0, drafter="eagle3"),
        ),
        2,
        1,
        (Token(5, " a", Origin.ACCEPTED, "eagle3"), Token(7, " c", Origin.CORRECTION)),
        12,
        RoundTimings(1.5, 2.25, 0.0, 0.125, 4.0),
    )
    assert second.auto == AutoDraft(0, AutoReason.PLAIN_CHECK, (1.0, 2.0), 0.5, 3.0)
    assert (second.is_plain_check, second.timings.draft_ms, second.n_past) == (True, None, 13)
