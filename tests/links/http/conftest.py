"""A server on loopback, and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eaglechat.wire import protocol as p
from tests.engine_client import Asked, Client
from tests.links.engines import chat
from tests.links.http.fault_server import (
    Ask,
    Connect,
    FaultServer,
    Handler,
    client_of,
    fault_server,
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eaglechat.links.http.server.RETRY_WAITS_S", (0.01, 0.01))
    monkeypatch.setattr("eaglechat.links.http.server.LOADING_WAIT_S", 0.01)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server() as faults:
        yield faults


@pytest.fixture
def connect(server: FaultServer) -> Iterator[Connect]:
    """A client of the server, with its only model loaded."""
    clients = []

    def loaded(**more: Any) -> Client:
        client = client_of(server.url, **more)
        clients.append(client)
        client.ready()
        client.expect(p.Loaded, p.Load(target=""))
        return client

    yield loaded
    for client in clients:
        client.link.close()


@pytest.fixture
def answered(connect: Connect, server: FaultServer) -> Ask:
    """What becomes of a chat that the server answers like this."""

    def ask(answer: Callable[[Handler], None], **changes: Any) -> Asked:
        server.chat = answer
        return connect().answer(chat(**changes))

    return ask
