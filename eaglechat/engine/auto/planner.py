"""Decides what each round drafts, and learns from what came of it.

Who chooses the length: the settings, if they name one. If they say "auto", `controller` does; a
fault in it makes the rest of the reply plain, never ends it, and the next reply has a fresh one.
Each draft model has a controller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from eaglechat.engine.auto.calibration import NOT_CALIBRATED, Calibration
from eaglechat.engine.auto.controller import Allowed, Controller, Plan, Seen, shapes_open
from eaglechat.engine.auto.kept import Kept
from eaglechat.engine.drafters.base import MOST_WAITING
from eaglechat.engine.drafters.guard import GuardedDrafters
from eaglechat.engine.drafters.proposal import Limits, Proposal
from eaglechat.wire.gain import GainOfRounds
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import NGRAM, Round, ms_since

T = TypeVar("T")

_FIRST_CHECK = 2
"""Rounds before the first check."""
_APART = 4
"""The fewest rounds between two checks."""
_SHARE_APART = 1 / 8
"""A check is due after this share of the rounds, however small the error: the machine may be slower
by now."""
_ENOUGH = 0.025
"""The error of the speed-up, as a share of it, below which the checks become rare."""
_MOST_LOST = 0.02
"""What checks may cost: this share of the reply's time, beside the first check."""


class Planner:
    """Plans the rounds of all replies of a loaded pair."""

    def __init__(
        self,
        drafters: GuardedDrafters,
        calibrations: Mapping[str, Calibration],
        kept: Kept | None = None,
    ) -> None:
        """`calibrations` are by the name of a draft model; empty stands for n-grams alone. `kept`
        has what earlier starts have learnt; None starts from nothing."""
        self._drafters = drafters
        self._calibrations = calibrations
        self._kept, self._recalls = kept, kept is not None
        self._controllers: dict[str, Controller] = {}
        """What auto has learnt, by the name of the draft model in use."""
        self._checks = PlainChecks()
        self._has_failed = False

    def new_reply(self, want: Speculation, *, goes_on: bool) -> None:
        """A reply begins, or goes on and keeps its ledger."""
        self._has_failed = False
        # What an earlier reply has not told is not of this one.
        self._drafters.failure()
        self._checks = PlainChecks(goes_on=goes_on)
        self._drafters.new_reply(want)
        if not goes_on:
            self._ask(Controller.new_reply, None)

    def catch_up(self) -> None:
        """Have the draft model take in the rows that plain rounds have left it, if they are many,
        and cheap."""
        drafters = self._drafters
        n_waiting = drafters.waiting
        if n_waiting > MOST_WAITING and self._ask(lambda one: one.affords_rows, False):
            began = time.perf_counter()
            drafters.take_in()
            n_taken, ms = n_waiting - drafters.waiting, ms_since(began)
            self._ask(lambda one: one.observe_rows(n_taken, ms), None)

    def look_up_limits(self, want: Speculation, room: int) -> Limits:
        """Bounds of what n-grams may propose, if there is room for `room` tokens."""
        n_max = room if want.n_draft_max == AUTO else min(want.n_draft_max, room)
        is_on = self._drafters.on and (want.ngram or want.drafter == NGRAM)
        return Limits(n_max if is_on else 0, want.n_min, want.p_min)

    def choose(self, want: Speculation, found: Proposal, n_past: int, room: int) -> Plan:
        """The plan of a round behind `n_past` tokens that has room for `room` drafted ones, and for
        which n-grams `found` something or nothing.

        With an automatic length: the length and shape that are expected to be fastest, or as much
        of what n-grams found as pays. With a length that is set: all that n-grams found, else a
        draft of this length, in the shape that is expected to be faster. With either, now and then
        nothing, to measure plain decoding.
        """
        drafters, nothing = self._drafters, Plan(0)
        if not drafters.on:
            return nothing
        n_waiting, n_most = drafters.waiting, min(room, drafters.longest)
        shapes = shapes_open(want.shape, drafters.grows_trees)
        if want.n_draft_max == AUTO:
            if self._checks.is_due(None):
                return self._ask(Controller.plain_check, Plan(0, is_plain_check=True))
            allowed = Allowed(n_most, want.n_min, shapes)
            plan = self._ask(lambda one: one.choose(n_past, n_waiting, allowed), nothing)
            if found:
                instead = self._ask(lambda one: one.worth_taking(plan, found), None)
                if instead is not None and instead.n >= want.n_min:
                    return instead
            return plan
        if self._checks.is_due(want.n_draft_max):
            return Plan(0, is_plain_check=True)
        n_most = min(want.n_draft_max, n_most)
        plan = Plan(n_most, shapes[0])
        if len(shapes) > 1 and n_most > 1:
            allowed = Allowed(n_most, n_most, shapes, plain=False)
            plan = self._ask(lambda one: one.choose(n_past, n_waiting, allowed), Plan(n_most))
        return Plan(len(found), taken=found, is_chosen=plan.is_chosen) if found else plan

    def observe(self, seen: Seen) -> None:
        # The times of a round in which a drafter failed say nothing about others.
        if seen.plan.is_chosen and not self._drafters.has_failed:
            self._ask(lambda one: one.observe(seen), None)
        self._checks.add(seen.round)

    def keep(self) -> None:
        """Keep on disk what was learnt of the draft model in use."""
        learnt = self._ask(Controller.learnt, None)
        if self._kept is not None and learnt is not None:
            self._kept.keep(self._drafters.model_name, learnt)

    def _ask(self, question: Callable[[Controller], T], otherwise: T) -> T:
        """What the controller of the draft model in use answers; `otherwise` once one has failed in
        this reply."""
        if self._has_failed:
            return otherwise
        name = self._drafters.model_name
        try:
            if name not in self._controllers:
                calibration = self._calibrations.get(name, NOT_CALIBRATED)
                learnt = self._kept.recall(name) if self._kept and self._recalls else None
                self._controllers[name] = Controller(calibration, learnt)
            return question(self._controllers[name])
        except Exception as error:
            self._controllers.pop(name, None)
            self._has_failed, self._recalls = True, False
            why = f"the automatic draft length failed: {type(error).__name__}: {error}"
            self._drafters.note_failure(why)
            return otherwise


class PlainChecks:
    """When a reply that drafts decodes a round plainly, to measure what plain decoding takes. It
    decides from the rounds of the reply since its draft length was last set by hand.

    The screen says of each reply how many times as fast as plain decoding it is. That is measured
    in the reply itself, as the machine is now and in this context, so some of its rounds are plain:
    two beside each other, as only the second one is a measurement (`wire/gain.py`). There is no
    clock here: the same rounds lead to the same checks.
    """

    def __init__(self, *, goes_on: bool = False) -> None:
        """A reply that goes on had its first check before."""
        self._goes_on = goes_on
        self._length: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._gain = GainOfRounds()
        self._rounds = self._since = self._tokens = self._checks = 0
        self._ms = self._checks_ms = 0.0
        self._plain = 0
        self._is_half_done = False
        """The first round of a check was the last one."""

    def add(self, round_: Round) -> None:
        if round_.length_by_hand != self._length:
            self._length = round_.length_by_hand
            self._begin()
        ms = round_.timings.total_ms
        self._gain.add(len(round_.tokens), ms, round_.plain_ms)
        self._rounds += 1
        self._since = 0 if round_.is_plain else self._since + 1
        self._is_half_done = round_.is_plain_check and not self._is_half_done
        self._plain += round_.is_plain
        if round_.is_plain_check:
            self._checks += 1
            self._checks_ms += ms
        else:
            self._tokens += len(round_.tokens)
            self._ms += ms

    def is_due(self, length: int | None) -> bool:
        """Whether the next round is to be plain, if this length is set by hand; None: auto."""
        if length != self._length or not self._tokens:
            return False
        if self._is_half_done:
            return True
        if not self._plain:
            return self._rounds >= _FIRST_CHECK and (not self._goes_on or self._is_affordable())
        if self._since < _APART:
            return False
        known = self._gain.gain()
        error = known.error / known.speed_up if known and known.error else 1.0
        is_due = error > _ENOUGH or self._since >= _SHARE_APART * self._rounds
        return is_due and self._is_affordable()

    def _is_affordable(self) -> bool:
        """Whether one more check, of two rounds, keeps what they cost within bounds: their time
        without that of their tokens at the pace of the other rounds."""
        pace = self._ms / self._tokens
        n = self._checks
        each = self._checks_ms / n if n else self._ms / (self._rounds - n)
        return (n + 2) * max(0.0, each - pace) <= _MOST_LOST * (self._ms + self._checks_ms)
