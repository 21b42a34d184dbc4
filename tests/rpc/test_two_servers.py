"""The built-in pair split over two RPC servers on loopback, by engines that have RPC.

Skipped where there is none: `python -m tests.gpu.build FOLDER --rpc` builds it in ten minutes, and
`EAGLECHAT_LLAMA_RPC=FOLDER` names it to these tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from eaglechat.engine.llama import rpc
from eaglechat.links.base import Died, Lifecycle
from eaglechat.links.process import EngineProcess
from eaglechat.wire import protocol as p
from eaglechat.wire.errors import RpcError
from eaglechat.wire.load_options import LoadOptions
from tests.rpc.fake_server import nobody

ROOT = Path(__file__).parents[2]
BUILT = Path(os.environ.get("EAGLECHAT_LLAMA_RPC", "")).absolute()

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not (BUILT / "ggml-rpc-server").is_file(),
        reason="no llama.cpp with RPC: python -m tests.gpu.build FOLDER --rpc builds it, and "
        "EAGLECHAT_LLAMA_RPC=FOLDER names it",
    ),
]

PROMPT = p.Message(role="user", content="Name three rivers of Europe and say where they end.")


class Server:
    """An RPC server with the processor for its device."""

    def __init__(self) -> None:
        self.endpoint = nobody()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        host, _, port = self.endpoint.rpartition(":")
        self._process = subprocess.Popen(
            [BUILT / "ggml-rpc-server", "-d", "CPU", "-t", "1", "-H", host, "-p", port],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 60.0
        while time.monotonic() < until:
            with suppress(RpcError):
                rpc.ask(self.endpoint)
                return
            time.sleep(0.1)
        raise AssertionError("the server does not begin to answer")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Client:
    """An engine process with RPC, and what it has said."""

    def __init__(self, log: Path) -> None:
        path = [str(BUILT / "site"), str(ROOT)]
        code = (
            f"import sys; sys.path[:0] = {path!r}; from eaglechat.cli import main; main(['engine'])"
        )
        self.link = EngineProcess([sys.executable, "-c", code], log)
        self.news: list[Lifecycle] = []
        self.link.watch(self.news.append)
        self.link.start()
        self.heard: list[p.Answer] = []

    def ask(self, request: p.Load | p.Chat) -> p.Answer:
        """The last answer to a request."""
        self.heard.clear()
        self.link.request(request, self.heard.append)
        return self.until(lambda: isinstance(self.heard[-1], p.Loaded | p.Done | p.Error))

    def until(self, holds: Callable[[], bool]) -> p.Answer:
        for _ in range(3000):
            self.link.pump(0.1)
            if self.heard and holds():
                return self.heard[-1]
        raise AssertionError("nothing came of it")

    def rounds(self) -> list[p.RoundDone]:
        return [event for event in self.heard if isinstance(event, p.RoundDone)]


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    two = Server(), Server()
    for server in two:
        server.start()
    yield two
    for server in two:
        server.kill()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path / "engine.log")
    yield client
    client.link.close()


def load(files: tuple[Path, Path], *servers: Server) -> p.Load:
    endpoints = tuple(server.endpoint for server in servers)
    options = LoadOptions(n_ctx=1024, n_threads=1, rpc_servers=endpoints)
    return p.Load(target=str(files[0]), draft=str(files[1]), options=options)


def chat(max_tokens: int) -> p.Chat:
    return p.Chat(
        messages=(PROMPT,), sampling=p.Sampling(temperature=0.0, seed=1), max_tokens=max_tokens
    )


def accepted(client: Client) -> tuple[int, int]:
    done = client.ask(chat(48))
    assert isinstance(done, p.Done)
    return done.stats.accepted, done.stats.tested


def test_a_pair_split_over_two_servers_drafts_as_well_as_on_one_machine(
    real_files: tuple[Path, Path], servers: tuple[Server, Server], client: Client, tmp_path: Path
) -> None:
    loaded = client.ask(load(real_files, *servers))
    assert isinstance(loaded, p.Loaded), loaded
    assert loaded.pair.devices[:2] == tuple(server.endpoint for server in servers)
    log = (tmp_path / "engine.log").read_text()
    assert "offloaded 31/31 layers to GPU" in log
    assert "RPC0[" in log or "RPC0 " in log
    there = accepted(client)

    loaded = client.ask(load(real_files))
    assert isinstance(loaded, p.Loaded), loaded
    here = accepted(client)

    assert here[0] > 0
    assert abs(there[0] - here[0]) <= 3, (there, here)


def test_a_server_that_dies_in_mid_reply_costs_the_engine_and_is_named_at_the_next_load(
    real_files: tuple[Path, Path], servers: tuple[Server, Server], client: Client
) -> None:
    assert isinstance(client.ask(load(real_files, *servers)), p.Loaded)
    client.heard.clear()
    client.link.request(chat(400), client.heard.append)
    client.until(lambda: len(client.rounds()) >= 3)

    servers[1].kill()

    error = client.until(lambda: isinstance(client.heard[-1], p.Error | p.Done))
    assert isinstance(error, p.Error), error
    died = next(news for news in client.news if isinstance(news, Died))
    assert died.reason.endswith("an RPC server of engine.rpc_servers went away"), died
    assert len(client.rounds()) >= 3

    client.link.start()
    refused = client.ask(load(real_files, *servers))
    assert isinstance(refused, p.Error)
    assert refused.code == "rpc"
    assert servers[1].endpoint in refused.message

    servers[1].start()
    assert isinstance(client.ask(load(real_files, *servers)), p.Loaded)
