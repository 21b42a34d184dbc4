"""Engines that have a program of the tests compute."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.llama_server.program import write_program
from tests.engine_client import Client, engine_process


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Client]]:
    clients: list[Client] = []

    def begin(kind: str) -> Client:
        program = str(write_program(tmp_path, kind))
        command = [sys.executable, "-m", "eaglechat", "engine", "--llama-server", program]
        clients.append(engine_process(command, tmp_path / "engine.log"))
        return clients[-1]

    yield begin
    for client in clients:
        client.link.close(patience_s=8.0)
