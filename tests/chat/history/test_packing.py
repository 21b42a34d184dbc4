"""Rounds on disk come back as they were, but for what is rounded."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglechat.chat.history.packing import pack, unpack
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
    text_in,
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
    plain_error=st.floats(0, 100),
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


def written_by(rounds: Sequence[Round]) -> tuple[str, str]:
    return text_in(rounds, Part.ANSWER), text_in(rounds, Part.REASONING)


@settings(max_examples=40)
@given(some_rounds())
def test_rounds_come_back(rounds: list[Round]) -> None:
    back = unpack(pack(rounds), *written_by(rounds))
    for was, now in zip(rounds, back, strict=True):
        for name in ("draft_ms", "verify_ms", "process_ms", "sample_ms", "total_ms"):
            assert getattr(now.timings, name) == pytest.approx(
                getattr(was.timings, name), abs=0.006
            )
        for one, other in zip(was.drafted, now.drafted, strict=True):
            assert other == replace(one, probability=other.probability)
            assert (one.probability is None) == (other.probability is None)
            assert (other.probability or 0) == pytest.approx(one.probability or 0, abs=0.0021)
        assert (was.auto is None) == (now.auto is None)
        if was.auto and now.auto:
            assert now.auto.reason is was.auto.reason
            assert now.auto.shape == was.auto.shape
            assert now.auto.lost_ms == pytest.approx(was.auto.lost_ms, abs=0.51)
        exact = {"timings": now.timings, "drafted": now.drafted, "auto": now.auto}
        assert now == replace(was, **exact)
    if rounds[-1].auto:
        assert back[-1].auto
        assert back[-1].auto.tokens_per_second == rounds[-1].auto.tokens_per_second


@settings(max_examples=40)
@given(some_rounds(), st.data())
def test_damaged_rounds_say_so(rounds: list[Round], data: st.DataObject) -> None:
    packed, texts = pack(rounds), written_by(rounds)
    place = data.draw(st.integers(0, len(packed) - 1))
    damaged = data.draw(
        st.sampled_from(
            [packed[:place], packed[:place] + "A" + packed[place + 1 :], packed + "é", ""]
        )
    )
    try:
        back = unpack(damaged, *texts)
    except ValueError:
        return
    assert written_by(back) == texts


def test_rounds_beside_another_text_are_refused() -> None:
    token = Token(1, "one", Origin.PLAIN)
    round_ = Round(0, 0, (), 0, 0, (token,), 1, RoundTimings(0.0, 0.0, 0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="one and more"):
        unpack(pack([round_]), "one and more")


def test_rounds_without_one_of_their_times_are_refused() -> None:
    token = Token(1, "one", Origin.PLAIN)
    round_ = Round(0, 0, (), 0, 0, (token,), 1, RoundTimings(0.0, 0.0, 0.0, 0.0, 0.0))
    raw = zlib.decompress(base64.b64decode(pack([round_])), wbits=-15)
    deflater = zlib.compressobj(wbits=-15)
    renamed = deflater.compress(raw.replace(b"sample_ms", b"sampleeee")) + deflater.flush()
    with pytest.raises(ValueError, match="sample_ms"):
        unpack(base64.b64encode(renamed).decode(), "one")
