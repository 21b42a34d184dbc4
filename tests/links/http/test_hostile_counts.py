"""Whatever a server counts, no text is lost, and no count of its own makes work or memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eaglechat.links.http.openai import VLLM, LlamaServer, OpenAIServer, SGLang
from eaglechat.links.http.reply import LONGEST_DRAFT, most_tokens
from tests.links.http.streamed import Streamed, said

KINDS = {
    "vLLM": VLLM,
    "SGLang": SGLang,
    "llama-server": LlamaServer,
    "OpenAI": OpenAIServer,
}
count = st.one_of(
    st.integers(-3, 40), st.sampled_from((10**6, 3 * 10**7, 2**63, 10**400, -(10**30)))
)
few_counts = st.lists(count, max_size=4)


@st.composite
def chunks(draw: st.DrawFn) -> dict[str, Any]:
    chunk: dict[str, Any] = {}
    if draw(st.booleans()):
        chunk["choices"] = [{"delta": {"content": draw(st.text("abc ", max_size=4))}}]
    if draw(st.booleans()):
        names = ("accepted_prediction_tokens", "rejected_prediction_tokens")
        details = {name: draw(st.none() | count) for name in names}
        chunk["usage"] = {
            "completion_tokens": draw(count),
            "prompt_tokens": draw(count),
            "completion_tokens_details": draw(st.sampled_from((None, details))),
        }
    if draw(st.booleans()):
        names = ("predicted_n", "draft_n_accepted", "prompt_n", "cache_n")
        own = {name: draw(st.none() | count) for name in ("draft_rounds", "draft_n")}
        kind = draw(st.none() | st.text("dm \x1b", max_size=4))
        chunk["timings"] = {**{name: draw(count) for name in names}, **own, "draft_kind": kind}
    if draw(st.booleans()):
        total = draw(count)
        chunk["prompt_progress"] = {"total": total, "cache": draw(count), "processed": draw(count)}
    if draw(st.booleans()):
        detail = {"per_step_accepted": draw(few_counts), "per_step_drafted": draw(few_counts)}
        chunk["metrics"] = {"speculative_decoding": detail}
    if draw(st.booleans()):
        names = ("spec_verify_ct", "spec_num_proposed_drafts", "spec_num_correct_drafts")
        chunk["sglext"] = {"spec_tokens_details": {name: draw(count) for name in names}}
    return chunk


@given(st.lists(chunks(), max_size=6))
@example([said("a", usage={"completion_tokens": 18})])
@example([said("a"), said("b", usage={"completion_tokens": 21})])
@example([said("a", usage={"completion_tokens": 30_000_000})])
@example([said("ab", timings={"predicted_n": 1_000_000, "draft_n": 10**400})])
@example([said("a", timings={"predicted_n": 18, "draft_n": 17, "draft_n_accepted": 17})])
@example(
    [
        {"timings": {"predicted_n": 10**6, "draft_n": 10**6, "draft_n_accepted": 10**6}},
        {"timings": {"predicted_n": 1}},
    ]
)
@example(
    [
        said("a", usage={"completion_tokens": 1}),
        {"metrics": {"speculative_decoding": {"per_step_accepted": [-5], "per_step_drafted": [1]}}},
    ]
)
def test_text_is_kept_and_counts_are_bounded(sent: list[dict[str, Any]]) -> None:
    # All kinds read the same: most of the time goes into what is sent.
    for kind in KINDS:
        reads(kind, sent)


def reads(kind: str, sent: list[dict[str, Any]]) -> None:
    streamed = Streamed(KINDS[kind]()).send(*sent)
    done = streamed.end()
    rounds = streamed.rounds
    most = most_tokens([(None, streamed.text)]) + 64 * len(sent)

    assert "".join(round_.text for round_ in rounds) == streamed.text
    assert sum(len(round_.tokens) for round_ in rounds) <= most + LONGEST_DRAFT * len(rounds)
    assert sum(len(round_.drafted) for round_ in rounds) <= LONGEST_DRAFT * max(1, len(rounds))
    assert done.end.tokens >= 0
    assert done.stats.tokens >= 0
    assert 0 <= done.stats.accepted <= done.stats.drafted
    assert all(name.isidentifier() for name in done.stats.by_drafter)


def test_the_first_token_takes_as_long_as_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own time is the prompt's too: n tokens over the time of n - 1 would be too fast."""
    now = [0.0]
    monkeypatch.setattr("eaglechat.links.http.reply.time.monotonic", lambda: now[0])
    streamed = Streamed(OpenAIServer())
    for _ in range(5):
        now[0] += 0.1
        streamed.send(said("a"))

    end = streamed.end().end

    assert end.tokens == 5
    assert end.tokens_per_second == pytest.approx(10.0)
