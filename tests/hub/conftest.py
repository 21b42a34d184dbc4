from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from eaglechat.hub.downloads.client import Hub
from tests.hub.fakehub import FakeHub


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with FakeHub() as server:
        yield server


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loopback Hub may be asked."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def hub(fake: FakeHub, tmp_path: Path) -> Hub:
    return Hub(fake.endpoint, tmp_path / "cache", waits=(0.01, 0.01))


@pytest.fixture
def impatient(hub: Hub) -> Hub:
    """Soon takes a pause for a stall, a busy machine's too: what it asked is not counted."""
    hub.read_s = 0.5
    return hub
