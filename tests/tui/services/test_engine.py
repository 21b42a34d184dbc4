"""The app's engine, or a server in its place: what is loaded is what the one in use has."""

from __future__ import annotations

from eaglechat.settings.servers import ServerSettings
from eaglechat.tui.services.engine import EngineService
from eaglechat.wire.protocol import Load
from tests.tui.scripted import ScriptedEngine


def test_a_load_that_a_server_overtook_is_not_what_is_loaded() -> None:
    own, server = ScriptedEngine(), ScriptedEngine()
    own.hold_load = server.hold_load = True
    service = EngineService(own, lambda: True, lambda _settings: server)
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
