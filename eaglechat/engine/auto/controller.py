"""Chooses the draft length of each round, none included, from what rounds have cost and yielded.

With a_j = P(draft token j accepted | those before it were) and S_j their products, a round of
draft length n yields E(n) = 1 + S_1 + .. + S_n tokens and takes T(n) = verify(n + 1) + draft(n).
The controller plays the n of the largest E(n) / T(n). Plain decoding, n = 0, is one of them, and
a ledger bounds what a reply may lose against it.

Pure: times come in with each observation, and the same observations give the same choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eaglechat.engine.auto.acceptance import Acceptance, accept_rate
from eaglechat.engine.auto.calibration import NOT_CALIBRATED, Calibration
from eaglechat.engine.auto.costs import NOISE, Array, Costs, context_bucket
from eaglechat.engine.auto.draft_plan import DraftPlan, Observation
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, AutoDraft, AutoReason

LOSS_SHARE = 0.02
"""What a reply may lose against plain decoding, beside the dearest of its rounds."""
_CLEARLY = 1.03
"""How much faster another length must be than the one in use: less is noise."""
_TRIAL_SHARE, _TRIAL_CREDIT = 0.005, 2.0
"""What trials may lose: this share of all time, and from the first so many plain tokens' time."""
_MEASURES = (AutoReason.PLAIN_CHECK, AutoReason.EXPLORING)
"""Rounds whose times are to be learnt."""
_KEPT = 4
"""Rounds a plan is kept: thinking takes a tenth of a token's time on a GPU."""


class Controller:
    """Learns over all replies of a loaded pair."""

    def __init__(self, calibration: Calibration = NOT_CALIBRATED) -> None:
        self._costs = Costs(calibration) if calibration.verify else None
        self._acceptance, self._of_lookups = Acceptance(), Acceptance()
        self._n = 0
        self._all_ms = self._tried_ms = 0.0
        self.new_reply()

    def new_reply(self) -> None:
        """A reply begins: its ledger is empty."""
        self._lost_ms = self._dearest_ms = self._plain_ms = 0.0
        self._begins = True
        self._plan: DraftPlan | None = None
        self._keep_for = self._unseen = 0

    def expects_to_draft(self, n_past: int) -> bool:
        """Whether a reply after a prompt of this length will draft, as far as is known."""
        if self._costs is None:
            return False
        self._look(self._costs, context_bucket(n_past), N_DRAFT_MAX_LIMIT)
        return bool(self._rates[1:].max() > _CLEARLY * self._rates[0])

    def choose(self, n_past: int, n_most: int, n_waiting: int, n_min: int = 0) -> DraftPlan:
        """The next round's plan. `n_most` is what context and reply have room for."""
        kept, lengths = self._plan, range(max(n_min, 1), n_most + 1)
        if kept and self._keep_for and (kept.n == 0 or kept.n in lengths) and self._bears(kept.n):
            self._keep_for -= 1
            return kept
        if self._costs is None:
            return DraftPlan(0, state=AutoDraft(0, AutoReason.PLAIN_CHECK, (), 0.0, 0.0, 0.0))
        bucket = context_bucket(n_past)
        self._look(self._costs, bucket, n_most)
        n, reason = self._choose(self._costs, bucket, self._costs.catch_up(n_waiting), lengths)
        # A trial drafts all it may: what is to be learnt is what its width costs.
        needed = n if reason is AutoReason.EXPLORING else n_min
        state = self._state(n, reason, self._costs.plain_error(bucket))
        plan = DraftPlan(n, self._worth(n, needed), self._acceptance.by_probability(), state)
        self._plan = plan if reason is AutoReason.BEST else None
        self._keep_for = _KEPT if n > 0 else 4 * _KEPT
        return plan

    def _choose(
        self, costs: Costs, bucket: int, catch_up: float, lengths: Sequence[int]
    ) -> tuple[int, AutoReason]:
        rates = self._rates
        best, current = max((0, *lengths), key=rates.__getitem__), self._n
        if current not in lengths:
            current = 0
        if rates[best] <= _CLEARLY * rates[current]:
            best = current
        self._n = best
        begins, self._begins = self._begins, False
        trial = self._trial(costs.hoped(bucket), best, lengths)
        lead = float(rates[best] / rates[0])
        # What plain decoding takes is known well enough if it cannot make up the lead.
        enough = NOISE if best == 0 else min(NOISE, (lead - 1.0) / 2.0)
        unsure = max(best, trial) > 0 and costs.plain_error(bucket) > enough
        if unsure or begins:
            return 0, AutoReason.PLAIN_CHECK
        if trial > 0 and self._affords(trial, best, catch_up):
            return trial, AutoReason.EXPLORING
        for n in range(best, 0, -1):
            pays = n == best or (n in lengths and rates[n] > _CLEARLY * rates[0])
            if pays and self._bears(n, catch_up):
                return n, AutoReason.BEST if n == best else AutoReason.LEDGER
        return 0, AutoReason.BEST if best == 0 else AutoReason.LEDGER

    def _trial(self, verify: Array, best: int, lengths: Sequence[int]) -> int:
        """A length that, with such times, may be clearly better than the best known one, or 0. Out
        of plain decoding the shortest: of a draft that fails, one token is all that is learnt."""
        times = _times(verify, self._drafting, np.ones(N_DRAFT_MAX_LIMIT))
        hoped = _rates(self._acceptance.expected(deviations=1.0), times)
        bar = _CLEARLY * self._rates[best]
        better = [n for n in lengths if n != best and hoped[n] > bar]
        return better[0] if better and best == 0 else max(better, key=hoped.__getitem__, default=0)

    def _affords(self, n: int, best: int, catch_up: float) -> bool:
        loss = float(self._times[n] * (1.0 - self._rates[n] / self._rates[best])) + catch_up
        budget = _TRIAL_SHARE * self._all_ms + _TRIAL_CREDIT * self._times[0]
        return bool(self._tried_ms + loss <= budget) and self._bears(n, catch_up)

    def _bears(self, n: int, catch_up: float = 0.0) -> bool:
        """Whether the ledger bears a round of this length that yields a single token."""
        return n == 0 or self._bears_loss(float(self._times[n] - self._times[0]) + catch_up)

    def _bears_loss(self, loss: float) -> bool:
        return self._lost_ms + loss <= self._allowed_ms(loss)

    def worth_taking(self, plan: DraftPlan, found: Sequence[float]) -> DraftPlan | None:
        """A plan to verify tokens that were looked up, with these probabilities, in place of the
        one made, or None where that is not expected to be faster: they cost but their rows."""
        if self._costs is None or plan.state is None or plan.state.reason in _MEASURES:
            return None
        rates = [accept_rate(self._of_lookups.by_probability(), p) for p in found]
        tokens = 1.0 + np.cumsum(np.cumprod(rates))
        speeds = tokens / self._verify[1 : len(rates) + 1]
        n = int(speeds.argmax()) + 1
        pays = speeds[n - 1] > _CLEARLY * self._rates[plan.n]
        if not pays or not self._bears_loss(float(self._verify[n] - self._verify[0])):
            return None
        state = replace(plan.state, n=n, reason=AutoReason.LOOKED_UP)
        return DraftPlan(n, state=state)

    def _allowed_ms(self, loss: float) -> float:
        """What may be lost once a round of this loss is made, which may be the dearest."""
        return LOSS_SHARE * self._plain_ms + max(loss, self._dearest_ms)

    def observe(self, plan: DraftPlan, seen: Observation) -> None:
        """Learn from the round that followed `plan`, and book it."""
        if self._costs is None:
            self._costs = Costs(Calibration(verify=((1, seen.verify_ms),)))
        self._unseen += 1
        if seen.found:
            n_tested = min(seen.n_right + 1, len(seen.found), seen.n_tokens)
            self._of_lookups.note(len(seen.found), seen.found, n_tested, seen.n_right)
        if plan.n == 0 and plan is self._plan and self._keep_for > 0:
            # Plain rounds are all alike: the last of them speaks for the others.
            return
        rounds, self._unseen = self._unseen, 0
        costs, bucket, n_drafted = self._costs, context_bucket(seen.n_past), len(seen.probabilities)
        costs.see_verify(n_drafted + 1, bucket, seen.verify_ms)
        verify = costs.verify(bucket)
        plain_ms = (seen.n_tokens + rounds - 1) * float(verify[0])
        self._plain_ms += plain_ms
        self._all_ms += plain_ms
        if plan.n == 0:
            self._acceptance.age(rounds)
            return
        # What it should have taken: a delay that befell this round is not the draft's.
        took = float(verify[n_drafted])
        if not plan.is_looked_up:
            steps = n_drafted + (n_drafted < plan.n)
            costs.see_draft(steps, seen.n_waiting, seen.draft_ms)
            self._acceptance.note(plan.n, seen.probabilities, seen.n_tested, seen.n_accepted)
            took += float(costs.draft()[steps]) + costs.catch_up(seen.n_waiting)
        self._dearest_ms = max(self._dearest_ms, took - float(verify[0]))
        self._lost_ms += took - plain_ms
        if plan.state is not None and plan.state.reason is AutoReason.EXPLORING:
            best = self._rates[min(self._n, len(self._rates) - 1)]
            self._tried_ms += max(0.0, took - seen.n_tokens / float(best))

    def _look(self, costs: Costs, bucket: int, n_most: int) -> None:
        """Work out what to expect of each length: milliseconds, and tokens a millisecond."""
        self._verify, self._drafting = costs.verify(bucket), costs.draft()
        self._times = _times(self._verify, self._drafting, self._acceptance.kept())[: n_most + 1]
        self._rates = _rates(self._acceptance.expected(), self._times)

    def _worth(self, n: int, needed: int) -> tuple[float, ...]:
        """For each draft token, after those needed anyway, the least survival that pays for
        verifying it."""
        worth = self._rates.max() * np.diff(self._verify)[:n]
        worth[:needed] = 0.0
        return tuple(worth.tolist())

    def _state(self, n: int, reason: AutoReason, plain_error: float) -> AutoDraft:
        speeds = tuple(round(rate * 1000.0, 1) for rate in self._rates.tolist())
        return AutoDraft(
            n=n,
            reason=reason,
            tokens_per_second=speeds,
            plain_error=round(speeds[0] * 2.0 * plain_error, 1),
            lost_ms=round(self._lost_ms, 1),
            allowed_ms=round(self._allowed_ms(float(self._times[n] - self._times[0])), 1),
        )


def _times(verify: Array, draft: Array, kept: Sequence[float] | Array) -> Array:
    """Milliseconds of a round by draft length; `kept` is P(a further token is drafted)."""
    reached = np.concatenate(([1.0], np.cumprod(kept)))
    further = reached[1:] * np.diff(verify) + reached[:-1] * np.diff(draft)
    return np.concatenate((verify[:1], verify[0] + np.cumsum(further)))


def _rates(accepted: Sequence[float], times: Array) -> Array:
    """Tokens a millisecond by draft length."""
    tokens = np.concatenate(([1.0], 1.0 + np.cumsum(np.cumprod(accepted))))
    return tokens[: len(times)] / times
