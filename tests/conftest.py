from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from eaglechat.engine.llama import workarounds
from eaglechat.hub.local.pairs import BUILTIN_INSTALL, builtin_pair
from tests import tiny

# How long an example takes says how busy the machine is, and nothing else. A run has the examples
# of the run before, so that it fails for what was changed; `--hypothesis-profile=new` tries others.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", UNTIMED, derandomize=True)
settings.register_profile("new", UNTIMED, max_examples=1000)
settings.load_profile("same")


def pytest_configure() -> None:
    """No process of the tests dies of a kernel: what crashes on this machine is found out first, in
    a child process, and left out by all of them (the workers of xdist inherit it)."""
    if workarounds.VARIABLE not in os.environ:
        os.environ[workarounds.VARIABLE] = ",".join(workarounds.for_this_process())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: a third of the time, a test waits for a process or a terminal."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    """Look for garbage seldom: a third of the CPU time of the app's tests went into that, for 25 MB
    that are freed later. What is there now stays to the end and is not looked through at all."""
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


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
