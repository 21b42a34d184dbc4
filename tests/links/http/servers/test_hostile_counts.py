"""Whatever a server counts, no text is lost, and no count of its own makes work or memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eaglechat.links.http.servers.base import LONGEST_DRAFT, most_tokens
from eaglechat.links.http.servers.chunks import ChunkReader
from eaglechat.links.http.servers.llama_server import LlamaServer
from eaglechat.links.http.servers.openai import VLLM, OpenAIServer, SGLang, TextReader
from eaglechat.wire.protocol import Chat, Message
from eaglechat.wire.records import ReplyEnd, Round
from eaglechat.wire.stats import stats_of

CHAT = Chat(messages=(Message(role="user", content="hi"),))
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


def text_of(rounds: Sequence[Round]) -> str:
    return "".join(round_.text for round_ in rounds)


def read(reader: TextReader, sent: Sequence[dict[str, Any]]) -> tuple[list[Round], ReplyEnd, int]:
    """The rounds, the end, and the most tokens that what was sent can stand for."""
    rounds: list[Round] = []
    most = 0
    for one in sent:
        chunk = ChunkReader().read(json.dumps(one))
        most += most_tokens(chunk.written)
        rounds += [record for record in reader.take(chunk) if isinstance(record, Round)]
    rounds += reader.rest()
    return rounds, reader.end(1, is_cancelled=False), most


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}}], **more}


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
    reader = KINDS[kind]().reader(CHAT)
    rounds, end, most = read(reader, sent)
    wanted = "".join(
        text for one in sent for text, _ in ChunkReader().read(json.dumps(one)).written
    )

    assert text_of(rounds) == wanted
    assert sum(len(round_.tokens) for round_ in rounds) <= most + LONGEST_DRAFT * len(rounds)
    assert sum(len(round_.drafted) for round_ in rounds) <= LONGEST_DRAFT * max(1, len(rounds))
    assert end.tokens >= 0
    stats = reader.stats(stats_of(rounds))
    assert stats.tokens >= 0
    assert 0 <= stats.accepted <= stats.drafted
    assert all(name.isidentifier() for name in stats.by_drafter)


def test_the_first_token_takes_as_long_as_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own time is the prompt's too: n tokens over the time of n - 1 was too fast."""
    now = [0.0]
    monkeypatch.setattr("eaglechat.links.http.servers.base.time.monotonic", lambda: now[0])
    reader = OpenAIServer().reader(CHAT)
    for _ in range(5):
        now[0] += 0.1
        list(reader.take(ChunkReader().read(json.dumps(said("a")))))

    end = reader.end(1, is_cancelled=False)

    assert end.tokens == 5
    assert end.tokens_per_second == pytest.approx(10.0)
