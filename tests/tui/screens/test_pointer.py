"""The mouse on the chat's controls: they stay where they are, and typing goes on in the prompt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eaglechat.settings.model import InterfaceSettings, PanelPlace, Settings
from eaglechat.tui.screens.chat.screen import PANEL_FROM
from eaglechat.tui.widgets.panel.knob import Knob
from eaglechat.wire.protocol import AUTO
from tests.tui.driving import Driver

Drive = Callable[..., Driver]


@pytest.mark.parametrize(
    ("size", "panel"),
    [
        (PANEL_FROM["beside"], "beside"),
        ((80, 24), "beside"),
        (PANEL_FROM["below"], "below"),
        pytest.param((120, 40), "beside", marks=pytest.mark.slow),
    ],
)
async def test_controls_never_move_under_the_pointer(
    drive: Drive, size: tuple[int, int], panel: PanelPlace
) -> None:
    settings = Settings(interface=InterfaceSettings(panel=panel))
    async with drive(size=size, n_draft_max=AUTO, settings=settings) as user:
        await user.open_chat()
        if size < PANEL_FROM[panel]:
            await user.press("f2")
        # This pair's template has no switches for thinking.
        controls = [one for one in user.chat.query(Knob) if one.display]
        assert len(controls) == 5
        await user.until(lambda: all(user.inside(one.region) for one in controls), "the controls")
        before = [one.region for one in controls]
        row = user.chat.query_one("#n_draft_max", Knob)

        for length in (0, 1, 2):
            row.action_step(1)
            await user.until(
                lambda n=length: user.chat.session.controls.n_draft_max == n, f"{length}"
            )
            await user.pilot.pause()
            assert [one.region for one in controls] == before
        await user.press("f3")
        await user.until(lambda: " Off " in user.text, "that it is off")
        await user.press("f3")
        await user.ask("hello")
        assert [one.region for one in controls] == before


async def test_after_a_click_on_a_control_typing_goes_to_the_prompt(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        row = user.chat.query_one("#n_draft_max", Knob)
        await user.pilot.click("#n_draft_max", offset=(row.render().plain.index("5"), 0))
        before = user.chat.session.controls
        assert before.n_draft_max == 5
        await user.type("a-b")
        assert user.prompt.text == "a-b"
        await user.click("#enabled")
        await user.until(lambda: not user.chat.session.controls.enabled, "speculation off")
        await user.type("c")
        assert user.prompt.text == "a-bc"
        assert user.chat.session.controls.n_draft_max == before.n_draft_max


async def test_a_knob_that_tab_reached_is_turned_by_its_keys_and_leaves_letters_to_the_prompt(
    drive: Drive,
) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.click("#more")
        await user.until(lambda: user.chat.query_one("#p_min").display, "what is behind more")
        user.chat.query_one("#p_min", Knob).focus()
        await user.press("right", "right")
        assert user.chat.session.controls.p_min == pytest.approx(0.1)
        await user.type("why")
        assert user.prompt.text == "why"
        assert user.prompt.has_focus
