from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first app writes copies of its target, and what it measured of them."""
    return tmp_path_factory.mktemp("reencoded")


@pytest.fixture
def home(tmp_path: Path, copies: Path) -> Path:
    """A new home of the app, but for that copy."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "reencoded").symlink_to(copies)
    return tmp_path
