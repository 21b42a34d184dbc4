"""Models that are loaded when they are chosen, in shapes recorded from llama-server's router
(b1-0c1e570); and llama-swap, which loads one with the first question and was not run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from eaglechat.links.http.discovery import ask
from eaglechat.settings.model import ServerSettings
from eaglechat.wire import protocol as p
from eaglechat.wire.records import Origin
from tests.engine_client import Asked
from tests.links.engines import chat
from tests.links.http.fault_server import FaultServer, Handler, client_of

META = {"n_vocab": 49152, "n_ctx": 2048, "n_ctx_train": 8192, "n_embd": 576, "size": 1, "ftype": ""}
PROPS = {"build_info": "b1", "chat_template": "{% if enable_thinking %}{% endif %}"}


@dataclass
class Router:
    """llama-server without a model of its own. A load ends once its state was asked for."""

    faults: FaultServer
    ends_in: str = "loaded"
    states: dict[str, str] = field(default_factory=lambda: {"big": "unloaded", "small": "loaded"})

    def __post_init__(self) -> None:
        self.faults.others |= {
            "/props": {"role": "router", "build_info": "b1"},
            "/props?model=big": PROPS,
            "/slots?model=big": [{"id": 0, "speculative": True}],
            "/models/load": self._load,
        }
        self._list()

    def _list(self) -> None:
        self.faults.models = {"data": [self._listed(name) for name in self.states]}

    def _listed(self, name: str) -> dict[str, Any]:
        state = self.states[name]
        status: dict[str, Any] = {"value": state.removesuffix("!"), "args": []}
        if state == "unloaded!":
            status |= {"failed": True, "exit_code": 1}
        meta = {"meta": META} if state == "loaded" else {}
        return {"id": name, "owned_by": "llamacpp", "status": status, **meta}

    def _load(self, handler: Handler) -> None:
        self.states["big"] = "loading"
        handler.json({"success": True})
        self.faults.models = self._asked

    def _asked(self, handler: Handler) -> None:
        self._list()
        handler.json(self.faults.models)
        self.states["big"] = self.ends_in
        self.faults.models = self._asked


def loaded(server: FaultServer, model: str, *, cancel: bool = False) -> Asked:
    client = client_of(server.url)
    try:
        client.ready()
        asked = client.ask(p.Load(target=model))
        if cancel:
            client.until(lambda: len(asked.of(p.Loading)) > 1, "a load in progress")
            client.link.send(p.Cancel(id=asked.id))
        client.end(asked)
        return asked
    finally:
        client.link.close()


def test_the_models_of_a_router_have_a_state(server: FaultServer) -> None:
    Router(server)
    found = ask(ServerSettings(name="box", url=server.url))
    assert [(one.id, one.state) for one in found.models] == [
        ("big", "unloaded"),
        ("small", "loaded"),
    ]
    assert found.on_demand


def test_choosing_one_loads_it(server: FaultServer) -> None:
    Router(server)
    asked = loaded(server, "big")

    steps = [(event.stage, event.fraction) for event in asked.of(p.Loading)]
    assert steps == [("server", 0.0), ("target", 0.0)]
    pair = asked.last.pair
    assert (pair.target.path, pair.n_ctx, pair.reasoning.on_off) == ("big", 2048, True)
    assert pair.speculation_off is None


def test_a_model_that_cannot_be_loaded_is_said_to_be_so(server: FaultServer) -> None:
    Router(server, ends_in="unloaded!")
    error = loaded(server, "big").last
    assert isinstance(error, p.Error)
    assert error.message == (f"{server.url} could not load big: the log of that server says why")


def test_a_load_can_be_cancelled(server: FaultServer) -> None:
    Router(server, ends_in="loading")
    assert loaded(server, "big", cancel=True).last.code == "cancelled"


@pytest.mark.parametrize("counts", [True, False])
def test_a_reply_through_llama_swap_is_read_as_what_wrote_it(
    server: FaultServer, counts: bool
) -> None:
    server.models = {"data": [{"id": one, "owned_by": "llama-swap"} for one in ("a/b", "c")]}

    def write(handler: Handler) -> None:
        handler.begin()
        handler.event({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        timings = {"timings": {"predicted_n": 1, "predicted_ms": 0.001}} if counts else {}
        handler.event({"choices": [{"delta": {"content": "one"}}], **timings})
        handler.event({"choices": [{"delta": {}, "finish_reason": "stop"}], **timings})
        handler.event("[DONE]")

    server.chat = write
    client = client_of(server.url)
    client.ready()
    client.answer(p.Load(target="c"))
    reply = client.answer(chat())
    client.link.close()
    tokens = [token for round_ in reply.rounds for token in round_.tokens]
    assert [(one.text, one.origin) for one in tokens] == [
        ("one", Origin.PLAIN if counts else Origin.UNKNOWN)
    ]
