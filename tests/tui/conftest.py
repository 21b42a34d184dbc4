"""The app on a scripted engine, with tiny model files and every path in a temporary directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eaglechat import paths
from eaglechat.hub.local import pairs
from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.settings.model import Settings
from eaglechat.tui.app import EagleApp
from eaglechat.tui.commands import keys
from eaglechat.tui.services import engine as service
from tests.ggufs import write_draft, write_target
from tests.tui.driving import Driver
from tests.tui.scripted import ScriptedEngine
from tests.tui.scripted_desk import ScriptedDesk
from tests.tui.textual_private import parse_styles_once, wait_only_for_messages


@pytest.fixture(autouse=True)
def quiet_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_only_for_messages(monkeypatch)
    parse_styles_once(monkeypatch)


@pytest.fixture(autouse=True)
def own_keys() -> Iterator[None]:
    """The keys in force are the process's, and each app sets them."""
    yield
    keys.use({})


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a target and a draft, which are the built-in pair's too."""
    directory = tmp_path / "models"
    target = write_target(directory / "target.gguf")
    draft = write_draft(directory / "draft.gguf")
    builtin = pairs.Pair(pairs.BUILTIN_NAME, target, draft, "built-in", n_draft_max=3)
    monkeypatch.setattr(pairs, "builtin_pair", lambda: builtin)
    return directory


@pytest.fixture
def make_app(
    tmp_path: Path, engine: ScriptedEngine, models: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., EagleApp]:
    # Nothing else needs the processor: every frame may be drawn.
    monkeypatch.setattr(service, "DRAWING_SHARE", 1.0)

    def make(**changes: Any) -> EagleApp:
        app = EagleApp(
            **{
                "settings": Settings(),
                "engine": engine,
                "pairs": PairLibrary(tmp_path / "state"),
                "config_file": tmp_path / "config.toml",
                "chats_file": tmp_path / "chats.sqlite3",
                "theme_dirs": [paths.builtin_themes_dir()],
                "desk": ScriptedDesk(),
                **changes,
            }
        )
        app.animation_level = "none"
        # A busy machine may look later than the five seconds that a notice stands for.
        app.NOTIFICATION_TIMEOUT = 60.0
        return app

    return make


@pytest.fixture
def drive(make_app: Callable[..., EagleApp], engine: ScriptedEngine) -> Callable[..., Driver]:
    """`async with drive(size=(80, 24)) as app:` runs the app."""

    def run(size: tuple[int, int] = (120, 40), **changes: Any) -> Driver:
        return Driver(make_app(**changes), engine, size)

    return run
