"""Decides what each round drafts, and learns from what came of it.

A round is a straight line (`Generator._round`): `look_up` asks n-grams, `choose` makes a plan of
what they found, the draft model drafts if the plan says so, the target verifies, `learn` is told.

Who chooses the length: the settings, if they name one. If they say "auto", `auto.controller` does;
a fault in it makes the rest of the reply plain, never ends it, and the next reply has a fresh one.
Each draft model has a controller, and `new_reply` compares them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from eaglechat.engine.auto.calibration import NOT_CALIBRATED, Calibration
from eaglechat.engine.auto.controller import CLEARLY, Controller
from eaglechat.engine.auto.draft_plan import TREE, Allowed, DraftPlan, Observation, shapes_open
from eaglechat.engine.drafters.base import Limits, Proposal
from eaglechat.engine.generation.context_window import common_prefix
from eaglechat.engine.generation.guarded_drafters import GuardedDrafters
from eaglechat.engine.generation.plain_checks import PlainChecks
from eaglechat.engine.generation.reply import Verdict
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import NGRAM, AutoReason, Round

T = TypeVar("T")

_NOTHING = Proposal()
_DRAFT_NOTHING = Limits(0)


@dataclass(frozen=True)
class RoundPlan:
    """What one round drafts."""

    n_draft_max: int
    """The draft length in force, for the record; 0 while speculation is off."""
    limits: Limits = _DRAFT_NOTHING
    """Bounds of what the draft model proposes."""
    found: Proposal = _NOTHING
    """What n-grams found."""
    taken: Proposal = _NOTHING
    """The part of it that is verified. If this is empty, the draft model is asked."""
    auto: DraftPlan | None = None
    """The controller's plan; None if nothing was left to choose."""
    n_past: int = 0
    """Tokens in the KV cache before the round."""
    n_waiting: int = 0
    """Rows that the draft model had not taken in before the round."""
    is_plain_check: bool = False
    """Nothing is drafted, to measure plain decoding."""


class Planner:
    """Plans the rounds of all replies of a loaded pair."""

    def __init__(self, drafters: GuardedDrafters, calibrations: Mapping[str, Calibration]) -> None:
        """`calibrations` are by the name of a draft model; empty stands for n-grams alone."""
        self._drafters = drafters
        self._calibrations = calibrations
        self._controllers: dict[str, Controller] = {}
        """What auto has learnt, by the name of the draft model in use."""
        self._fastest = ""
        """The draft model that auto chose last; empty for the first."""
        self._checks = PlainChecks()
        self._has_failed = False
        self._failure: str | None = None

    def new_reply(
        self,
        speculation: Speculation,
        n_past: int,
        n_again: Callable[[int], int],
        *,
        goes_on: bool = False,
    ) -> None:
        """A reply to a prompt of `n_past` tokens begins, or goes on and keeps its ledger. `n_again`
        says how many of these the target decodes again for a draft model that has seen the first so
        many."""
        self._has_failed = False
        self._checks = PlainChecks(goes_on=goes_on)
        self._drafters.new_reply(speculation, self._fastest_model(speculation, n_past, n_again))
        if not goes_on:
            self._ask(lambda controller: controller.new_reply(), None)

    def _fastest_model(
        self, speculation: Speculation, n_past: int, n_again: Callable[[int], int]
    ) -> str:
        """The draft model that auto chooses; empty for the first. A model that has to catch up is
        chosen if it is faster nevertheless. With a length that is set, nothing is learnt that could
        be compared, so the latest choice stands."""
        models = self._drafters.to_choose_from if speculation.n_draft_max == AUTO else ()
        if speculation.drafter != AUTO or not models:
            return self._fastest
        ms: dict[str, float] = {}
        for model in models:
            shapes = shapes_open(speculation.shape, model.grows_trees)
            hoped = partial(
                Controller.hoped_ms, n_past=n_past, n_again=n_again(model.known), shapes=shapes
            )
            ms[model.name] = self._ask(hoped, math.inf, of=model.name)
        fastest = min(ms, key=ms.__getitem__)
        if ms[fastest] * CLEARLY < ms.get(self._fastest or models[0].name, math.inf):
            self._fastest = fastest
        return self._fastest

    def will_draft(self, speculation: Speculation, n_past: int) -> bool:
        """Whether a reply behind `n_past` tokens is expected to draft."""
        if not self._drafters.on:
            return False
        if speculation.n_draft_max != AUTO:
            return speculation.n_draft_max > 0
        shapes = shapes_open(speculation.shape, self._drafters.grows_trees)
        return self._ask(lambda controller: controller.expects_to_draft(n_past, shapes), False)

    def look_up(self, n_past: int, id_last: int, room: int, speculation: Speculation) -> Proposal:
        """What n-grams find to follow `id_last`, as far as there is room."""
        length = speculation.n_draft_max
        n_max = room if length == AUTO else min(length, room)
        is_on = speculation.ngram or speculation.drafter == NGRAM
        limits = Limits(n_max if is_on else 0, speculation.n_min, speculation.p_min)
        return self._drafters.look_up(n_past, id_last, limits)

    def choose(
        self, found: Proposal, n_past: int, room: int, speculation: Speculation
    ) -> RoundPlan:
        """The plan of a round behind `n_past` tokens that has room for `room` drafted ones.

        With an automatic length: the length and shape that are expected to be fastest, or as much
        of what n-grams found as pays. With a length that is set: all that n-grams found, else a
        draft of this length, in the shape that is expected to be faster. With either, now and then
        nothing, to measure plain decoding.
        """
        drafters, n_min = self._drafters, speculation.n_min
        if not drafters.on:
            return RoundPlan(0)
        n_waiting = drafters.waiting
        shapes = shapes_open(speculation.shape, drafters.grows_trees)
        n_most = min(room, drafters.longest)
        by_hand = None if speculation.n_draft_max == AUTO else speculation.n_draft_max
        if self._checks.is_due(by_hand):
            check = self._ask(Controller.plain_check, DraftPlan(0)) if by_hand is None else None
            nothing = (_DRAFT_NOTHING, found, _NOTHING)
            return RoundPlan(by_hand or 0, *nothing, check, n_past, n_waiting, is_plain_check=True)
        if by_hand is None:
            allowed = Allowed(n_most, n_min, shapes)
            auto = self._ask(lambda one: one.choose(n_past, n_waiting, allowed), DraftPlan(0))
            taken = _NOTHING
            if found:
                probabilities = found.probabilities
                instead = self._ask(lambda one: one.worth_taking(auto, probabilities), None)
                if instead is not None and instead.n >= n_min:
                    auto, taken = instead, Proposal(found[: instead.n])
            is_worth = auto.keeps if auto.worth else None
            is_tree = auto.shape == TREE
            limits = Limits(auto.n, n_min, speculation.p_min, is_worth, is_tree=is_tree)
            is_check = auto.state is not None and auto.state.reason is AutoReason.PLAIN_CHECK
            return RoundPlan(auto.n, limits, found, taken, auto, n_past, n_waiting, is_check)
        length, shape, chosen = by_hand, shapes[0], None
        n_most = min(length, n_most)
        if len(shapes) > 1 and n_most > 1:
            allowed = Allowed(n_most, n_most, shapes, plain=False)
            chosen = self._ask(lambda one: one.choose(n_past, n_waiting, allowed), DraftPlan(0))
            shape = chosen.shape
            if found:
                chosen = DraftPlan(len(found), is_looked_up=True)
        limits = Limits(n_most, n_min, speculation.p_min, is_tree=shape == TREE)
        return RoundPlan(length, limits, found, found, chosen, n_past, n_waiting)

    def learn(
        self, plan: RoundPlan, proposal: Proposal, verdict: Verdict, draft_ms: float, rest_ms: float
    ) -> None:
        """A round took `draft_ms` until its proposal was made, and then `rest_ms`."""
        auto = plan.auto
        # The times of a round in which a drafter failed say nothing about others.
        if auto is None or self._drafters.has_failed:
            return
        seen = Observation(
            n_past=plan.n_past,
            n_waiting=plan.n_waiting,
            probabilities=tuple(proposal.probabilities),
            parents=tuple(proposal.parents),
            path=verdict.path,
            n_tested=verdict.n_tested,
            n_tokens=len(verdict.tokens),
            draft_ms=draft_ms,
            verify_ms=rest_ms,
            found=tuple(plan.found.probabilities),
            n_right=common_prefix(plan.found.ids, [token.id for token in verdict.tokens]),
        )
        self._ask(lambda controller: controller.observe(auto, seen), None)

    def count(self, round_: Round) -> None:
        """This round was written; plain checks are planned by those of the reply."""
        self._checks.add(round_)

    def failure(self) -> str | None:
        """What has failed since this was last asked."""
        failure, self._failure = self._failure, None
        return failure

    def _ask(self, question: Callable[[Controller], T], otherwise: T, of: str | None = None) -> T:
        """What the controller of a draft model answers, by default of the one in use; `otherwise`
        once one has failed in this reply."""
        if self._has_failed:
            return otherwise
        name = self._drafters.model_name if of is None else of
        try:
            if name not in self._controllers:
                calibration = self._calibrations.get(name, NOT_CALIBRATED)
                self._controllers[name] = Controller(calibration)
            return question(self._controllers[name])
        except Exception as error:
            self._controllers.pop(name, None)
            self._has_failed = True
            self._failure = f"the automatic draft length failed: {type(error).__name__}: {error}"
            return otherwise
