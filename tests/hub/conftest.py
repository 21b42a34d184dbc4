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
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty home: no model that somebody has, no token, and no file of eaglechat."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EAGLECHAT_HOME", str(tmp_path / "eaglechat"))
    for variable in ("LLAMA_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    return tmp_path / "home"


@pytest.fixture
def hub(fake: FakeHub, tmp_path: Path) -> Hub:
    return Hub(fake.endpoint, tmp_path / "cache", Timeouts(connect=2.0, read=0.5), (0.01, 0.01))
