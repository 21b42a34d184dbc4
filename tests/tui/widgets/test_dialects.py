"""Every dialect of reasoning on the screen: streaming, stopped in mid-thought, reopened."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eaglechat.engine.templates.template import ChatTemplate
from tests.engine.templates import dialects
from tests.engine.templates.test_two_turns import FAMILIES, Family
from tests.tui.driving import Driver
from tests.tui.scripted import ScriptedEngine
from tests.tui.widgets.transcript_app import shown_in

Drive = Callable[..., Driver]

QUICK = ("forced", "harmony", "blocks")
"""One whose prompt opens the thought, one that marks the answer too, one whose prompts keep
thoughts. The slow tests have them all."""
THOUGHT = "Two and two are " + "one more than three, which is " * 9 + "four."


@pytest.fixture
def markers(engine: ScriptedEngine, family: Family) -> list[str]:
    """What the dialect writes and nobody should see; the engine is made to write it."""
    template = ChatTemplate(dialects.source(family.name), bos="<s>", eos="</s>")
    engine.dialect = template.dialect
    raw = family.raw.replace("Two, two.", f" {THOUGHT} ").replace("4", " That makes 4 in all.")
    # The script has no prompt that could open the reasoning.
    engine.reply = template.dialect.opens * (family.name == "forced") + raw
    return [marker for marker in template.dialect.markers if marker.strip()]


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(one, id=one.name, marks=[pytest.mark.slow] * (one.name not in QUICK))
        for one in FAMILIES
    ],
)
async def test_a_dialect_streams_is_stopped_and_is_reopened(
    drive: Drive, markers: list[str]
) -> None:
    async with drive(size=(80, 24)) as user:
        await user.open_chat()
        await user.ask("2 + 2?", rounds=6)
        await user.sees("~ Two and two are")
        assert "▸ thought" not in user.text
        await user.press("escape")
        await user.idle()
        await user.sees("▸ thought for")
        await user.sees("stopped")
        assert user.messages[-1].content == ""
        half = user.messages[-1].reasoning.strip()
        assert len(half) > 20
        assert THOUGHT.startswith(half)

        await user.ask("2 + 2, again?")
        await user.sees("That makes 4 in all.")
        assert user.messages[-1].reasoning.strip() == THOUGHT
        assert user.messages[-1].content.strip() == "That makes 4 in all."
        before = user.messages

        await user.command("chat.new", "chats.open")
        await user.sees("1 chat ")
        await user.press("enter")
        await user.sees("That makes 4 in all.")
        assert user.messages == before
        assert [one.reply.is_folded for one in shown_in(user.chat.transcript, "thought")] == [
            True,
            True,
        ]
        await user.command("chat.thought")
        await user.sees("Two and two are")
        assert not any(marker in user.text for marker in markers)
