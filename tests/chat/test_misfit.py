"""A draft that fits its target badly is said to, once, and others never."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglechat.chat.refusals import misfit
from eaglechat.wire.stats import DrafterStats, of_the_draft
from tests.chat.headless import Headless
from tests.tui.scripted_reports import pair_info

WARNING = "made for another model than this target, or was converted to read the wrong layers"


@pytest.mark.parametrize(
    ("rounds", "accepted", "is_said"),
    [(99, 0, False), (100, 0, True), (100, 4, True), (100, 5, False), (1000, 49, True)],
)
def test_less_than_five_percent_of_a_hundred_rounds_is_said(
    rounds: int, accepted: int, is_said: bool
) -> None:
    info = pair_info("target.gguf", "draft.gguf", None)
    said = misfit(DrafterStats(rounds, 3 * rounds, rounds + accepted, accepted), info)
    assert (said is not None) == is_said
    if said:
        assert f"{accepted} were accepted in {rounds} rounds" in said
        assert "(2, 15, 27)" in said


def test_what_n_grams_found_says_nothing_of_the_draft() -> None:
    bad, found = DrafterStats(100, 100, 100, 0), DrafterStats(900, 900, 900, 900)
    assert of_the_draft({"eagle3": bad, "ngram": found}) == bad
    assert of_the_draft({}) == DrafterStats()


def test_a_chat_says_it_once(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.engine.accepted_of_each_round = (0,)
    chat.engine.reply = "so it goes on and on and on " * 10
    chat.ask("Does it fit?")
    assert not any(WARNING in shown for shown in chat.shown)
    chat.ask("And now?")
    (said,) = [shown for shown in chat.shown if WARNING in shown]
    assert said.startswith("warning: ")
    chat.ask("And now?")
    assert sum(WARNING in shown for shown in chat.shown) == 1
