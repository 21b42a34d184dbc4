"""The automatic draft length: turned on and off, and what the panel says of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eaglechat.settings.model import Settings
from eaglechat.tui.widgets.panel.measures import StatusLine
from eaglechat.wire import protocol
from eaglechat.wire.protocol import AUTO
from eaglechat.wire.records import DraftShape
from tests.tui.driving import Driver

Drive = Callable[..., Driver]


def lengths_asked_for(user: Driver) -> list[object]:
    sets = user.engine.requests(protocol.Set)
    return [request.n_draft_max for request in sets if isinstance(request, protocol.Set)]


async def test_auto_goes_on_and_off_in_the_middle_of_a_reply(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("hello", rounds=2)
        await user.command("chat.auto")
        assert user.chat.session.controls.n_draft_max == AUTO
        # The scripted choices are 0, 3, 3, 5 by the number of the round.
        await user.more_rounds(2)
        await user.command("chat.auto")
        assert user.chat.session.controls.n_draft_max == 5
        await user.command("chat.auto")
        await user.press("f8")
        assert lengths_asked_for(user) == [AUTO, 5, AUTO, 6]
        await user.command("chat.auto")
        user.engine.budget = None
        await user.idle()
        await user.ask("again", rounds=0)
        chat = user.engine.requests(protocol.Chat)[-1]
        assert chat.speculation.n_draft_max == AUTO


async def test_the_row_of_lengths_has_the_choice_and_the_context_says_why(drive: Drive) -> None:
    async with drive(n_draft_max=AUTO) as user:
        await user.open_chat()
        await user.ask("hello", rounds=2)
        await user.sees("[auto] 0 1 2 <3> 4")
        whys = [
            "chain of 3, expected fastest",
            "chain of 5, exploring",
            "chain of 2, drafts lost time",
            "plain, to measure it",
        ]
        for rounds, why in zip((0, 2, 2, 1), whys, strict=True):
            await user.more_rounds(rounds)
            await user.command("chat.context")
            await user.sees(why)
            await user.sees("ms allowed behind plain decoding")
            await user.press("escape")


@pytest.mark.parametrize(("shape", "said"), [("chain", "auto 5"), ("tree", "auto 5 tree")])
async def test_the_status_line_names_what_auto_chose(
    drive: Drive, shape: DraftShape, said: str
) -> None:
    async with drive(size=(80, 24), n_draft_max=AUTO) as user:
        user.engine.auto_shape = shape
        await user.open_chat()
        await user.ask("hello", rounds=4)
        status = user.chat.query_one(StatusLine)
        await user.until(lambda: f"length {said}   F7- F8+" in status.render().plain, "the choice")
        await user.more_rounds(3)
        await user.until(lambda: "length auto plain" in status.render().plain, "a plain round")


async def test_a_target_that_stays_with_chains_says_why_when_a_tree_is_asked_for(
    drive: Drive,
) -> None:
    trees = Settings().with_value("speculation", "shape", "tree")
    async with drive(settings=trees) as user:
        user.engine.chains_only = "the target is a hybrid model"
        await user.open_chat()
        await user.sees("This pair cannot draft trees: the target is a hybrid model.")
        await user.ask("/shape auto")
        await user.sees("shape has no effect: the target is a hybrid model.")
