"""What a model's file recommends of sampling: shown as such, overruled, and taken back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eaglechat.settings.config_file import load
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.settings import SettingsScreen
from eaglechat.tui.widgets.panel.knob import Knob
from eaglechat.wire import protocol
from tests.tui.driving import Driver
from tests.tui.scripted import ScriptedEngine

Drive = Callable[..., Driver]


@pytest.fixture
def engine() -> ScriptedEngine:
    engine = ScriptedEngine()
    engine.sampling = {"temperature": 0.6, "top_k": 20}
    return engine


def asked_with(user: Driver) -> protocol.Sampling:
    request = user.engine.requests(protocol.Chat)[-1]
    return request.sampling


async def test_the_panel_says_whose_temperature_it_is(drive: Drive) -> None:
    async with drive(size=(120, 40)) as user:
        await user.open_chat()
        await user.sees("[0.60] +  model's")

        user.chat.query_one("#temperature", Knob).action_step(1)
        await user.until(lambda: user.chat.session.controls.temperature == 0.65, "a turned control")
        await user.until(lambda: "model's" not in user.text, "the user's own temperature")
        await user.ask("Hello")
        assert (asked_with(user).temperature, asked_with(user).top_k) == (0.65, 20)


async def test_a_setting_wins_until_its_field_is_empty_again(drive: Drive, tmp_path: Path) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.open_settings()
        await user.on(SettingsScreen)
        await user.sees("0.6 (model's)")
        await user.sees("20 (model's)")
        await user.sees("0.95 (default)")

        # The value that it has without a model is one to choose, too.
        await user.press("enter")
        await user.type("0.7")
        await user.press("enter")
        assert user.chat.session.controls.temperature == 0.7
        assert load(tmp_path / "config.toml")[0].generation.temperature == 0.7

        await user.press("enter", "ctrl+u", "enter", "escape")
        await user.on(ChatScreen)
        assert user.chat.session.controls.temperature == 0.6
        assert "temperature" not in (tmp_path / "config.toml").read_text()
