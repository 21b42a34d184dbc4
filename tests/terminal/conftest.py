from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, copies: Path) -> Path:
    """A new home of the app, but for copies of the built-in target."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "reencoded").symlink_to(copies)
    return tmp_path
