"""Chooses what each round drafts, nothing included, from what rounds have cost and yielded.

With S_k = P(the k-th token of a draft is accepted) a round that drafts n tokens yields
E(n) = 1 + S_1 + .. + S_n tokens and takes T(n) = verify(n + 1) + draft(n), both by the shape of
the draft. The controller plays the arm, a length in a shape, of the largest E / T. Plain decoding,
n = 0, is one of them, and a ledger bounds what a reply may lose against it. What n-grams find is
judged on its own, round by round: it costs nothing but its rows.

Pure: times come in with each observation, and the same observations give the same choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eaglechat.engine.auto.acceptance import Acceptance, accept_rate
from eaglechat.engine.auto.calibration import NOT_CALIBRATED, Calibration
from eaglechat.engine.auto.costs import NOISE, Array, Costs, context_bucket
from eaglechat.engine.auto.draft_plan import CHAIN, TREE, Arm, Choice, DraftPlan, Observation
from eaglechat.engine.auto.yields import ChainYield, TreeYield, Yield
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, AutoDraft, AutoReason
from eaglechat.wire.trees import depths

LOSS_SHARE = 0.02
"""What a reply may lose against plain decoding, beside the dearest of its rounds."""
_UNSURE = 0.0025
"""The share of a reply's time that the ledger may be wrong by: what is booked are estimates."""
_CLEARLY = 1.03
"""How much faster another arm must be than the one in use: less is noise."""
_TRIAL_SHARE, _TRIAL_CREDIT = 0.005, 2.0
"""What trials may lose: this share of all time, and from the first so many plain tokens' time."""
_KNOWN_WELL = 0.02
"""Relative error of a plain token's time that many plain rounds leave."""
_MEASURES = (AutoReason.PLAIN_CHECK, AutoReason.EXPLORING)
"""Rounds whose times are to be learnt."""
_KEPT = 4
"""Rounds a plan is kept: thinking takes a tenth of a token's time on a GPU."""
_NOTHING = Arm(CHAIN, 0)


class Controller:
    """Learns over all replies of a loaded pair."""

    def __init__(self, calibration: Calibration = NOT_CALIBRATED) -> None:
        self._costs = Costs(calibration) if calibration.verify else None
        self._of_draft, self._of_lookups = Acceptance(), Acceptance()
        chain = ChainYield()
        self._yields: tuple[Yield, ...] = (chain, TreeYield(chain))
        self._arm = _NOTHING
        self._all_ms = self._tried_ms = 0.0
        self.new_reply()

    def new_reply(self) -> None:
        """A reply begins: its ledger is empty."""
        self._lost_ms = self._dearest_ms = self._plain_ms = 0.0
        self._begins = True
        self._plan: DraftPlan | None = None
        self._keep_for = self._unseen = 0

    def expects_to_draft(self, n_past: int, shapes: Sequence[int]) -> bool:
        """Whether a reply after a prompt of this length will draft, as far as is known."""
        if self._costs is None:
            return False
        self._look(self._costs, context_bucket(n_past), shapes)
        best = max(self._rates[shape, 1:].max() for shape in shapes)
        return bool(best > _CLEARLY * self._rates[_NOTHING])

    def choose(self, n_past: int, n_waiting: int, choice: Choice) -> DraftPlan:
        """The next round's plan, behind `n_past` tokens, `n_waiting` of which the draft has not
        taken in."""
        kept = self._plan if self._plan and choice.allows(self._plan) else None
        if kept and self._keep_for and self._bears(kept.arm, choice):
            self._keep_for -= 1
            return kept
        if self._costs is None:
            return self._unknown(choice)
        bucket = context_bucket(n_past)
        self._look(self._costs, bucket, choice.shapes)
        catch_up = self._costs.catch_up(n_waiting)
        arm, reason = self._choose(self._costs, bucket, catch_up, choice)
        plan = DraftPlan(arm.n, arm.shape, is_trial=reason is AutoReason.EXPLORING)
        if choice.plain:
            speeds = self._rates[list(choice.shapes), : choice.n_most + 1].max(axis=0)
            # A trial drafts all it may: what is to be learnt is what its width costs.
            needed = arm.n if plan.is_trial else choice.n_min
            plan = replace(
                plan,
                worth=self._worth(arm.n, needed, float(speeds.max())),
                by_probability=self._of_draft.by_probability(),
                state=self._state(arm, reason, speeds, self._costs.plain_error(bucket)),
            )
        self._plan = plan if reason is AutoReason.BEST else None
        self._keep_for = _KEPT if arm.n > 0 else 4 * _KEPT
        return plan

    def _unknown(self, choice: Choice) -> DraftPlan:
        """Before anything was measured."""
        if not choice.plain:
            return DraftPlan(choice.n_most, choice.shapes[0])
        return DraftPlan(0, state=AutoDraft(0, AutoReason.PLAIN_CHECK, (), 0.0, 0.0, 0.0))

    def _choose(
        self, costs: Costs, bucket: int, catch_up: float, choice: Choice
    ) -> tuple[Arm, AutoReason]:
        rates, arms = self._rates, choice.arms
        best, current = max(arms, key=rates.__getitem__), self._arm
        if current not in arms:
            current = arms[0]
        if rates[best] <= _CLEARLY * rates[current]:
            best = current
        self._arm = best
        begins, self._begins = self._begins, False
        trial = self._trial(costs.hoped(bucket), best, arms)
        if choice.plain:
            lead = float(rates[best] / rates[_NOTHING])
            # What plain decoding takes is known well enough if it cannot make up the lead.
            enough = NOISE if best.n == 0 else min(NOISE, max(_KNOWN_WELL, (lead - 1.0) / 2.0))
            unsure = max(best.n, trial.n) > 0 and costs.plain_error(bucket) > enough
            if unsure or begins:
                return _NOTHING, AutoReason.PLAIN_CHECK
        if trial != best and self._affords(trial, best, catch_up, choice):
            return trial, AutoReason.EXPLORING
        for n in range(best.n, 0, -1):
            arm = best._replace(n=n)
            pays = arm == best or (arm in arms and rates[arm] > _CLEARLY * rates[_NOTHING])
            if pays and self._bears(arm, choice, catch_up):
                return arm, AutoReason.BEST if arm == best else AutoReason.LEDGER
        return _NOTHING, AutoReason.BEST if best.n == 0 else AutoReason.LEDGER

    def _trial(self, verify: Array, best: Arm, arms: Sequence[Arm]) -> Arm:
        """An arm that, with such times, may be clearly better than the best known one, which it
        else is. Out of plain decoding the shortest: of a draft that fails, one token is all that
        is learnt."""
        full = np.ones(N_DRAFT_MAX_LIMIT)
        times = np.stack([_times(verify, drafting, full) for drafting in self._drafting])
        hoped = _speeds([of.chances(deviations=1.0) for of in self._looked_at], times)
        bar = _CLEARLY * self._rates[best]
        better = [arm for arm in arms if arm != best and arm.n > 0 and hoped[arm] > bar]
        if better and best.n == 0:
            return better[0]
        return max(better, key=hoped.__getitem__, default=best)

    def _affords(self, arm: Arm, best: Arm, catch_up: float, choice: Choice) -> bool:
        loss = float(self._times[arm] * (1.0 - self._rates[arm] / self._rates[best])) + catch_up
        budget = _TRIAL_SHARE * self._all_ms + _TRIAL_CREDIT * self._times[_NOTHING]
        return bool(self._tried_ms + loss <= budget) and self._bears(arm, choice, catch_up)

    def _bears(self, arm: Arm, choice: Choice, catch_up: float = 0.0) -> bool:
        """Whether the ledger bears a round of this arm that yields a single token."""
        if arm.n == 0 or not choice.plain:
            return True
        return self._bears_loss(self._loss(arm) + catch_up)

    def _bears_loss(self, loss: float) -> bool:
        return self._lost_ms + loss <= self._allowed_ms(loss) - _UNSURE * self._plain_ms

    def _loss(self, arm: Arm) -> float:
        """What a round of this arm takes more than a plain one."""
        return float(self._times[arm] - self._times[_NOTHING])

    def worth_taking(self, plan: DraftPlan, found: Sequence[float]) -> DraftPlan | None:
        """A plan to verify tokens that were looked up, with these probabilities, in place of the
        one made, or None where that is not expected to be faster: they cost but their rows."""
        if self._costs is None or plan.state is None or plan.state.reason in _MEASURES:
            return None
        rates = [accept_rate(self._of_lookups.by_probability(), p) for p in found]
        tokens = 1.0 + np.cumsum(np.cumprod(rates))
        speeds = tokens / self._verify[1 : len(rates) + 1]
        n = int(speeds.argmax()) + 1
        pays = speeds[n - 1] > _CLEARLY * self._rates[plan.arm]
        if not pays or not self._bears_loss(float(self._verify[n] - self._verify[0])):
            return None
        state = replace(plan.state, n=n, shape="chain", reason=AutoReason.LOOKED_UP)
        return DraftPlan(n, state=state, is_looked_up=True)

    def _allowed_ms(self, loss: float) -> float:
        """What may be lost once a round of this loss is made, which may be the dearest."""
        return LOSS_SHARE * self._plain_ms + max(loss, self._dearest_ms)

    def observe(self, plan: DraftPlan, seen: Observation) -> None:
        """Learn from the round that followed `plan`, and book it."""
        if self._costs is None:
            self._costs = Costs(Calibration(verify=((1, seen.verify_ms),)))
        self._unseen += 1
        n_tested = min(seen.n_right + 1, len(seen.found), seen.n_tokens)
        for place, probability in enumerate(seen.found[:n_tested]):
            self._of_lookups.note(probability, place < seen.n_right)
        if plan.n == 0 and plan is self._plan and self._keep_for > 0:
            # Plain rounds are all alike: the last of them speaks for the others.
            return
        rounds, self._unseen = self._unseen, 0
        costs, bucket, n_drafted = self._costs, context_bucket(seen.n_past), len(seen.probabilities)
        costs.see_verify(n_drafted + 1, bucket, seen.verify_ms)
        verify = costs.verify(bucket)
        if plan.n == 0:
            for of_shape in self._yields:
                of_shape.age(rounds)
        # What it should have taken: a delay that befell this round is not the draft's.
        took = float(verify[n_drafted])
        if plan.n > 0 and not plan.is_looked_up:
            took += self._learn_draft(costs, plan, seen)
        as_plain = (seen.n_tokens + rounds - 1) * float(verify[0])
        self._all_ms += as_plain
        if plan.is_trial:
            self._tried_ms += max(0.0, took - seen.n_tokens / float(self._rates[self._arm]))
        if plan.state is not None:
            self._plain_ms += as_plain
        if plan.state is not None and plan.n > 0:
            self._dearest_ms = max(self._dearest_ms, took - float(verify[0]))
            self._lost_ms += took - as_plain

    def _learn_draft(self, costs: Costs, plan: DraftPlan, seen: Observation) -> float:
        """The milliseconds that drafting should have taken."""
        n_drafted, depth = len(seen.probabilities), max(depths(seen.parents), default=0)
        # A draft that ended by itself took a step to find out.
        steps, n_siblings = depth + (n_drafted < plan.n), n_drafted - depth
        costs.see_draft(steps, seen.n_waiting, seen.draft_ms, n_siblings)
        self._yields[plan.shape].note(plan.n, seen)
        for probability, accepted in seen.tested:
            self._of_draft.note(probability, accepted)
        return costs.of_draft(steps, seen.n_waiting, n_siblings)

    def _look(self, costs: Costs, bucket: int, shapes: Sequence[int]) -> None:
        """Work out what to expect of each arm: milliseconds, and tokens a millisecond."""
        self._looked_at = self._yields[: max(shapes) + 1]
        self._verify = costs.verify(bucket)
        self._drafting = [costs.draft(of.depths()) for of in self._looked_at]
        self._times = np.stack(
            [
                _times(self._verify, drafting, of.kept())
                for of, drafting in zip(self._looked_at, self._drafting, strict=True)
            ]
        )
        self._rates = _speeds([of.chances() for of in self._looked_at], self._times)

    def _worth(self, n: int, needed: int, best: float) -> tuple[float, ...]:
        """For each draft token, after those needed anyway, the least chance that pays for
        verifying it, where so many tokens a millisecond can be had. It need not pay for a step
        in the costs all by itself: the tokens behind it share that."""
        verify = self._verify[: n + 1]
        further = [
            float(((verify[k + 1 :] - verify[k]) / np.arange(1, n - k + 1)).min()) for k in range(n)
        ]
        return (0.0,) * needed + tuple(best * ms for ms in further[needed:])

    def _state(self, arm: Arm, reason: AutoReason, speeds: Array, plain_error: float) -> AutoDraft:
        speeds[arm.n] = self._rates[arm]
        tokens_per_second = tuple(round(speed * 1000.0, 1) for speed in speeds.tolist())
        return AutoDraft(
            n=arm.n,
            reason=reason,
            tokens_per_second=tokens_per_second,
            plain_error=round(tokens_per_second[0] * 2.0 * plain_error, 1),
            lost_ms=round(self._lost_ms, 1),
            allowed_ms=round(self._allowed_ms(self._loss(arm)), 1),
            shape="tree" if arm.shape == TREE else "chain",
        )


def _times(verify: Array, draft: Array, kept: Array) -> Array:
    """Milliseconds of a round by draft length; `kept` is P(a further token is drafted)."""
    reached = np.concatenate(([1.0], np.cumprod(kept)))
    further = reached[1:] * np.diff(verify) + reached[:-1] * np.diff(draft)
    return np.concatenate((verify[:1], verify[0] + np.cumsum(further)))


def _speeds(chances: Sequence[Array], times: Array) -> Array:
    """Tokens a millisecond by shape and draft length."""
    tokens = np.stack([np.concatenate(([1.0], 1.0 + np.cumsum(of_shape))) for of_shape in chances])
    speeds: Array = tokens / times
    return speeds
