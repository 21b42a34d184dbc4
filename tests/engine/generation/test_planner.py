"""What a round drafts: n-grams first, then the draft model, within what is set or chosen."""

from __future__ import annotations

import pytest

from eaglechat.engine.auto.calibration import NOT_CALIBRATED, Calibration
from eaglechat.engine.auto.controller import Plan
from eaglechat.engine.auto.planner import Planner
from eaglechat.engine.drafters.guard import GuardedDrafters
from eaglechat.engine.drafters.ngram import look_up
from eaglechat.engine.drafters.proposal import Proposal
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import AutoReason

REPEATS = [1, 2, 3, 4, 5, 1, 2, 3]
FLAT = Calibration(verify=((1, 1.0), (17, 1.2)))
"""A batch of 17 rows takes hardly longer than one of 1."""


def planned(
    *, room: int = 9, calibration: Calibration = NOT_CALIBRATED, **speculation: object
) -> Plan:
    """The plan of a round behind `REPEATS` and 4, with n-grams and no draft model."""
    asked = Speculation(**{"ngram": True, **speculation})
    planner = Planner(GuardedDrafters((), can_draft=True), {"": calibration})
    planner.new_reply(asked, goes_on=False)

    def plan(room: int) -> Plan:
        found = look_up(REPEATS, 4, planner.look_up_limits(asked, room))
        return planner.choose(asked, found, len(REPEATS), room)

    assert not plan(0).taken
    return plan(room)


def test_all_that_n_grams_find_is_taken_at_a_length_that_is_set() -> None:
    plan = planned(n_draft_max=3)
    assert (plan.taken.ids, plan.n, plan.is_chosen) == ([5, 1, 2], 3, False)
    assert plan.taken.drafter == "ngram"
    assert planned(n_draft_max=3, room=2).taken.ids == [5, 1]


def test_an_automatic_length_takes_what_is_expected_to_pay() -> None:
    plan = planned(n_draft_max=AUTO, calibration=FLAT)
    assert plan.taken.ids == [5, 1, 2, 3, 4, 5, 1, 2, 3][: plan.n]
    assert plan.n > 1
    # Other work may have delayed the timing of rows that seem this dear: a single one is tried.
    dear = Calibration(verify=((1, 1.0), (17, 99.0)))
    plan = planned(n_draft_max=AUTO, calibration=dear)
    assert (len(plan.taken), plan.n) == (1, 1)


def test_only_a_reply_that_begins_is_first_decoded_plainly_to_time_that() -> None:
    asked = Speculation(n_draft_max=AUTO)
    planner = Planner(GuardedDrafters((), can_draft=True), {"": FLAT})
    reasons = []
    for goes_on in (False, True, False):
        planner.new_reply(asked, goes_on=goes_on)
        state = planner.choose(asked, Proposal(), 8, 9).state
        assert state is not None
        reasons.append(state.reason)
    assert reasons == [AutoReason.PLAIN_CHECK, AutoReason.BEST, AutoReason.PLAIN_CHECK]


@pytest.mark.parametrize(
    "speculation",
    [{"ngram": False}, {"n_min": 4}, {"p_min": 0.99}, {"enabled": False}, {"n_draft_max": 0}],
    ids=str,
)
def test_nothing_is_taken_that_the_settings_forbid(speculation: dict[str, object]) -> None:
    assert not planned(**{"n_draft_max": 3, **speculation}).taken
