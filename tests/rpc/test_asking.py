"""RPC servers are asked before llama.cpp connects to them, and named where they cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eaglechat import rpc
from eaglechat.cli import main
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.placement import Device, chosen_devices
from eaglechat.engine.pair import LoadedPair
from eaglechat.gguf.pairing import check_pair
from eaglechat.links.base import Lifecycle
from eaglechat.links.process import ProcessLink
from eaglechat.wire.errors import RpcError
from eaglechat.wire.protocol import LoadOptions
from eaglechat.wire.worker import Died
from tests.rpc.fake_server import GIB, nobody, serving


def test_a_server_says_what_it_lends_and_how_far_away_it_is() -> None:
    with serving([(3 * GIB, 4 * GIB), (1, 2)]) as endpoint:
        server = rpc.ask(endpoint)
        again = rpc.ask(endpoint)
    assert (server.endpoint, server.protocol) == (endpoint, "7.0.0")
    assert server.memory == again.memory == ((3 * GIB, 4 * GIB), (1, 2))
    assert 0.0 < server.latency_ms < 10_000.0


def test_of_another_version_only_the_version_is_read() -> None:
    with serving(major=9) as endpoint:
        server = rpc.ask(endpoint)
    assert (server.protocol, server.memory) == ("9.0.0", ())


def test_an_unreachable_server_is_named_with_the_reason() -> None:
    endpoint = nobody()
    with pytest.raises(RpcError, match=f"{endpoint} cannot be reached: .*refused"):
        rpc.ask(endpoint)
    with pytest.raises(RpcError, match=r"no\.such\.host\.invalid:1 cannot be reached"):
        rpc.ask("no.such.host.invalid:1")
    with pytest.raises(RpcError, match="cannot be reached"):
        rpc.ask("127.0.0.1:99999")


def test_a_server_that_has_another_client_is_not_waited_for() -> None:
    with serving(silent=True) as endpoint, pytest.raises(RpcError) as refused:
        rpc.ask(endpoint, patience_s=0.2)
    assert f"{endpoint} does not answer within 0.2 seconds" in str(refused.value)
    assert "another one may have it" in str(refused.value)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(instead=st.binary(max_size=80))
def test_whatever_else_listens_there_is_no_rpc_server(instead: bytes) -> None:
    with serving(instead=instead) as endpoint, pytest.raises(RpcError):
        rpc.ask(endpoint)


def test_a_web_server_is_told_apart() -> None:
    with (
        serving(instead=b"HTTP/1.1 400 Bad Request\r\n\r\n") as endpoint,
        pytest.raises(RpcError, match=f"{endpoint} .* does not speak llama.cpp's RPC"),
    ):
        rpc.ask(endpoint)


def test_an_unreachable_server_is_named_before_anything_loads(
    tiny_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "backends", lambda: ("RPC", "CPU"))
    stages: list[str] = []

    def note(stage: str, _fraction: float) -> None:
        stages.append(stage)

    with serving() as here:
        options = LoadOptions(rpc_servers=(here, nobody()))
        with pytest.raises(RpcError, match="cannot be reached"):
            LoadedPair(check_pair(*tiny_files), options, note)
    assert stages == []


def test_without_rpc_in_the_build_the_way_to_it_is_told(
    tiny_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "backends", lambda: ("CPU",))
    options = LoadOptions(rpc_servers=("gpu1:50052",))
    with pytest.raises(RpcError, match=r'CMAKE_ARGS="-DGGML_RPC=ON" .*pip install'):
        LoadedPair(check_pair(*tiny_files), options)


def test_devices_elsewhere_are_named_to_llama_cpp_before_those_here() -> None:
    lent = [Device("RPC0", "gpu1:1", 1, 1, True, False, backend="RPC", handle=7)]
    card = Device("CUDA0", "a card", 1, 1, True, False, backend="CUDA", handle=9)
    options = LoadOptions(rpc_servers=("gpu1:1",))
    assert chosen_devices(options, [*lent, card]) == (7, 9)
    assert chosen_devices(LoadOptions(), [card]) == ()


def test_the_doctor_shows_servers_and_those_that_cannot_be_reached(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backend, "backends", lambda: ("RPC", "CPU"))
    gone = nobody()
    with serving([(3 * GIB, 4 * GIB)]) as one, serving([(1 * GIB, 2 * GIB)]) as two:
        config = home / "eaglechat" / "config" / "config.toml"
        config.parent.mkdir(parents=True)
        servers = f'rpc_servers = ["{one}", "{gone}", "{two}"]'
        config.write_text(f"[engine]\n{servers}\n")
        assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert f"RPC server {one}: " in shown
    assert f"RPC0: 3.2 GB free of 4.3 GB on {one}" in shown
    assert f"RPC1: 1.1 GB free of 2.1 GB on {two}" in shown
    assert "the target split by layer over RPC0 and RPC1" in " ".join(shown.split())
    assert f"the RPC server {gone} cannot be reached: connection refused. Start ggml-rpc" in shown


def test_an_engine_that_ends_with_its_server_says_so(tmp_path: Path) -> None:
    """llama.cpp's own sentence for it, and its signal."""
    said = "ggml-rpc.cpp:569: Remote RPC server crashed or returned malformed response"
    code = f"import os, sys; print({said!r}, file=sys.stderr, flush=True); os.abort()"
    link = ProcessLink([sys.executable, "-c", code], tmp_path / "engine.log")
    news: list[Lifecycle] = []
    link.watch(news.append)
    link.start()
    while not isinstance(news[-1] if news else None, Died):
        link.pump(0.1)
    died = news[-1]
    assert isinstance(died, Died)
    assert died.why == "the engine stopped because an RPC server of engine.rpc_servers went away"
    assert died.log_tail == (said,)
