"""The app's engine, or a server in its place: what is loaded is what the one in use has, and when
its answers are fetched."""

from __future__ import annotations

import pytest

from eaglechat.settings.model import EngineSettings, ServerSettings
from eaglechat.tui.services import engine as frames
from eaglechat.tui.services.engine import EngineService
from eaglechat.wire.protocol import Load, Unload
from eaglechat.wire.worker import Died
from tests.tui.scripted import ScriptedEngine


def test_a_load_that_a_server_overtook_is_not_what_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, server = ScriptedEngine(), ScriptedEngine()
    monkeypatch.setattr("eaglechat.links.http.server.server_link", lambda _settings: server)
    own.hold_load = server.hold_load = True
    service = EngineService(own, EngineSettings)
    service.start()
    service.request(Load(target="/own.gguf"), lambda _event: None)
    own.pump()
    service.use(ServerSettings(name="box", url="http://box"))
    service.start()
    # Each link counts its own requests: both loads are the first.
    service.request(Load(target="/served.gguf"), lambda _event: None)
    own.hold_load = False
    for _ in range(10):
        own.pump()
    assert service.loaded is None
    server.hold_load = False
    for _ in range(10):
        server.pump()
    assert service.loaded is not None
    assert service.loaded.target.path == "/served.gguf"


@pytest.mark.parametrize(
    ("settings", "is_known"),
    [
        (EngineSettings(), True),
        (EngineSettings(command=("ssh", "gpu1")), False),
        (EngineSettings(rpc_servers=("gpu1:50052",)), False),
    ],
    ids=["here", "elsewhere", "spread"],
)
def test_the_memory_of_other_machines_is_not_taken_for_this_one_s(
    settings: EngineSettings, is_known: bool
) -> None:
    service = EngineService(ScriptedEngine(), lambda: settings)
    assert (service.machine is not None) is is_known


def test_a_frame_is_asked_for_once_when_there_is_news_and_never_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "FEWEST_PER_SECOND", 1e9)
    monkeypatch.setattr(frames, "MOST_PER_SECOND", 1e9)
    own, server = ScriptedEngine(), ScriptedEngine()
    asked: list[None] = []
    monkeypatch.setattr("eaglechat.links.http.server.server_link", lambda _settings: server)
    service = EngineService(own, EngineSettings, lambda: asked.append(None))

    def told() -> bool:
        """Whether a frame was asked for since the last one, which is drawn if so."""
        was_asked = asked == [None]
        assert len(asked) <= 1
        asked.clear()
        if was_asked:
            service.tick()
        return was_asked

    def until_quiet() -> None:
        while told():
            pass

    assert not told()
    service.start()
    assert told()
    until_quiet()
    heard: list[object] = []
    service.request(Unload(), heard.append)
    until_quiet()
    assert len(heard) == 1
    own.die("gone")
    own.die("gone again")
    assert told()
    assert not told()
    # What is refused at once is an answer too, and so is what a server says.
    service.request(Load(target="/own.gguf"), heard.append)
    assert told()
    assert len(heard) == 2
    service.use(ServerSettings(name="box", url="http://box"))
    until_quiet()
    service.start()
    until_quiet()
    server.tell(Died(None, ()))
    assert told()
    assert not told()


def test_a_frame_that_is_not_due_yet_keeps_what_came_for_the_next() -> None:
    own = ScriptedEngine()
    asked: list[None] = []
    service = EngineService(own, EngineSettings, ask_for_tick=lambda: asked.append(None))
    news: list[object] = []
    service.watch(news.append)
    service.start()
    while wait_s := service.tick():
        assert wait_s <= 1 / frames.FEWEST_PER_SECOND
        assert asked == [None]
    assert len(news) == 1
