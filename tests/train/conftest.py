from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Model


@pytest.fixture
def tiny_target(tiny_files: tuple[Path, Path]) -> Iterator[Model]:
    backend.start_backend(backend.LOG_ERRORS)
    with Model(tiny_files[0]) as model:
        yield model
