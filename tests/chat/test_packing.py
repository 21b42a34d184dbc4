"""Rounds on disk come back as they were, but for what is rounded."""

from __future__ import annotations

import base64
from typing import Any

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
ids, counts = st.integers(0, 300_000), st.integers(0, 300)
ms, shares = st.floats(0, 10_000), st.floats(0, 1)


def some(one: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(one, max_size=most).map(tuple)


rounds_of_a_reply = st.lists(
    st.builds(
        Round,
        index=ids,
        n_draft_max=counts,
        drafted=some(
            st.builds(
                DraftToken, ids | st.none(), texts | st.none(), shares | st.none(),
                st.integers(-1, 2), st.sampled_from(["eagle3", "ngram", ""]),
            )
        ),
        n_tested=counts,
        n_accepted=counts,
        tokens=some(
            st.builds(
                Token, ids | st.none(), texts, st.sampled_from(Origin),
                st.sampled_from(["eagle3", "ngram", None]), st.sampled_from([*Part, None]),
            )
        ),
        n_past=ids,
        timings=st.builds(RoundTimings, *[ms | st.none()] * 4, ms),
        auto=st.none()
        | st.builds(
            AutoDraft, counts, st.sampled_from(AutoReason), some(ms, 17), st.floats(-1e6, 1e6),
            st.floats(0, 1e6), st.sampled_from(["chain", "tree"]),
        ),
        given=some(ids),
        likely=some(some(st.builds(Likely, ids, texts, shares, shares))),
        is_plain_check=st.booleans(),
    ),
    min_size=1,
    max_size=4,
)  # fmt: skip


def rounded(value: Any) -> Any:
    """With floats in the steps that are kept, and tuples as lists."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return round(value * STEPS) if isinstance(value, float) else value


@settings(max_examples=40)
@given(rounds_of_a_reply)
def test_rounds_come_back(rounds: list[Round]) -> None:
    before, back = (msgspec.to_builtins(one) for one in (rounds, unpack(pack(rounds))))
    for record in before[:-1]:
        if record["auto"]:
            record["auto"]["tokens_per_second"] = ()
    assert rounded(back) == rounded(before)


@settings(max_examples=40)
@given(rounds_of_a_reply, st.data())
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
