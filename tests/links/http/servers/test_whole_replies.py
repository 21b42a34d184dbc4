"""Counts of drafted tokens that servers report of a whole reply: read, never invented."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eaglechat.links.http.servers.chunks import ChunkReader
from eaglechat.links.http.servers.llama_server import LlamaSwap
from eaglechat.links.http.servers.openai import OpenAIServer
from eaglechat.wire.stats import DrafterStats, SpeculationStats, stats_of
from tests.links.engines import chat

TIMINGS = {
    "prompt_n": 20, "cache_n": 0, "predicted_n": 111, "prompt_ms": 80.5, "predicted_ms": 900.0,
    "peak_memory": 3.5,
}  # fmt: skip
"""Of mlx-vlm, which sends null for each count of drafting if it has no draft."""


def stats(kind: OpenAIServer | LlamaSwap, n_tokens: int = 111, **last: Any) -> SpeculationStats:
    """The statistics of a reply of so many tokens, whose last chunk has these fields."""
    usage = {"completion_tokens": n_tokens, **last.pop("usage", {})}
    reader = kind.reader(chat())
    rounds = []
    for one in ({"choices": [{"delta": {"content": "a"}}]}, {"usage": usage, **last}):
        rounds += [*reader.take(ChunkReader().read(json.dumps(one)))]
    return reader.stats(stats_of(rounds))


def tabby(accepted: int | None, rejected: int | None) -> dict[str, Any]:
    details = {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}
    return {"completion_tokens_details": details}


@pytest.mark.parametrize("kind", [OpenAIServer(), LlamaSwap()], ids=["alone", "behind llama-swap"])
def test_tabby_counts_in_its_usage(kind: OpenAIServer | LlamaSwap) -> None:
    counted = stats(kind, usage=tabby(81, 9))
    assert (counted.drafted, counted.accepted) == (90, 81)
    assert counted.is_of_whole_reply
    # Nobody says which were tested, nor in how many rounds.
    assert (counted.acceptance_rate, counted.mean_accepted_length) == (None, None)
    assert counted.by_drafter == {}


@pytest.mark.parametrize(("accepted", "rejected"), [(0, 0), (5, None), (None, 5), (None, None)])
def test_what_is_not_counted_stays_unknown(accepted: int | None, rejected: int | None) -> None:
    """OpenAI sends zeros for texts that a request predicts."""
    counted = stats(OpenAIServer(), usage=tabby(accepted, rejected))
    assert (counted.drafted, counted.is_of_whole_reply) == (0, False)


def test_mlx_vlm_counts_in_its_timings() -> None:
    own = {"draft_kind": "mtp", "draft_rounds": 30, "draft_n": 90, "draft_n_accepted": 81}
    counted = stats(OpenAIServer(), timings={**TIMINGS, **own})
    assert (counted.drafted, counted.accepted) == (90, 81)
    assert counted.by_drafter == {"mtp": DrafterStats(30, 90, 0, 81)}
    assert counted.mean_accepted_length == pytest.approx(1 + 81 / 30)
    assert counted.acceptance_rate is None


def test_no_more_is_accepted_than_the_reply_has_tokens() -> None:
    """mlx-vlm counts a block as a whole, also what lies behind the end of the reply."""
    own = {"draft_kind": "mtp", "draft_rounds": 1, "draft_n": 7, "draft_n_accepted": 6}
    counted = stats(OpenAIServer(), 2, timings={**TIMINGS, **own})
    assert (counted.drafted, counted.accepted) == (7, 2)


def test_mlx_vlm_without_a_draft_says_nothing_of_one() -> None:
    names = ("draft_kind", "draft_rounds", "draft_n", "draft_n_accepted")
    counted = stats(OpenAIServer(), timings={**TIMINGS, **dict.fromkeys(names)})
    assert (counted.drafted, counted.by_drafter) == (0, {})
