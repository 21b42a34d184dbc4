"""Engines that have a program of the tests compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eaglechat.links.llama_server.worker import program_link
from tests.engine_client import Client
from tests.links.llama_server.program import write_program


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Client]]:
    clients: list[Client] = []

    def begin(kind: str) -> Client:
        program = str(write_program(tmp_path, kind))
        clients.append(Client(program_link(program, tmp_path / "engine.log")))
        clients[-1].link.start()
        return clients[-1]

    yield begin
    for client in clients:
        client.link.close(patience_s=8.0)
