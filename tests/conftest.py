from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import environment

HOMES = environment.isolate()
LONG_ONES = {"terminal", "train", "downloads", "auto", "commands", "engine", "llama_server"}

import only_this_machine  # noqa: E402

from eaglechat.hub.local.pairs import BUILTIN_INSTALL, builtin_pair  # noqa: E402
from tests import tiny  # noqa: E402

# How long an example takes says how busy the machine is, and nothing else. A run has the examples
# of the run before, so that it fails for what was changed; `--hypothesis-profile=new` tries others.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNTIMED, derandomize=True)
settings.register_profile("new", UNTIMED, max_examples=1000)
settings.load_profile("same")


def pytest_unconfigure() -> None:
    shutil.rmtree(HOMES, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests come first: at the end no process waits for another's last file."""
    items.sort(key=lambda item: item.path.parent.name not in LONG_ONES)


def pytest_collection_finish() -> None:
    """Look for garbage seldom: a third of the CPU time of the app's tests went into that, for 25 MB
    that are freed later. What is there now stays to the end and is not looked through at all."""
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


@pytest.fixture(autouse=True)
def home() -> Iterator[Path]:
    """The user's home, empty; the program's own files are in its `eaglechat`."""
    folder = Path(tempfile.mkdtemp(dir=HOMES))
    # Not the test's own patches: what those change is put back before its fixtures end.
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.variables_of(folder).items():
            patch.setenv(name, value)
        yield folder


@pytest.fixture(autouse=True)
def only_loopback_is_asked() -> Iterator[None]:
    """Fails where the program took the refusal of a connection for an answer, too."""
    yield
    asked = [*only_this_machine.refused]
    only_this_machine.refused.clear()
    assert not asked, f"asked for on the network: {asked}"


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
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where copies of the built-in target are written and measured, once for all processes of a
    run: the program itself lets only one of them do that."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    (folder / "reencoded").mkdir(exist_ok=True)
    return folder / "reencoded"


@pytest.fixture
def loaded_before(home: Path, copies: Path) -> None:
    """The home of a user who has loaded the built-in pair before."""
    (home / "eaglechat" / "data").mkdir(parents=True)
    (home / "eaglechat" / "data" / "reencoded").symlink_to(copies)
