from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglechat.engine.auto.planner import PlainChecks
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Model
from tests.engine.kind_pairs import KINDS, Files, Write
from tests.engine.rig import Rig, open_rig


@pytest.fixture(scope="session", autouse=True)
def _backend() -> None:
    backend.start_backend(backend.LOG_ERRORS)


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


@pytest.fixture(scope="session")
def write(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Write]:
    """Writes the files of a kind, once."""
    written: dict[tuple[str, bool], Files] = {}

    def files(kind: str, *, mixed: bool = False) -> Files:
        if (kind, mixed) not in written:
            folder = tmp_path_factory.mktemp("kind")
            made = KINDS[kind]
            written[kind, mixed] = Files(made, *made.write(folder, mixed=mixed))
        return written[kind, mixed]

    yield files
    for one in written.values():
        one.close()


def _open(files: tuple[Path, Path]) -> Iterator[tuple[Model, Model]]:
    with Model(files[0]) as target, Model(files[1]) as draft:
        yield target, draft


@pytest.fixture
def plain_checks() -> None:
    """Lets the loop play plain checks. Where a test does not ask for it, what is drafted in a round
    follows from the settings alone."""


@pytest.fixture(autouse=True)
def _without_plain_checks(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if "plain_checks" not in request.fixturenames:
            patch.setattr(PlainChecks, "is_due", lambda _self, _length: False)
        yield
