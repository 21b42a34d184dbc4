from __future__ import annotations

import json

import pytest

from eaglechat.wire import protocol as p
from eaglechat.wire.protocol import LoadOptions, ProtocolError, decode_event, decode_request, encode
from eaglechat.wire.records import (
    DraftToken,
    FinishReason,
    Likely,
    Origin,
    Prefill,
    ReplyEnd,
    ReplyTimings,
    Round,
    RoundTimings,
    SpeculationOff,
    Token,
    Window,
)
from eaglechat.wire.stats import stats_of

ROUND = Round(
    index=3,
    n_draft_max=2,
    drafted=(DraftToken(5, "é", 0.25, -1, "eagle3"), DraftToken(6, "\n", 0.5, 0, "eagle3")),
    n_tested=2,
    n_accepted=1,
    tokens=(Token(5, "é", Origin.ACCEPTED, "eagle3"), Token(9, "", Origin.CORRECTION)),
    n_past=40,
    timings=RoundTimings(0.1, 0.2, 0.3, 0.4, 1.5),
    likely=((Likely(5, "é", 0.5, 1.0), Likely(6, "\n", 0.25, 0.0)), (Likely(9, "", 1.0, 1.0),)),
)
MODEL = p.ModelInfo(
    path="/models/“x”.gguf", name="x", architecture="llama", quantization="Q4_1",
    size_bytes=2**40, n_layers=4, n_embd=32, n_vocab=32, n_ctx_train=4096,
)  # fmt: skip
PAIR = p.PairInfo(
    target=MODEL, drafters=(p.DrafterInfo(kind="eagle3", layers=(1, 2, 3)),), n_ctx=512,
    n_threads=2, devices=("CPU",), load_ms=1.5, speculation_off="no draft is loaded",
)  # fmt: skip
END = ReplyEnd(
    FinishReason.LENGTH, 2**32 - 2, 7, "tail", ReplyTimings(1.0, 2, 3, 4.0, 5.0, 6.0, 7.0, 8.0)
)
REQUESTS = [
    p.Load(id=1, target="t.gguf", draft="d.gguf", options=LoadOptions(n_ctx=512, n_threads=3)),
    p.Chat(
        id=2,
        messages=(p.Message(role="user", content="hé\n🦅"),),
        sampling=p.Sampling(temperature=0.0, seed=0),
        speculation=p.Speculation(enabled=False, n_draft_max=16, n_min=1, p_min=1.0),
        max_tokens=5,
        top=5,
        stop=("\n\n",),
    ),
    p.Render(id=4, messages=(p.Message(role="user", content="hi"),), max_tokens=3),
    p.Set(n_draft_max=0, temperature=5.0),
    p.Set(n_draft_max=p.AUTO),
    p.Cancel(),
    p.Unload(),
    p.Shutdown(),
]
EVENTS = [
    p.Hello(protocol=1, eaglechat="0", llama_cpp="b1", devices=("CPU",)),
    p.Progress(id=1, step=p.Loading("target", 0.5)),
    p.Progress(id=1, step=p.Restarting("SIGSEGV", ("amx",))),
    p.Loaded(id=1, pair=PAIR),
    p.Unloaded(id=6),
    p.Progress(id=2, step=Prefill(1, 2, 0)),
    p.Progress(id=2, step=ROUND),
    p.Progress(id=2, step=p.Settled((ROUND,))),
    p.Progress(id=2, step=Window(first_turn=3, tokens_left=812, kv_kept=True)),
    p.Progress(id=2, step=SpeculationOff("why")),
    p.Done(id=2, end=END, stats=stats_of([ROUND])),
    p.Rendered(id=4, runs=(p.PromptRun("<s>", True), p.PromptRun("hi")), tokens=2, first_turn=1),
    p.Error(id=None, code="protocol", message="why"),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_every_request_survives_its_line(request_: p.AnyRequest) -> None:
    line = encode(request_)

    assert line.count(b"\n") == 1
    assert decode_request(line) == request_


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(getattr(e, "step", e)).__name__)
def test_every_event_survives_its_line(event: p.AnyEvent) -> None:
    line = encode(event)

    assert line.count(b"\n") == 1
    assert decode_event(line) == event


def test_every_message_of_the_protocol_is_tried_here() -> None:
    assert {type(r) for r in REQUESTS} == set(p.AnyRequest.__args__)
    assert {type(e) for e in EVENTS} == set(p.AnyEvent.__args__)
    steps = {type(e.step) for e in EVENTS if isinstance(e, p.Progress)}
    assert steps == set(p.Step.__args__)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"speculation": {"n_draft_max": 17}}, "n_draft_max"),
        ({"speculation": {"n_draft_max": -1}}, "n_draft_max"),
        ({"speculation": {"n_draft_max": "always"}}, "n_draft_max"),
        ({"speculation": {"p_min": 1.5}}, "p_min"),
        ({"sampling": {"temperature": -0.1}}, "temperature"),
        ({"sampling": {"seed": 2**32 - 1}}, "seed"),
        ({"sampling": {"repeat_penalty": 0.0}}, "repeat_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": "hi"}, "messages"),
        # llama.cpp would end the process.
        ({"begun": [-1]}, "begun"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_field(change: dict, field: str) -> None:
    chat = {"type": "chat", "id": 1, "messages": [], **change}

    with pytest.raises(ProtocolError, match=field):
        decode_request(json.dumps(chat).encode())
