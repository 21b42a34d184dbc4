"""What the tests keep from the machine they run on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import only_this_machine
import pytest
from huggingface_hub import constants

from eaglechat import paths
from tests.conftest import HOMES

ASKED = "import socket; socket.create_connection(('192.0.2.1', 80))"


def test_no_test_asks_the_network_nor_any_python_it_starts() -> None:
    with pytest.raises(RuntimeError, match=r"a test asks 192\.0\.2\.1, which is not this machine"):
        socket.create_connection(("192.0.2.1", 80))
    with pytest.raises(RuntimeError, match=r"a test asks example\.org"):
        socket.getaddrinfo("example.org", 80)
    assert only_this_machine.refused == ["192.0.2.1", "example.org"]
    only_this_machine.refused.clear()

    done = subprocess.run(
        [sys.executable, "-c", ASKED], capture_output=True, text=True, check=False
    )
    assert "a test asks 192.0.2.1" in done.stderr


def test_a_name_that_nobody_has_is_unknown_whatever_the_resolver_answers() -> None:
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("box.invalid", 80)
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


def test_nothing_of_the_user_is_seen(home: Path) -> None:
    for path in (Path.home(), paths.config_file(), paths.state_dir(), Path(constants.HF_HUB_CACHE)):
        assert path.is_relative_to(HOMES)
    assert [*home.iterdir()] == []
    assert not [name for name in os.environ if name.lower().endswith("_proxy")]
