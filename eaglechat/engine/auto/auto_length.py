"""The automatic draft length as the loop sees it: it may be wrong, but never ends a reply."""

from __future__ import annotations

from eaglechat.engine.auto.calibration import NOT_CALIBRATED, Calibration
from eaglechat.engine.auto.controller import Controller
from eaglechat.engine.auto.draft_plan import PLAIN, DraftPlan, Observation


class AutoLength:
    """A controller, behind a guard: whatever fails in it makes the rest of the reply plain.

    The next reply begins with a fresh one.
    """

    def __init__(self, calibration: Calibration = NOT_CALIBRATED) -> None:
        self._calibration = calibration
        self._controller: Controller | None = None
        self._failure: str | None = None

    def new_reply(self) -> None:
        """A reply begins: its ledger is empty."""
        self._failure = None
        try:
            if self._controller is None:
                self._controller = Controller(self._calibration)
            self._controller.new_reply()
        except Exception as error:
            self._fail(error)

    def expects_to_draft(self, n_past: int) -> bool:
        """Whether a reply after a prompt of this length will draft, as far as is known."""
        try:
            return self._controller is not None and self._controller.expects_to_draft(n_past)
        except Exception as error:
            self._fail(error)
            return False

    def choose(self, n_past: int, n_most: int, n_waiting: int, n_min: int = 0) -> DraftPlan:
        """The next round's plan, behind `n_past` tokens, `n_waiting` of which the draft has not
        taken in. No length but 0 is above `n_most`, what context and reply have room for, or
        below `n_min`.
        """
        if self._controller is None:
            return PLAIN
        try:
            return self._controller.choose(n_past, n_most, n_waiting, n_min)
        except Exception as error:
            self._fail(error)
            return PLAIN

    def observe(self, plan: DraftPlan, seen: Observation) -> None:
        """Learn from the round that followed `plan`."""
        if self._controller is None:
            return
        try:
            self._controller.observe(plan, seen)
        except Exception as error:
            self._fail(error)

    def failure(self) -> str | None:
        """What has failed since this was last asked."""
        failure, self._failure = self._failure, None
        return failure

    def _fail(self, error: Exception) -> None:
        self._controller = None
        self._failure = f"the automatic draft length failed: {type(error).__name__}: {error}"
