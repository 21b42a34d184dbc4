from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from eaglechat.hub.downloads.client import Hub, Timeouts
from tests.hub.fakehub import FakeHub


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with FakeHub() as server:
        yield server


@pytest.fixture(autouse=True)
def no_token_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))


@pytest.fixture
def hub(fake: FakeHub, tmp_path: Path) -> Hub:
    return Hub(fake.endpoint, tmp_path / "cache", Timeouts(connect=2.0, read=0.5), (0.01, 0.01))
