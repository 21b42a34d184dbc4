"""Every kind of engine behind its link, as a fixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eaglechat.links.http.server import server_link
from eaglechat.links.process import ProcessLink
from eaglechat.settings.model import ServerSettings
from tests.engine_client import Client, engine_in_this_process, engine_process
from tests.links.engines import ENGINE, OUR_OWN
from tests.llama_server import llama_server
from tests.tui.scripted import ScriptedEngine


@pytest.fixture(scope="module")
def server_url(tiny_files: tuple[Path, Path]) -> Iterator[str]:
    pytest.importorskip("xllamacpp")
    target, draft = tiny_files
    with llama_server(target, draft=draft) as server:
        yield server.url


@contextmanager
def connected(
    request: pytest.FixtureRequest, files: tuple[Path, Path], folder: Path
) -> Iterator[Client]:
    """A client of the kind of engine that the fixture's parameter names."""
    if request.param == "process":

        def kill() -> None:
            client.process.kill()

        client = Client(ProcessLink(ENGINE, folder / "log"), files, kill=kill)
    elif request.param == "local":
        client = Client(engine_in_this_process(), files)
    elif request.param == "http":
        server = ServerSettings(name="box", url=request.getfixturevalue("server_url"))
        client = Client(server_link(server), files)
    else:
        script = ScriptedEngine()
        client = Client(script, files, kill=lambda: script.die("the end", exit_status=-9))
    client.kind = request.param
    yield client
    client.link.close()


@pytest.fixture(params=[*OUR_OWN, "http"])
def client(
    request: pytest.FixtureRequest, tiny_files: tuple[Path, Path], tmp_path: Path
) -> Iterator[Client]:
    with connected(request, tiny_files, tmp_path) as client:
        yield client


@pytest.fixture
def loaded(client: Client) -> Client:
    client.ready()
    client.answer(client.load())
    client.heard.clear()
    return client


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Client]]:
    """Starts engines, anywhere but in the repository, and ends them."""
    monkeypatch.chdir(tmp_path)
    started: list[Client] = []

    def start_engine(command: list[str] = ENGINE) -> Client:
        started.append(engine_process(command, tmp_path / "log" / "engine.log"))
        return started[-1]

    yield start_engine
    for client in started:
        client.link.close()
