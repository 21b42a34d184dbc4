"""Two eaglechats, or two threads of one, change the same file at once: no entry is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import tomlkit

from eaglechat import paths
from eaglechat.engine.llama import workarounds
from eaglechat.hub import catalogue
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.hub.local.pairs import Pair
from eaglechat.hub.local.speeds import Gain, Setup, Speeds, setup_of
from eaglechat.hub.references import ModelSource
from eaglechat.settings.config_file import save_setting
from eaglechat.settings.model import EngineSettings

PROGRAMS, CHANGES = 3, 6
Write = Callable[[str], None]


def of(name: str) -> Pair:
    return Pair(name, Path(f"/{name}.gguf"), None, "files")


def setup(name: str) -> Setup:
    return setup_of(of(name), EngineSettings())


def recent_pairs() -> tuple[Write, Callable[[], set[str]]]:
    library = PairLibrary(paths.state_dir())
    written = lambda: {pair.name for pair in PairLibrary(paths.state_dir()).pairs()[1:]}  # noqa: E731
    return lambda name: library.remember(of(name)), written


def draft_lengths() -> tuple[Write, Callable[[], set[str]]]:
    library = PairLibrary(paths.state_dir())

    def written() -> set[str]:
        library.read_measured()
        return {name for name in EVERY if library.kept_length(of(name)) == 3}

    return lambda name: library.keep_length(of(name), 3), written


def measured_speeds() -> tuple[Write, Callable[[], set[str]]]:
    speeds, gain = Speeds(paths.state_dir()), Gain(1.4, 0.1, 3, "bench", at=1.0)

    def written() -> set[str]:
        return {name for name in EVERY if Speeds(paths.state_dir()).gain(setup(name), 3)}

    return lambda name: speeds.note(setup(name), gain), written


def crashes() -> tuple[Write, Callable[[], set[str]]]:
    def written() -> set[str]:
        return {Path(one.files[0]).stem for one in workarounds.remembered()}

    return lambda name: workarounds.remember([Path(f"{name}.gguf")], ("gpu",), "SIGSEGV"), written


def own_pairs() -> tuple[Write, Callable[[], set[str]]]:
    def add(name: str) -> None:
        catalogue.remember(CatalogueEntry(name=name, target=ModelSource(repo=f"user/{name}")))

    return add, lambda: {entry.name for entry in catalogue.read(paths.user_catalogue())[0]}


def settings() -> tuple[Write, Callable[[], set[str]]]:
    def written() -> set[str]:
        return set(tomlkit.parse(paths.config_file().read_text())["chat"])

    return lambda name: save_setting(paths.config_file(), "chat", name, 1), written


EVERY = [f"pair-{program}-{change}" for program in range(PROGRAMS) for change in range(CHANGES)]


@pytest.mark.parametrize(
    "program",
    [recent_pairs, draft_lengths, measured_speeds, crashes, own_pairs, settings],
)
def test_no_entry_is_lost(
    program: Callable[[], tuple[Write, Callable[[], set[str]]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("EAGLECHAT_HOME", str(tmp_path))
    monkeypatch.setattr("eaglechat.hub.local.pair_library.MOST_RECENT", len(EVERY))
    programs, start = [program() for _ in range(PROGRAMS)], Barrier(PROGRAMS)

    def change(number: int) -> None:
        start.wait()
        for name in EVERY[number * CHANGES : (number + 1) * CHANGES]:
            programs[number][0](name)

    with ThreadPoolExecutor(PROGRAMS) as pool:
        list(pool.map(change, range(PROGRAMS)))
    assert programs[0][1]() == set(EVERY)
