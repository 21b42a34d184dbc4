"""What the tests of files from anywhere go through, and what makes such files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.memory import memory_need
from eaglechat.gguf.preflight import PreflightError, check_kv_type, check_pair
from eaglechat.hub.local.library import Model, scan
from eaglechat.hub.local.pairs import inspect, pair_of_files
from eaglechat.wire.errors import SettingsError
from tests import ggufs

TARGET, DRAFT = ggufs.target(), ggufs.draft()


@contextmanager
def folder_of(files: dict[str, bytes]) -> Iterator[Path]:
    """A folder of its own for every example."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        yield Path(folder)


def go_through(folder: Path) -> list[Model]:
    """What the menu, the library and a load do with the files of a folder."""
    models = scan([folder], folder / "no-cache")
    for model in models:
        assert model.problem is None or is_a_sentence(model.problem)
        assert model.name.isprintable()
        for draft in (None, *(other.path for other in models)):
            judge(model.path, draft)
        if model.header is not None:
            assert isinstance(model.header.quantization + model.header.name, str)
            count_memory(model.header, None)
    return models


def judge(target: Path, draft: Path | None) -> None:
    status = inspect(pair_of_files(target, draft))
    assert status.problem is None or is_a_sentence(status.problem)
    try:
        headers = check_pair(target, draft)
    except PreflightError:
        assert status.problem is not None
    else:
        assert status.problem is None
        count_memory(*headers)


def count_memory(target: GGUFHeader, draft: GGUFHeader | None) -> None:
    assert memory_need(target, draft, 4096).total >= 0
    with suppress(SettingsError):
        check_kv_type(target, "q8_0", "auto")


def is_a_sentence(text: str) -> bool:
    return 10 < len(text) < 1000 and text.isprintable()
