"""vLLM and SGLang, by streams in the shapes that their sources document. They were not recorded
from the real servers, which need a GPU; nothing here was run against one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eaglechat.wire import protocol as p
from eaglechat.wire.records import Origin, Round
from eaglechat.wire.stats import stats_of
from tests.engine_client import Asked, Client
from tests.links.engines import chat
from tests.links.http.fault_server import FaultServer, Handler, client_of

A, C, B, P = Origin.ACCEPTED, Origin.CORRECTION, Origin.BONUS, Origin.PLAIN
STEPS = [("The", 1), (" cat sat on", 3), (" the", 1), (" mat and slept", 4)]


@pytest.fixture
def client(server: FaultServer) -> Iterator[Client]:
    client = client_of(server.url)
    yield client
    client.link.close()


def streaming(*ends: dict[str, Any], steps: list[tuple[str, int]] = STEPS) -> Callable[..., None]:
    """A reply whose chunks count its tokens, and how it ends."""

    def stream(handler: Handler) -> None:
        handler.begin()
        done = 0
        for text, count in steps:
            done += count
            usage = {"prompt_tokens": 7, "completion_tokens": done}
            handler.event({"choices": [{"delta": {"content": text}}], "usage": usage})
        for end in ends:
            usage = {"prompt_tokens": 7, "completion_tokens": done}
            handler.event({"choices": [], "usage": usage} | end)
        handler.event("[DONE]")

    return stream


def of(kind: str) -> dict[str, Any]:
    return {"data": [{"id": "m", "owned_by": kind, "max_model_len": 8192}]}


def asked(client: Client) -> Asked:
    client.ready()
    loaded = client.answer(p.Load(target="")).last
    assert loaded.pair.n_ctx == 8192
    return client.answer(chat())


def origins(rounds: list[Round]) -> list[list[Origin]]:
    return [[token.origin for token in round_.tokens] for round_ in rounds]


def detail(accepted: list[int], drafted: list[int]) -> dict[str, Any]:
    steps = {"per_step_accepted": accepted, "per_step_drafted": drafted}
    return {"metrics": {"speculative_decoding": steps}}


def test_vllm_is_provisional_while_it_streams_and_exact_in_the_end(
    client: Client, server: FaultServer
) -> None:
    server.models = of("vllm")
    server.chat = streaming(detail([2, 0, 3], [3, 3, 3]))
    reply = asked(client)

    assert client.link.hello.engine == "vLLM"
    live = reply.rounds
    assert {round_.provisional for round_ in live} == {True}
    (settled,) = reply.of(p.Settled)
    rounds = list(settled.rounds)
    assert origins(rounds) == [[P], [A, A, C], [C], [A, A, A, B]]
    assert not any(round_.provisional for round_ in rounds)
    assert "".join(round_.text for round_ in rounds) == "The cat sat on the mat and slept"
    stats = reply.last.stats
    assert (stats.drafted, stats.tested, stats.accepted) == (9, 7, 5)
    assert stats == stats_of(rounds)


def test_chunks_that_were_two_steps_are_taken_apart_by_the_report(
    client: Client, server: FaultServer
) -> None:
    server.models = of("vllm")
    server.chat = streaming(detail([1, 1], [3, 3]), steps=[("a", 1), (" b c d e", 4)])
    (settled,) = asked(client).of(p.Settled)
    assert origins(list(settled.rounds)) == [[P], [A, C], [A, C]]
    assert [round_.text for round_ in settled.rounds] == ["a", " b c d e", ""]


def test_a_last_step_that_a_stop_cut_short(client: Client, server: FaultServer) -> None:
    server.models = of("vllm")
    server.chat = streaming(detail([1, 3], [3, 3]), steps=[("a", 1), (" b", 2), (" c", 2)])
    (settled,) = asked(client).of(p.Settled)
    assert origins(list(settled.rounds)) == [[P], [A, C], [A, A]]


@pytest.mark.parametrize("end", [{}, detail([1], [3, 3]), detail([1, 1], [3, 3])])
def test_without_a_report_that_fits_all_stays_provisional(
    client: Client, server: FaultServer, end: dict[str, Any]
) -> None:
    server.models = of("vllm")
    server.chat = streaming(end)
    reply = asked(client)
    assert not reply.of(p.Settled)
    rounds = reply.rounds
    assert all(round_.provisional for round_ in rounds)
    assert "".join(round_.text for round_ in rounds) == "The cat sat on the mat and slept"


def test_a_server_without_a_draft_is_plain_and_certain(client: Client, server: FaultServer) -> None:
    server.models = of("sglang")
    server.others["/server_info"] = {"speculative_algorithm": None}
    server.chat = streaming(steps=[("a", 1), (" b", 1)])
    reply = asked(client)
    rounds = reply.rounds
    assert origins(rounds) == [[P], [P]]
    assert not any(round_.provisional for round_ in rounds)
    (loaded,) = [e for e in client.heard if isinstance(e, p.Loaded)]
    assert loaded.pair.speculation_off == "SGLang has no draft"


@pytest.mark.parametrize(("histogram", "is_certain"), [([0, 0, 1, 1], True), ([1, 1, 0, 2], False)])
def test_the_histogram_of_sglang_makes_sure_of_the_chunks(
    client: Client, server: FaultServer, histogram: list[int], is_certain: bool
) -> None:
    server.models = of("sglang")
    server.others["/server_info"] = {"speculative_algorithm": "EAGLE3"}
    details = {"spec_correct_drafts_histogram": histogram}
    server.chat = streaming(
        {"sglext": {"spec_tokens_details": details}},
        steps=[("The", 1), (" cat sat on", 3), (" mat and slept", 4)],
    )
    reply = asked(client)
    assert server.chats()[0].body["return_spec_tokens_details"] is True
    assert bool(reply.of(p.Settled)) is is_certain


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_reply_that_has_begun_is_sent_as_the_last_message(
    server: FaultServer, client: Client, kind: str
) -> None:
    server.models = of(kind)
    client.ready()
    client.answer(p.Load(target=""))
    begun = p.Message(role="assistant", content="The cat")
    client.answer(chat(messages=(*chat().messages, begun)))
    body = server.chats()[-1].body
    assert body["messages"][-1] == {"role": "assistant", "content": "The cat"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
