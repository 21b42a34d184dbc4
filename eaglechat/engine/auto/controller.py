"""Chooses what each round drafts, from the costs and the acceptance of the rounds before it.

Let S_k be the chance that the k-th token of a draft is accepted. A round that drafts n tokens
writes E(n) = 1 + S_1 + .. + S_n tokens on average and takes T(n) = verify(n + 1) + draft(n)
milliseconds; both depend on the shape. An arm is a length in a shape, and the controller plays the
arm with the largest E / T. Plain decoding is the arm n = 0. A ledger bounds what a reply may lose
against plain decoding. What n-grams find costs only its rows in the verify batch, so it is judged
separately, in each round.

There is no clock and no chance here: times come with the observations, and the same observations
lead to the same choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import numpy as np

from eaglechat.engine.auto.acceptance import (
    AcceptanceByProbability,
    ChainAcceptance,
    TreeAcceptance,
    tested,
)
from eaglechat.engine.auto.calibration import NOT_CALIBRATED, Calibration
from eaglechat.engine.auto.costs import NOISE, Array, Costs, context_bucket
from eaglechat.engine.auto.kept import Learnt
from eaglechat.engine.drafters.proposal import Draws, Limits, Proposal, probability_step
from eaglechat.engine.sequences import common_prefix
from eaglechat.wire.protocol import Shape, Speculation
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, AutoDraft, AutoReason, Round

LOSS_SHARE = 0.02
"""A reply may fall behind plain decoding by this share of its time, plus the extra time of its one
most expensive round."""
_AHEAD_TOKENS = 128
"""A reply may lose at its beginning what so many plain tokens would let it lose, less what earlier
ones lost beyond their share: else one rejected draft would end drafting until the reply is long."""
_UNSURE = 0.0025
"""The ledger holds estimates, which may be wrong by this share of the reply's plain decoding
time."""
_CLEARLY = 1.03
"""Another arm replaces the one in use if it is expected to be this many times as fast: less is
noise."""
_TRIAL_SHARE, _TRIAL_CREDIT = 0.005, 1.5
"""The time that trials may lose: this share of the time of all replies, plus a starting credit of
this many plain tokens."""
_ROWS_SHARE = 0.005
"""What the draft model's taking in of the rows of plain rounds may cost: this share of their
time."""
_KNOWN_WELL = 0.02
"""Relative standard error of a plain token's time after many plain rounds."""
_MEASURES = (AutoReason.PLAIN_CHECK, AutoReason.EXPLORING)
"""Rounds that are made to learn what they cost; n-grams do not replace them."""
_EARLY_TOKENS, _EARLY_LOOK_UP = 100, 3
"""In so many plain tokens' time from its beginning, a reply takes no more looked-up tokens a round:
the rows of a long wrong guess would cost a short reply more than `LOSS_SHARE`."""
_KEPT, _KEPT_PLAIN = 4, 64
"""Rounds for which a plan is kept, and for which it is kept where plain decoding is the fastest:
making one takes about a millisecond. In 64 rounds the credit for trials grows by a third of a plain
token."""
_WORTH_KEEPING = 32
"""After so many rounds, what was learnt is kept on disk again."""
CHAIN, TREE = 0, 1
_NOTHING = Proposal()


def shapes_open(wanted: Shape, grows_trees: bool) -> tuple[int, ...]:
    """The shapes that drafts may have under the setting `wanted`."""
    if wanted == "chain" or not grows_trees:
        return (CHAIN,)
    return (TREE,) if wanted == "tree" else (CHAIN, TREE)


class Arm(NamedTuple):
    """One of the things a round may draft: `n` tokens in a shape."""

    shape: int
    n: int


@dataclass(frozen=True)
class Plan:
    """At most `n` tokens in a shape, and which of them are worth verifying."""

    n: int
    shape: int = CHAIN
    taken: Proposal = _NOTHING
    """Tokens that n-grams found, which are verified instead of a draft's."""
    worth: tuple[float, ...] = ()
    by_probability: tuple[float, ...] = ()
    """Both as in `Limits`."""
    is_chosen: bool = False
    """Whether the controller chose it, and learns from the round."""
    state: AutoDraft | None = None
    """What the choice rests on, for the screen; None if the length was not chosen."""
    is_trial: bool = False
    is_plain_check: bool = False
    """Whether nothing is drafted to measure plain decoding."""

    @property
    def arm(self) -> Arm:
        return Arm(self.shape, self.n)

    def limits(self, want: Speculation, draws: Draws | None = None) -> Limits:
        """Bounds of what the draft model proposes, and what it may draw with."""
        return Limits(
            self.n,
            want.n_min,
            want.p_min,
            self.worth,
            self.by_probability,
            is_tree=self.shape == TREE,
            # A short draft is dropped for what its tokens lead to: those must not be drawn.
            draws=draws if want.n_min <= 1 else None,
        )


@dataclass(frozen=True)
class Allowed:
    """What a round may draft: `n_min` to `n_most` tokens, or none."""

    n_most: int
    """Limited by the context, the reply and the drafter."""
    n_min: int = 0
    shapes: tuple[int, ...] = (CHAIN,)
    plain: bool = True
    """Whether the round may also draft nothing. If not, there is no ledger against plain
    decoding."""

    @property
    def arms(self) -> list[Arm]:
        """Shortest first. Chain and tree of one token are the same."""
        plain = [Arm(CHAIN, 0)] if self.plain else []
        lengths = range(max(self.n_min, 1), self.n_most + 1)
        return plain + [
            Arm(shape, n) for n in lengths for shape in self.shapes[: None if n > 1 else 1]
        ]

    def includes(self, plan: Plan) -> bool:
        """Whether a plan that was made for an earlier round is still allowed."""
        if (plan.state is not None) is not self.plain:
            return False
        shapes = self.shapes[: None if plan.n > 1 else 1]
        is_allowed = max(self.n_min, 1) <= plan.n <= self.n_most and plan.shape in shapes
        return is_allowed or (plan.n == 0 and self.plain)


@dataclass(frozen=True)
class Seen:
    plan: Plan
    round: Round
    proposal: Proposal
    """What was verified."""
    found: Proposal
    """What n-grams had found, taken or not."""
    n_waiting: int
    """The rows that waited for the draft model before the round."""
    draft_ms: float
    """Of the round's time, what went by until its proposal was made."""


_PLAIN = Arm(CHAIN, 0)


class Controller:
    """Learns from all replies of a loaded pair."""

    def __init__(
        self, calibration: Calibration = NOT_CALIBRATED, learnt: Learnt | None = None
    ) -> None:
        """`learnt` is from an earlier start. Raises ValueError if it is of other drafts."""
        self._costs = Costs(calibration, learnt) if calibration.verify else None
        self._in_one_pass = calibration.in_one_pass
        self._of_draft, self._of_lookups = AcceptanceByProbability(), AcceptanceByProbability()
        chain = ChainAcceptance()
        tree = TreeAcceptance(chain)
        self._by_shape = chain, tree
        self._counts = [self._of_draft, self._of_lookups, *chain.counts, *tree.counts]
        if learnt is not None:
            for counts, (sums, tries) in zip(self._counts, learnt.counts, strict=True):
                counts.recall(sums, tries)
                counts.scale(learnt.certainty)
        self.affords_rows = True
        """Whether the draft model may take in the rows of plain rounds, which are of use only if
        drafting pays again before the reply ends."""
        self._row_ms = 0.0
        """The least that taking in a row has taken; 0 until it was timed."""
        self._rounds = 0
        """Rounds since what was learnt was last asked for."""
        self._plain_rounds = 0
        """Plain rounds by which what is known of acceptance has yet to age."""
        self._arm = _PLAIN
        self._state = AutoDraft(0, AutoReason.PLAIN_CHECK, (), 0.0, 0.0)
        """What the latest choice rests on."""
        self._all_ms = self._tried_ms = 0.0
        self._lost_ms = self._plain_ms = self._owed_ms = 0.0
        self.new_reply()

    def new_reply(self) -> None:
        """A reply begins, with an empty ledger. What earlier replies have lost beyond their share,
        it may not lose in advance."""
        self._owed_ms = max(0.0, self._owed_ms + self._lost_ms - LOSS_SHARE * self._plain_ms)
        self._lost_ms = self._dearest_ms = self._plain_ms = 0.0
        self._begins = True
        self._plan: Plan | None = None
        self._keep_for = 0

    def learnt(self) -> Learnt | None:
        """What to keep for the next start; None if it is hardly more than what was kept last."""
        if self._costs is None or self._rounds < _WORTH_KEEPING:
            return None
        self._rounds = 0
        verify, doubts, draft = map(_rounded, self._costs.learnt())
        counts = tuple((_rounded(one.sums), _rounded(one.tries)) for one in self._counts)
        return Learnt(counts, verify, doubts, draft)

    def choose(self, n_past: int, n_waiting: int, allowed: Allowed) -> Plan:
        """The plan of the next round, behind `n_past` tokens. The draft model has yet to take in
        `n_waiting` rows."""
        kept = self._plan if self._plan and allowed.includes(self._plan) else None
        if kept and self._keep_for and self._bears(kept.arm, allowed):
            self._keep_for -= 1
            return kept
        costs, bucket = self._costs, context_bucket(n_past)
        if costs is None:
            # Nothing was measured yet.
            if not allowed.plain:
                return Plan(allowed.n_most, allowed.shapes[0], is_chosen=True)
            return self.plain_check()
        self._forecast(costs, bucket, allowed.shapes)
        arm, reason = self._choose(costs, bucket, costs.catch_up(n_waiting), allowed)
        plan = Plan(
            arm.n,
            arm.shape,
            is_chosen=True,
            is_trial=reason is AutoReason.EXPLORING,
            is_plain_check=reason is AutoReason.PLAIN_CHECK,
        )
        if allowed.plain:
            speeds = self._rates[list(allowed.shapes), : allowed.n_most + 1].max(axis=0)
            # A trial is not cut short: it is made to learn what its width costs.
            needed = arm.n if plan.is_trial else allowed.n_min
            worth = self._worth(arm.n, needed, float(speeds.max()))
            speeds[arm.n] = self._rates[arm]
            tokens_per_second = tuple(round(speed * 1000.0, 1) for speed in speeds.tolist())
            state = AutoDraft(
                n=arm.n,
                reason=reason,
                tokens_per_second=tokens_per_second,
                lost_ms=round(self._lost_ms, 1),
                allowed_ms=round(self._allowed_ms(self._loss(arm)), 1),
                shape="tree" if arm.shape == TREE else "chain",
            )
            self._state = state
            by_probability = self._of_draft.by_probability()
            plan = replace(plan, worth=worth, by_probability=by_probability, state=state)
        self._plan = plan if reason in (AutoReason.BEST, AutoReason.LEDGER) else None
        self._keep_for = _KEPT_PLAIN if self._arm.n == 0 else _KEPT
        return plan

    def observe_rows(self, n_taken: int, ms: float) -> None:
        """The draft model took in rows without drafting."""
        if n_taken > 0:
            row_ms = ms / n_taken
            self._row_ms = min(row_ms, self._row_ms or row_ms)

    def plain_check(self) -> Plan:
        """A plan to draft nothing in the next round, whatever is expected to be faster."""
        reason = AutoReason.PLAIN_CHECK
        state = msgspec.structs.replace(self._state, n=0, shape="chain", reason=reason)
        return Plan(0, is_chosen=True, state=state, is_plain_check=True)

    def _choose(
        self, costs: Costs, bucket: int, catch_up: float, allowed: Allowed
    ) -> tuple[Arm, AutoReason]:
        rates, arms = self._rates, allowed.arms
        best, current = max(arms, key=rates.__getitem__), self._arm
        if current not in arms:
            current = arms[0]
        if rates[best] <= _CLEARLY * rates[current]:
            best = current
        self._arm = best
        begins, self._begins = self._begins, False
        trial = self._trial(best, arms)
        if allowed.plain:
            lead = float(rates[best] / rates[_PLAIN])
            # Where drafting leads clearly, a rough estimate of plain decoding is enough.
            enough = NOISE if best.n == 0 else min(NOISE, max(_KNOWN_WELL, (lead - 1.0) / 2.0))
            unsure = max(best.n, trial.n) > 0 and costs.plain_error(bucket) > enough
            if unsure or begins:
                return _PLAIN, AutoReason.PLAIN_CHECK
        if trial != best and self._affords(trial, best, catch_up, allowed):
            return trial, AutoReason.EXPLORING
        for n in range(best.n, 0, -1):
            arm = best._replace(n=n)
            pays = arm == best or (arm in arms and rates[arm] > _CLEARLY * rates[_PLAIN])
            if pays and self._bears(arm, allowed, catch_up):
                return arm, AutoReason.BEST if arm == best else AutoReason.LEDGER
        return _PLAIN, AutoReason.BEST if best.n == 0 else AutoReason.LEDGER

    def _trial(self, best: Arm, arms: Sequence[Arm]) -> Arm:
        """The arm to try next, or `best` if there is none.

        An arm is worth a trial if it would clearly beat `best` under optimistic assumptions: verify
        times one standard error lower (`_hoped`), acceptance one standard error higher. While plain
        decoding is best, the shortest such arm is tried: a draft whose first token is rejected
        teaches nothing about the others. Otherwise it is the one with the most tokens a
        millisecond.
        """
        full = np.ones(N_DRAFT_MAX_LIMIT)
        times = np.stack([_times(self._hoped, drafting, full) for drafting in self._drafting])
        hoped = _speeds([of.chances(deviations=1.0) for of in self._in_play], times)
        bar = _CLEARLY * self._rates[best]
        better = [arm for arm in arms if arm != best and arm.n > 0 and hoped[arm] > bar]
        if better and best.n == 0:
            return better[0]
        return max(better, key=hoped.__getitem__, default=best)

    def _affords(self, arm: Arm, best: Arm, catch_up: float, allowed: Allowed) -> bool:
        """Whether the credit for trials and the ledger bear that a trial of `arm` instead of `best`
        writes only one token."""
        loss = float(self._times[arm] - 1.0 / self._rates[best]) + catch_up
        budget = _TRIAL_SHARE * self._all_ms + _TRIAL_CREDIT * self._times[_PLAIN]
        if self._tried_ms + loss > budget:
            return False
        if best.n > 0 and allowed.plain:
            # What may be lost in advance is for drafts of the best length.
            return self._lost_ms + self._loss(arm) + catch_up <= LOSS_SHARE * self._plain_ms
        return self._bears(arm, allowed, catch_up)

    def _bears(self, arm: Arm, allowed: Allowed, catch_up: float = 0.0) -> bool:
        """Whether the ledger can bear that a round of this arm writes only one token."""
        if arm.n == 0 or not allowed.plain:
            return True
        return self._bears_loss(self._loss(arm) + catch_up)

    def _bears_loss(self, loss: float) -> bool:
        """Whether the ledger can bear a round that loses this many milliseconds."""
        return self._lost_ms + loss <= self._allowed_ms(loss) - _UNSURE * self._plain_ms

    def _loss(self, arm: Arm) -> float:
        return float(self._times[arm] - self._times[_PLAIN])

    def worth_taking(self, plan: Plan, found: Proposal) -> Plan | None:
        """A plan to verify the first of the tokens that n-grams found instead of following `plan`;
        None if that is not expected to be clearly faster. They cost no drafting, only their rows in
        the verify batch."""
        if self._costs is None or plan.state is None or plan.state.reason in _MEASURES:
            return None
        if self._plain_ms < _EARLY_TOKENS * self._verify[0]:
            found = found.first(_EARLY_LOOK_UP)
        by_probability = self._of_lookups.by_probability()
        rates = [by_probability[probability_step(p)] for p in found.probabilities]
        tokens = 1.0 + np.cumsum(np.cumprod(rates))
        # Where they do not pay as far as is known, their rows may be cheaper than that: no other
        # trial times these widths.
        for verify in (self._verify, self._hoped):
            speeds = tokens / verify[1 : len(rates) + 1]
            n = int(speeds.argmax()) + 1
            pays = speeds[n - 1] > _CLEARLY * self._rates[plan.arm]
            if pays and self._bears_loss(float(self._verify[n] - self._verify[0])):
                reason = AutoReason.LOOKED_UP
                state = msgspec.structs.replace(plan.state, n=n, shape="chain", reason=reason)
                return Plan(n, taken=found.first(n), is_chosen=True, state=state)
        return None

    def _allowed_ms(self, loss: float) -> float:
        """Milliseconds that the reply may have lost after a round that loses `loss`."""
        ahead = LOSS_SHARE * _AHEAD_TOKENS * float(self._times[_PLAIN]) - self._owed_ms
        # Else a chat of short replies would lose a round in each.
        earned = max(LOSS_SHARE * self._plain_ms, ahead) + min(0.0, ahead)
        return earned + max(loss, self._dearest_ms)

    def observe(self, seen: Seen) -> None:
        plan, round_, found = seen.plan, seen.round, seen.found
        verify_ms = round_.timings.total_ms - seen.draft_ms
        n_drafted, n_tokens = len(round_.drafted), len(round_.tokens)
        if self._costs is None:
            self._costs = Costs(Calibration(verify=((1, verify_ms),)))
        if found:
            n_right = common_prefix(found.ids, [token.id for token in round_.tokens])
            n_tested = min(n_right + 1, len(found), n_tokens)
            for place, probability in enumerate(found.probabilities[:n_tested]):
                self._of_lookups.note(probability, place < n_right)
        self._plain_rounds += plan.n == 0
        if plan.n == 0 and plan is self._plan and self._keep_for > 0:
            # All rounds of a kept plain plan are alike: only the last is learnt from.
            self._count(plan, float(self._verify[0]))
            return
        costs, bucket = self._costs, context_bucket(round_.n_past - 1 - round_.n_accepted)
        costs.see_verify(n_drafted + 1, bucket, verify_ms)
        verify = costs.verify(bucket)
        if plan.n == 0:
            for of_shape in self._by_shape:
                of_shape.age(self._plain_rounds)
            self._plain_rounds = 0
        # Expected, not measured, times: a delay by other work is not the fault of drafting.
        took = float(verify[n_drafted])
        if plan.n > 0 and not plan.taken:
            # A draft that ended early took one step more to find out that it should, or all of
            # them, if they were one pass.
            steps = plan.n if self._in_one_pass else round_.depth + (n_drafted < plan.n)
            n_siblings = n_drafted - round_.depth
            costs.see_draft(steps, seen.n_waiting, seen.draft_ms, n_siblings)
            self._by_shape[plan.shape].note(plan.n, round_)
            for probability, accepted in tested(round_, seen.proposal):
                self._of_draft.note(probability, accepted)
            took += costs.of_draft(steps, seen.n_waiting, n_siblings)
        as_plain = n_tokens * float(verify[0])
        self._count(plan, as_plain)
        if plan.is_trial:
            self._tried_ms += max(0.0, took - n_tokens / float(self._rates[self._arm]))
        if plan.state is not None and plan.n > 0:
            self._dearest_ms = max(self._dearest_ms, took - float(verify[0]))
            self._lost_ms += took - as_plain

    def _count(self, plan: Plan, plain_ms: float) -> None:
        """Count a round whose tokens take plain decoding `plain_ms`."""
        self._rounds += 1
        self._all_ms += plain_ms
        if plan.state is not None:
            self._plain_ms += plain_ms

    def _forecast(self, costs: Costs, bucket: int, shapes: Sequence[int]) -> None:
        """Compute the expected milliseconds, and tokens a millisecond, of each arm."""
        self._in_play = self._by_shape[: max(shapes) + 1]
        self._verify, self._hoped = costs.verify(bucket), costs.hoped(bucket)
        self.affords_rows = self._row_ms <= _ROWS_SHARE * self._verify[0]
        self._drafting = [costs.draft(of.depths()) for of in self._in_play]
        self._times = np.stack(
            [
                _times(self._verify, drafting, of.kept(), in_one_pass=self._in_one_pass)
                for of, drafting in zip(self._in_play, self._drafting, strict=True)
            ]
        )
        self._rates = _speeds([of.chances() for of in self._in_play], self._times)

    def _worth(self, n: int, needed: int, best: float) -> tuple[float, ...]:
        """For each of `n` draft tokens, the lowest chance of acceptance that pays for verifying it,
        if `best` tokens a millisecond can be had; 0 for the first `needed` tokens, which are always
        verified. Verify times rise in steps, so the cost of one more row is the lowest mean cost
        per row over this and the rows behind it, which share a step."""
        verify = self._verify[: n + 1]
        further = [
            float(((verify[k + 1 :] - verify[k]) / np.arange(1, n - k + 1)).min()) for k in range(n)
        ]
        return (0.0,) * needed + tuple(best * ms for ms in further[needed:])


def _rounded(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(round(float(value), 4) for value in values)


def _times(verify: Array, draft: Array, kept: Array, *, in_one_pass: bool = False) -> Array:
    """Expected milliseconds of a round by draft length from 0 on. `kept` is P(token is drafted |
    all before it were) by length from 1 on."""
    reached = np.concatenate(([1.0], np.cumprod(kept)))
    looked_at = np.ones(len(kept)) if in_one_pass else reached[:-1]
    further = reached[1:] * np.diff(verify) + looked_at * np.diff(draft)
    return np.concatenate((verify[:1], verify[0] + np.cumsum(further)))


def _speeds(chances: Sequence[Array], times: Array) -> Array:
    """Expected tokens a millisecond by shape and draft length."""
    tokens = np.stack([np.concatenate(([1.0], 1.0 + np.cumsum(of_shape))) for of_shape in chances])
    speeds: Array = tokens / times
    return speeds
