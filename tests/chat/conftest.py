"""A chat to begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chat.headless import Headless


@pytest.fixture
def chat(tmp_path: Path) -> Headless:
    return Headless(tmp_path)
