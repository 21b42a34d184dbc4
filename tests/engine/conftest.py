from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglechat.engine import bindings
from eaglechat.engine.native import Model
from eaglechat.hub.pairs import BUILTIN_INSTALL, builtin_pair
from tests import tiny
from tests.engine.rig import Rig, open_rig


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny random target and its draft, on disk."""
    folder = tmp_path_factory.mktemp("tiny")
    return tiny.write_target(folder / "target.gguf"), tiny.write_draft(folder / "draft.gguf")


@pytest.fixture(scope="session")
def real_files() -> tuple[Path, Path]:
    """The built-in pair."""
    pair = builtin_pair()
    if not pair.target.is_file():
        pytest.skip(f"the built-in pair's target is missing: {BUILTIN_INSTALL}")
    assert pair.draft is not None
    return pair.target, pair.draft


@pytest.fixture(scope="session")
def tiny_models(tiny_files: tuple[Path, Path]) -> Iterator[tuple[Model, Model]]:
    yield from _open(tiny_files)


@pytest.fixture(scope="session")
def real_models(real_files: tuple[Path, Path]) -> Iterator[tuple[Model, Model]]:
    yield from _open(real_files)


@pytest.fixture
def rig(tiny_models: tuple[Model, Model]) -> Iterator[Rig]:
    """The loop over the tiny pair."""
    with open_rig(*tiny_models) as rig:
        yield rig


@pytest.fixture
def real_rig(real_models: tuple[Model, Model]) -> Iterator[Rig]:
    """The loop over the built-in pair."""
    with open_rig(*real_models) as rig:
        yield rig


def _open(files: tuple[Path, Path]) -> Iterator[tuple[Model, Model]]:
    bindings.start_backend(bindings.LOG_ERRORS)
    with Model(files[0]) as target, Model(files[1]) as draft:
        yield target, draft
