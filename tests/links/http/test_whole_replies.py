"""Counts of drafted tokens that servers report of a whole reply: read, never invented.

vLLM's and SGLang's are in the shapes that their sources document. Nothing was recorded from the
real servers, which need a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

from eaglechat.links.http.openai import LlamaSwap, OpenAIServer
from eaglechat.wire import protocol as p
from eaglechat.wire.records import Origin
from eaglechat.wire.stats import DrafterStats, SpeculationStats
from tests.links.engines import chat
from tests.links.http.fault_server import Ask, Connect, FaultServer, models_of, streaming
from tests.links.http.streamed import Streamed, said

TIMINGS = {
    "prompt_n": 20, "cache_n": 0, "predicted_n": 111, "prompt_ms": 80.5, "predicted_ms": 900.0,
    "peak_memory": 3.5,
}  # fmt: skip
"""Of mlx-vlm, which sends null for each count of drafting if it has no draft."""


def stats(kind: OpenAIServer, n_tokens: int = 111, **last: Any) -> SpeculationStats:
    """The statistics of a reply of so many tokens, whose last chunk has these fields."""
    usage = {"completion_tokens": n_tokens, **last.pop("usage", {})}
    return Streamed(kind).send(said("a"), {"usage": usage, **last}).end().stats


def tabby(accepted: int | None, rejected: int | None) -> dict[str, Any]:
    details = {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}
    return {"completion_tokens_details": details}


@pytest.mark.parametrize("kind", [OpenAIServer(), LlamaSwap()], ids=["alone", "behind llama-swap"])
def test_tabby_counts_in_its_usage(kind: OpenAIServer) -> None:
    counted = stats(kind, usage=tabby(81, 9))
    assert (counted.drafted, counted.accepted) == (90, 81)
    assert counted.is_of_whole_reply
    # Nobody says which were tested, nor in how many rounds.
    assert (counted.acceptance_rate, counted.mean_accepted_length) == (None, None)
    assert counted.by_drafter == {}


@pytest.mark.parametrize(
    "last",
    [
        *({"usage": tabby(*both)} for both in ((0, 0), (5, None), (None, 5), (None, None))),
        {"timings": {**TIMINGS, **dict.fromkeys(("draft_kind", "draft_rounds", "draft_n"))}},
    ],
)
def test_what_is_not_counted_stays_unknown(last: dict[str, Any]) -> None:
    """OpenAI sends zeros for texts that a request predicts."""
    counted = stats(OpenAIServer(), **last)
    assert (counted.drafted, counted.by_drafter, counted.is_of_whole_reply) == (0, {}, False)


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


STEPS = {"per_step_accepted": [2, 0, 3], "per_step_drafted": [3, 3, 3]}
SGLANG = {"spec_verify_ct": 3, "spec_num_proposed_drafts": 9, "spec_num_correct_drafts": 5}


@pytest.mark.parametrize(
    ("kind", "name", "end"),
    [
        ("vllm", "vLLM", {"metrics": {"speculative_decoding": STEPS}}),
        ("sglang", "SGLang", {"sglext": {"spec_tokens_details": SGLANG}}),
    ],
)
def test_steps_of_several_tokens_are_counted_and_their_drafts_at_the_end(
    connect: Connect, server: FaultServer, kind: str, name: str, end: dict[str, Any]
) -> None:
    server.models = models_of(kind)
    steps = [("The", 1), (" cat sat on", 3), (" the", 1), (" mat and slept", 4)]
    server.chat = streaming(*steps, ends=[end])
    client = connect()
    reply = client.answer(chat())

    assert client.link.hello is not None
    assert client.link.hello.engine == name
    assert [len(round_.tokens) for round_ in reply.rounds] == [1, 3, 1, 4]
    assert {token.origin for round_ in reply.rounds for token in round_.tokens} == {Origin.UNKNOWN}
    assert reply.text == "The cat sat on the mat and slept"
    assert not reply.of(p.Settled)
    counted = reply.last.stats
    assert (counted.drafted, counted.accepted, counted.verify_steps) == (9, 5, 3)
    assert counted.is_of_whole_reply
    assert reply.last.end.tokens == 9


@pytest.mark.parametrize("end", [{}, {"metrics": {}}, {"sglext": {"spec_tokens_details": {}}}])
def test_a_server_that_counts_nothing_at_the_end(
    answered: Ask, server: FaultServer, end: dict[str, Any]
) -> None:
    server.models = models_of("vllm")
    assert not answered(streaming(("a", 1), (" b", 1), ends=[end])).last.stats.is_of_whole_reply


def test_a_server_says_that_it_has_no_draft(connect: Connect, server: FaultServer) -> None:
    server.models = models_of("llamacpp")
    server.others |= {"/props": {"build_info": "b1"}, "/slots": [{"speculative": False}]}
    (loaded,) = [e for e in connect().heard if isinstance(e, p.Loaded)]
    assert loaded.pair.speculation_off == "llama-server has no draft"


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
def test_a_reply_that_has_begun_is_sent_as_the_last_message(
    connect: Connect, server: FaultServer, kind: str
) -> None:
    """Without the words for it some versions of llama-server repeat what was there before."""
    server.models = models_of(kind)
    begun = p.Message(role="assistant", content="The cat")
    client = connect()
    for messages in (chat().messages, (*chat().messages, begun)):
        client.answer(chat(messages=messages))
    new, body = (one.body for one in server.chats())
    assert "continue_final_message" not in new
    assert body["messages"][-1] == {"role": "assistant", "content": "The cat"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert (body.get("return_spec_tokens_details") is True) == (kind == "sglang")
