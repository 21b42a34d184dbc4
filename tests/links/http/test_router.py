"""A real llama-server as a router with two presets, where one is on the PATH."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglechat.links.http.discovery import ask
from eaglechat.settings.model import ServerSettings
from eaglechat.wire import protocol as p
from eaglechat.wire.errors import EngineError
from tests.links.engines import chat
from tests.links.http.fault_server import client_of, why
from tests.waiting import until

PROGRAM = shutil.which("llama-server")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no llama-server is on the PATH"),
]


@pytest.fixture
def url(tiny_files: tuple[Path, Path], tmp_path: Path) -> Iterator[str]:
    """The address of a router that has the tiny pair, its target alone, and one that is not
    there."""
    target, draft = tiny_files
    presets = tmp_path / "presets.ini"
    presets.write_text(
        f"version = 1\n[*]\nc = 512\nparallel = 1\nthreads = 1\n"
        f"[tiny]\nmodel = {target}\nmodel-draft = {draft}\nspec-type = draft-eagle3\n"
        f"spec-draft-n-max = 3\n[tiny-plain]\nmodel = {target}\n"
        f"[broken]\nmodel = {tmp_path}/none.gguf\n"
    )
    router, url = started("--models-preset", str(presets))
    while router.poll() is not None:
        # Another program has taken the port before it did.
        router, url = started("--models-preset", str(presets))
    with router:
        yield url
        router.terminate()


def started(*options: str) -> tuple[subprocess.Popen[bytes], str]:
    """A router that answers at this address, or has ended."""
    assert PROGRAM is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    router = subprocess.Popen(
        [PROGRAM, *options, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    until(lambda: router.poll() is not None or _answers(url), "an answer of the router")
    return router, url


def _answers(url: str) -> bool:
    try:
        return bool(ask(ServerSettings(name="box", url=url)).models)
    except EngineError:
        return False


def test_choosing_a_model_loads_it_and_the_plain_one_is_loaded_for_a_comparison(url: str) -> None:
    assert {one.state for one in ask(ServerSettings(name="box", url=url)).models} == {"not loaded"}
    client = client_of(url, plain_model="tiny-plain")
    client.ready()
    try:
        loaded = client.answer(p.Load(target="tiny"))
        assert [event.stage for event in loaded.of(p.Loading)][:2] == ["server", "target"]
        assert loaded.last.pair.n_ctx == 512
        reply = client.answer(chat())
        plain = client.answer(chat(speculation=p.Speculation(enabled=False, n_draft_max=0)))
        broken = client.answer(p.Load(target="broken"))
    finally:
        client.link.close()
    assert reply.last.stats.tested > 0
    assert plain.last.stats.tested == 0
    assert plain.text == reply.text
    assert "could not load broken" in why(broken)
