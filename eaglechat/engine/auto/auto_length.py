"""The automatic draft length as the loop sees it: it may fail, but never ends a reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from eaglechat.engine.auto.calibration import NOT_CALIBRATED, Calibration
from eaglechat.engine.auto.controller import Controller
from eaglechat.engine.auto.draft_plan import PLAIN, Choice, DraftPlan, Observation

T = TypeVar("T")


class AutoLength:
    """A controller behind a guard: whatever fails in it makes the rest of the reply plain, and
    the next reply begins with a fresh one."""

    def __init__(self, calibration: Calibration = NOT_CALIBRATED) -> None:
        self._calibration = calibration
        self._controller: Controller | None = None
        self._failure: str | None = None
        self._off = False

    def new_reply(self) -> None:
        """A reply begins: its ledger is empty."""
        self._off = False
        self._guarded(lambda controller: controller.new_reply(), None)

    def expects_to_draft(self, n_past: int, shapes: Sequence[int]) -> bool:
        """Whether a reply after a prompt of this length will draft, as far as is known."""
        return self._guarded(lambda controller: controller.expects_to_draft(n_past, shapes), False)

    def choose(self, n_past: int, n_waiting: int, choice: Choice) -> DraftPlan:
        """The next round's plan, behind `n_past` tokens, `n_waiting` of which the draft has not
        taken in."""
        return self._guarded(lambda controller: controller.choose(n_past, n_waiting, choice), PLAIN)

    def worth_taking(self, plan: DraftPlan, found: Sequence[float]) -> DraftPlan | None:
        """As of the controller."""
        return self._guarded(lambda controller: controller.worth_taking(plan, found), None)

    def observe(self, plan: DraftPlan, seen: Observation) -> None:
        """Learn from the round that followed `plan`."""
        self._guarded(lambda controller: controller.observe(plan, seen), None)

    def failure(self) -> str | None:
        """What has failed since this was last asked."""
        failure, self._failure = self._failure, None
        return failure

    def _guarded(self, ask: Callable[[Controller], T], otherwise: T) -> T:
        if self._off:
            return otherwise
        try:
            if self._controller is None:
                self._controller = Controller(self._calibration)
            return ask(self._controller)
        except Exception as error:
            self._controller, self._off = None, True
            self._failure = f"the automatic draft length failed: {type(error).__name__}: {error}"
            return otherwise
