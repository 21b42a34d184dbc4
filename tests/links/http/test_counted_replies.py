"""Origins from llama-server's counts, whatever becomes of its chunks on the way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglechat.chat.measured import measured
from eaglechat.links.http.openai import LlamaServer
from eaglechat.wire.records import Origin, Round
from tests.links.http.streamed import Streamed, said

A, C, B, P, U = (
    Origin.ACCEPTED, Origin.CORRECTION, Origin.BONUS, Origin.PLAIN, Origin.UNKNOWN,
)  # fmt: skip


def counted(n: int, ms: float, drafted: int, accepted: int) -> dict[str, Any]:
    return {
        "timings": {
            "cache_n": 3, "prompt_n": 20, "prompt_ms": 9.0, "predicted_n": n, "predicted_ms": ms,
            "draft_n": drafted, "draft_n_accepted": accepted,
        }
    }  # fmt: skip


def chunk(n: int, ms: float, drafted: int, accepted: int) -> dict[str, Any]:
    return {**said(f"t{n} "), **counted(n, ms, drafted, accepted)}


def over(*counts: float) -> list[dict[str, Any]]:
    """The end of a reply: why, and then the last counts."""
    return [{"choices": [{"delta": {}, "finish_reason": "stop"}]}, counted(*counts)]


def read(*chunks: dict[str, Any]) -> list[Round]:
    streamed = Streamed(LlamaServer()).send(*chunks)
    streamed.end()
    return streamed.rounds


def test_a_round_is_told_with_its_last_token() -> None:
    streamed = Streamed(LlamaServer())
    chunks = (chunk(1, 0, 0, 0), chunk(2, 8, 3, 1), chunk(3, 8, 3, 1))
    assert [len(streamed.send(one).rounds) for one in chunks] == [1, 1, 2]


def test_the_first_token_takes_no_time_of_its_own() -> None:
    assert Streamed(LlamaServer()).send(chunk(1, 0.001, 0, 0)).end().end.timings.generation_ms == 0
    first, second = read(chunk(1, 0.001, 0, 0), chunk(2, 8, 0, 0), *over(2, 8, 0, 0))
    assert measured([first]).tokens_per_second is None
    assert 200 < (measured([first, second]).tokens_per_second or 0) < 300


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        # The replay of a checkpoint is the target's own.
        (
            [*(chunk(n, 8, 3, 1) for n in (2, 3, 4)), *over(4, 8, 3, 1)],
            [([A, C], (3, 2, 1)), ([P], (0, 0, 0))],
        ),
        # A stop cuts the last round.
        ([chunk(2, 8, 3, 3), *over(3, 8, 3, 3)], [([A, A], (3, 2, 2))]),
        # A reply that breaks off keeps what it had.
        ([chunk(2, 8, 3, 3)], [([A], (3, 1, 1))]),
        # Whole rounds without a chunk are not guessed at.
        (
            [chunk(2, 8, 3, 0), chunk(6, 24, 9, 2), *over(6, 24, 9, 2)],
            [([C], (3, 1, 0)), ([U] * 4, (0, 0, 0))],
        ),
        # Plain tokens stay plain though some have no chunk.
        ([chunk(4, 30, 0, 0), *over(4, 30, 0, 0)], [([P, P, P], (0, 0, 0))]),
    ],
)
def test_origins_behind_the_first_token(
    chunks: list[dict[str, Any]], expected: list[tuple[list[Origin], tuple[int, int, int]]]
) -> None:
    first, *rounds = read(chunk(1, 0, 0, 0), *chunks)
    assert [token.origin for token in first.tokens] == [P]
    assert [
        ([token.origin for token in r.tokens], (len(r.drafted), r.n_tested, r.n_accepted))
        for r in rounds
    ] == expected
    texts = [one["choices"][0]["delta"].get("content", "") for one in chunks if "choices" in one]
    assert "".join(round_.text for round_ in rounds) == "".join(texts)


STEPS = st.lists(st.integers(0, 3), max_size=12)


@settings(max_examples=100, deadline=None)
@given(accepted=STEPS, data=st.data())
def test_whatever_the_parser_swallows_no_origin_is_wrong(
    accepted: list[int], data: st.DataObject
) -> None:
    """Three tokens are drafted in each round; of all tokens some have no chunk."""
    chunks, truth, n = [chunk(1, 0.5, 0, 0)], [P], 1
    for step, n_accepted in enumerate(accepted, 1):
        so_far = sum(accepted[:step])
        for place in range(n_accepted + 1):
            n += 1
            own = B if n_accepted == 3 else C
            truth.append(A if place < n_accepted else own)
            chunks.append(chunk(n, 10.0 * step, 3 * step, so_far))
    # The first round comes whole: it tells how long drafts are.
    first = 2 + (accepted[0] + 1 if accepted else 0)
    kept = [one for i, one in enumerate(chunks) if i < first or data.draw(st.booleans())]
    steps = len(accepted)
    ended = over(n, 10.0 * steps or 0.5, 3 * steps, sum(accepted))
    tokens = [token for round_ in read(*kept, *ended) for token in round_.tokens]

    assert len(tokens) == n
    assert "".join(token.text for token in tokens) == "".join(
        one["choices"][0]["delta"]["content"] for one in kept
    )
    for token, origin in zip(tokens, truth, strict=True):
        assert token.origin in (origin, U)
    if len(kept) == len(chunks):
        assert [token.origin for token in tokens] == truth
