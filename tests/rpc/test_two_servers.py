"""The built-in pair split over two RPC servers on loopback, by engines that have RPC.

Skipped without a llama.cpp that has RPC: `python -m tests.tools.build_llama FOLDER --rpc` builds
one in ten minutes, and `EAGLECHAT_LLAMA_RPC=FOLDER` names it to these tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from eaglechat import rpc
from eaglechat.wire import protocol as p
from eaglechat.wire.errors import RpcError
from eaglechat.wire.protocol import LoadOptions
from tests.engine_client import Client, engine_process
from tests.rpc.fake_server import nobody
from tests.waiting import until

ROOT = Path(__file__).parents[2]
BUILT = Path(os.environ.get("EAGLECHAT_LLAMA_RPC", "")).absolute()

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not (BUILT / "ggml-rpc-server").is_file(),
        reason="no llama.cpp with RPC: python -m tests.tools.build_llama FOLDER --rpc builds one, "
        "and EAGLECHAT_LLAMA_RPC=FOLDER names it",
    ),
]

PROMPT = p.Message(role="user", content="Name three rivers of Europe and say where they end.")


class Server:
    """An RPC server with the processor for its device."""

    def __init__(self) -> None:
        self.endpoint = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """At a free port; at its own again after `kill`."""
        while not self.endpoint or self.start_at(self.endpoint) is not None:
            self.endpoint = nobody()

    def start_at(self, endpoint: str) -> int | None:
        """Returns its exit status if it ends, as where another program has taken the port."""
        host, _, port = endpoint.rpartition(":")
        process = self._process = subprocess.Popen(
            [BUILT / "ggml-rpc-server", "-d", "CPU", "-t", "1", "-H", host, "-p", port],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: process.poll() is not None or self._answers(), "an answer of the server")
        return process.poll()

    def _answers(self) -> bool:
        with suppress(RpcError):
            rpc.ask(self.endpoint)
            return True
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


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
    """An engine with RPC."""
    path = [str(BUILT / "site"), str(ROOT)]
    code = f"import sys; sys.path[:0] = {path!r}; from eaglechat.cli import main; main(['engine'])"
    client = engine_process([sys.executable, "-c", code], tmp_path / "engine.log")
    yield client
    client.link.close()


def load(files: tuple[Path, Path], *servers: Server) -> p.Load:
    endpoints = tuple(server.endpoint for server in servers)
    options = LoadOptions(n_ctx=1024, n_threads=1, rpc_servers=endpoints)
    return p.Load(target=str(files[0]), draft=str(files[1]), options=options)


CHAINS = p.Speculation()
TREES = p.Speculation(n_draft_max=6, shape="tree", ngram=True)


def chat(max_tokens: int, speculation: p.Speculation = CHAINS) -> p.Chat:
    return p.Chat(
        messages=(PROMPT,),
        sampling=p.Sampling(temperature=0.0, seed=1),
        speculation=speculation,
        max_tokens=max_tokens,
    )


def accepted(client: Client, speculation: p.Speculation) -> tuple[int, int]:
    done = client.answer(chat(48, speculation)).last
    assert isinstance(done, p.Done)
    return done.stats.accepted, done.stats.tested


def test_a_pair_split_over_two_servers_drafts_as_well_as_on_one_machine(
    real_files: tuple[Path, Path],
    servers: tuple[Server, Server],
    client: Client,
    tmp_path: Path,
) -> None:
    loaded = client.answer(load(real_files, *servers)).last
    assert isinstance(loaded, p.Loaded), loaded
    assert loaded.pair.devices[:2] == tuple(server.endpoint for server in servers)
    log = (tmp_path / "engine.log").read_text()
    assert "offloaded 31/31 layers to GPU" in log
    assert "RPC0[" in log or "RPC0 " in log
    there = [accepted(client, drafting) for drafting in (CHAINS, TREES)]

    loaded = client.answer(load(real_files)).last
    assert isinstance(loaded, p.Loaded), loaded
    here = [accepted(client, drafting) for drafting in (CHAINS, TREES)]

    for one, other in zip(there, here, strict=True):
        assert other[0] > 0
        assert abs(one[0] - other[0]) <= 3, (there, here)


def test_a_server_that_dies_in_mid_reply_costs_the_engine_and_is_named_at_the_next_load(
    real_files: tuple[Path, Path], servers: tuple[Server, Server], client: Client
) -> None:
    assert isinstance(client.answer(load(real_files, *servers)).last, p.Loaded)
    client.ask(chat(400))
    client.until(lambda: len(client.latest.rounds) >= 3)

    servers[1].kill()

    client.end(client.latest)
    assert isinstance(client.latest.last, p.Error), client.latest.last
    assert client.death().why.endswith("an RPC server of engine.rpc_servers went away")
    assert len(client.latest.rounds) >= 3

    client.link.start()
    refused = client.answer(load(real_files, *servers)).last
    assert isinstance(refused, p.Error)
    assert refused.code == "rpc"
    assert servers[1].endpoint in refused.message

    servers[1].start()
    assert isinstance(client.answer(load(real_files, *servers)).last, p.Loaded)
