"""Chooses the draft length of each round, none included, from what rounds have cost and yielded.

With a_j = P(draft token j accepted | those before it were) and S_j their products, a round of
draft length n yields E(n) = 1 + S_1 + .. + S_n tokens and takes T(n) = verify(n + 1) + draft(n).
The controller plays the n of the largest E(n) / T(n). Plain decoding, n = 0, is one of them, and
a ledger bounds what a reply may lose against it.

Pure: times come in with each observation, and the same observations give the same choices.
"""

from __future__ import annotations

from eaglechat.engine.auto.acceptance import Acceptance
from eaglechat.engine.auto.calibration import CALIBRATED_DRAFT, NOT_CALIBRATED, Calibration
from eaglechat.engine.auto.costs import CostTable, DraftCost, RobustMean, context_bucket
from eaglechat.engine.auto.draft_plan import (
    DraftPlan,
    Observation,
    Outlook,
    round_times,
    token_rates,
)
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, AutoDraft, AutoReason

LOSS_SHARE = 0.02
"""What a reply may lose against plain decoding, beside the dearest of its rounds."""

_EXPLORE_SHARE = 0.005
_EXPLORE_CREDIT = 4.0
"""Explorations may lose this many plain tokens' time, and `_EXPLORE_SHARE` of all time."""
_EXPLORE_GAP = 2
_HOPE = 1.05
_MOST_DOUBT, _DOUBT_GROWS_OVER = 0.5, 256.0
"""Standard deviations that acceptance may be better yet, after so many rounds without a trial."""
_HYSTERESIS = 1.03
_CLEARLY_BETTER = 1.15
_DWELL = 12
"""Choices before a small lead changes the length."""
_LEARNING = 48
"""Rounds of a pair before a plan may be kept."""
_KEEP_DRAFTING, _KEEP_PLAIN, _KEEP_HOPELESS = 4, 8, 64
"""Rounds a plan is kept: thinking again costs as much as a tenth of a token on a GPU. Longest where
no draft may pay, as nothing is learnt of drafts until one is tried."""
_LEARN_EVERY, _LEARN_EVERY_HOPELESS = 2, 16
"""Plain rounds of a plan that is kept, of which one is learnt from: they are all alike."""
_CONSIDERED = 0.6
_SURE_TO_BEGIN = 2.0
"""How far drafting must be ahead to begin a reply: how an answer begins is guessed half as often as
how it goes on."""
_PLAIN_EVERY = 64
_FAR_FROM_PLAIN = 1.3
_PROBES = 4
_PLAIN_EVERY_AT_FIRST = 8
_PLAIN_RECHECK = 4
_PLAIN_SURPRISE = 0.2
_PLAIN_DOUBT = 0.05
_FIRST_DRAFT_STEP = 0.1
"""A draft step's cost before any was timed, in units of a plain token's."""
_FIRST_ROW_SHARE = 0.1
"""A row's share of a step's cost in a catch-up, before one was timed."""
_USUAL_WAITING = 3
"""Rows waiting for the draft after a verified one; what more there are is a catch-up."""


class Controller:
    """Learns over all replies of a loaded pair."""

    def __init__(self, calibration: Calibration = NOT_CALIBRATED) -> None:
        self._verify = CostTable(N_DRAFT_MAX_LIMIT + 1)
        self._draft = DraftCost()
        self._catch_up = RobustMean()
        self._start_from(calibration)
        self._acceptance = Acceptance()
        self._n = 0
        self._dwelt = 0
        self._plain_surprised = False
        self._now: Outlook | None = None
        self._kept: DraftPlan | None = None
        self._keep_for = 0
        self._learn_every = _LEARN_EVERY
        self._hopeless = False
        """Whether the last choice found that no other length may be better."""
        self._since_exploring = _EXPLORE_GAP
        self._probed = self._probes_left = 0
        self._explored_ms = 0.0
        self._total_ms = 0.0
        self.new_reply()

    def _start_from(self, calibration: Calibration) -> None:
        for width, ms in calibration.verify:
            self._verify.calibrate(width, ms)
        if calibration.draft is not None:
            self._draft.add(CALIBRATED_DRAFT, calibration.draft)
        if calibration.catch_up_row is not None:
            self._catch_up.add(calibration.catch_up_row)

    def new_reply(self) -> None:
        """A reply begins: its ledger is empty."""
        self._lost_ms = self._dearest_ms = 0.0
        self._plain_ms = 0.0
        self._unbooked = 0
        self._kept = None
        self._begins = True
        self._acceptance.new_reply()

    def expects_to_draft(self, n_past: int) -> bool:
        """Whether a reply after a prompt of this length will draft, as far as is known."""
        bucket = context_bucket(n_past)
        if not self._verify.expected(bucket):
            return False
        rates = self._outlook(bucket, N_DRAFT_MAX_LIMIT).rates
        return max(rates[1:]) > _HYSTERESIS * rates[0]

    def choose(self, n_past: int, n_most: int, n_waiting: int, n_min: int = 0) -> DraftPlan:
        """The next round's plan. `n_most` is what context and reply have room for."""
        kept = self._kept
        if kept is not None and self._keep_for > 0 and kept.n <= n_most and self._bears(kept):
            self._keep_for -= 1
            return kept
        self._hopeless = False
        plan = self._choose(n_past, n_most, n_waiting)
        if 0 < plan.n < n_min:
            plan = self._plan(0, AutoReason.BEST, self._now, context_bucket(n_past))
        settled = plan.reason is AutoReason.BEST and self._verify.rounds >= _LEARNING
        self._kept = plan if settled else None
        hopeless = plan.n == 0 and self._hopeless and self._plain_is_far_ahead()
        self._keep_for = (
            _KEEP_DRAFTING if plan.n > 0 else _KEEP_HOPELESS if hopeless else _KEEP_PLAIN
        )
        self._learn_every = _LEARN_EVERY_HOPELESS if hopeless else _LEARN_EVERY
        return plan

    def _plain_is_far_ahead(self) -> bool:
        rates = self._now.rates if self._now is not None else []
        return len(rates) > 1 and rates[0] > _CLEARLY_BETTER * max(rates[1:])

    def _bears(self, plan: DraftPlan) -> bool:
        """Whether the ledger still bears a plan that is kept."""
        return plan.n == 0 or (
            self._now is not None
            and self._may_lose(self._now, self._now.times[plan.n], spare=self._now.spare(plan.n))
        )

    def _choose(self, n_past: int, n_most: int, n_waiting: int) -> DraftPlan:
        bucket = context_bucket(n_past)
        plain = self._verify.cell(1, bucket)
        begins, self._begins = self._begins, False
        if not self._verify.expected(bucket):
            return self._plan(0, AutoReason.PLAIN_CHECK, None, bucket)
        outlook = self._now = self._outlook(bucket, n_most)
        best = self._settle(outlook)
        if (
            plain is None
            or (len(plain) < 2 and not outlook.far_ahead(best))
            or (begins and not outlook.far_ahead(best, _SURE_TO_BEGIN))
            or (best > 0 and self._plain_is_due(bucket, outlook.rates[best] * outlook.times[0]))
        ):
            return self._plan(0, AutoReason.PLAIN_CHECK, outlook, bucket)
        catch_up = self._catch_up_ms(n_waiting, bucket)
        if not outlook.repays(best, catch_up):
            best = 0
        probe = self._probe(outlook, best, catch_up, bucket)
        if probe is not None:
            return self._plan(probe, AutoReason.EXPLORING, outlook, bucket)
        bearable = self._bearable(outlook, best, catch_up)
        reason = AutoReason.BEST if bearable == best else AutoReason.LEDGER
        return self._plan(bearable, reason, outlook, bucket)

    def observe(self, plan: DraftPlan, seen: Observation) -> None:
        """Learn from the round that followed `plan`."""
        if plan.n == 0:
            self._observe_plain(plan, seen.n_past, seen.verify_ms)
            return
        bucket = context_bucket(seen.n_past)
        n_drafted = len(seen.probabilities)
        outlook = self._now
        assert outlook is not None
        self._verify.add(n_drafted + 1, bucket, seen.verify_ms)
        steps = n_drafted + (n_drafted < plan.n)
        behind = seen.n_waiting - _USUAL_WAITING
        if behind > N_DRAFT_MAX_LIMIT:
            self._catch_up.add(max(0.0, seen.draft_ms - self._draft_ms(bucket)[steps - 1]) / behind)
        catch_up = self._catch_up_ms(seen.n_waiting, bucket)
        if behind <= N_DRAFT_MAX_LIMIT:
            self._draft.add(steps, max(0.0, seen.draft_ms - catch_up))
        self._learn_acceptance(plan, seen)
        # The table's time, not the clock's: a delay that befell this round is not the draft's.
        expected = self._verify.expected(bucket)
        took = expected[n_drafted] + self._draft_ms(bucket)[steps - 1] + catch_up
        plain_ms = seen.n_tokens * expected[0]
        self._enter(took, plain_ms, outlook)
        if plan.reason is AutoReason.EXPLORING:
            self._since_exploring = 0
            best_rate = outlook.rates[min(self._n, len(outlook.rates) - 1)]
            self._explored_ms += max(0.0, took - seen.n_tokens / best_rate)
        else:
            self._since_exploring += 1

    def _learn_acceptance(self, plan: DraftPlan, seen: Observation) -> None:
        """A whole draft counts as the shorter one it would have been: the rates are those of
        drafting with its stops."""
        drafted = seen.probabilities
        self._acceptance.note_probabilities(drafted, seen.n_tested, seen.n_accepted)
        kept = next(
            (n for n in range(len(drafted)) if not plan.is_worth(drafted[: n + 1])), len(drafted)
        )
        self._acceptance.note(plan.n, kept, min(seen.n_tested, kept), min(seen.n_accepted, kept))

    def _observe_plain(self, plan: DraftPlan, n_past: int, ms: float) -> None:
        """Learn from the plain round that followed `plan`, behind `n_past` tokens."""
        self._unbooked += 1
        if plan is self._kept and self._keep_for % self._learn_every:
            return
        bucket = context_bucket(n_past)
        usual = self._verify.typical(1, bucket) or ms
        self._plain_ms += self._unbooked * usual
        self._total_ms += self._unbooked * usual
        self._since_exploring += self._unbooked
        self._acceptance.age(self._unbooked)
        self._unbooked = 0
        self._plain_surprised = abs(ms / usual - 1.0) > _PLAIN_SURPRISE
        self._verify.add(1, bucket, ms)

    def _enter(self, took: float, plain_ms: float, outlook: Outlook) -> None:
        """Book a drafted round. What was gained long ago cannot pay for what is lost now."""
        self._plain_ms += plain_ms
        self._total_ms += took
        self._dearest_ms = max(self._dearest_ms, took - outlook.times[0])
        self._lost_ms = max(self._lost_ms + took - plain_ms, -outlook.one_round)

    def _allowed_ms(self, loss: float) -> float:
        """What may be lost once a round of this loss is made, which may be the dearest."""
        return LOSS_SHARE * self._plain_ms + max(loss, self._dearest_ms)

    def _may_lose(
        self, outlook: Outlook, took: float, catch_up: float = 0.0, *, spare: float = 0.0
    ) -> bool:
        """Whether the ledger bears a round of this time, and of a catch-up before it, that yields
        a single token, with so much to spare."""
        loss = took + catch_up - outlook.times[0]
        return self._lost_ms + loss + spare <= self._allowed_ms(loss)

    def _bearable(self, outlook: Outlook, best: int, catch_up: float) -> int:
        """The best length, or the longest below it that the ledger bears and that still pays."""
        for n in range(best, 0, -1):
            pays = outlook.rates[n] > _HYSTERESIS * outlook.rates[0]
            if (n == best or pays) and self._may_lose(
                outlook, outlook.times[n], catch_up, spare=outlook.spare(n)
            ):
                return n
        return 0

    def _probe(self, outlook: Outlook, best: int, catch_up: float, bucket: int) -> int | None:
        """A length to try although it is not known to be the best, if one is worth its loss."""
        if self._probes_left > 0 and self._probed < len(outlook.times):
            self._probes_left -= 1
            if self._affords(outlook, self._probed, best, catch_up):
                return self._probed
        if self._since_exploring < _EXPLORE_GAP:
            return None
        candidate = self._candidate(outlook, best, bucket)
        self._hopeless = candidate is None
        if candidate is None or not self._affords(outlook, candidate, best, catch_up):
            return None
        # What a width costs shows at once; whether drafts are accepted again takes a few rounds.
        asleep = best == 0 and self._verify.times_measured(candidate + 1) > 1
        self._probed, self._probes_left = candidate, _PROBES - 1 if asleep else 0
        return candidate

    def _affords(self, outlook: Outlook, n: int, best: int, catch_up: float) -> bool:
        """Whether trying a length is within the budget of explorations and the ledger."""
        took = outlook.times[n]
        loss = max(0.0, took - outlook.rates[n] * took / outlook.rates[best])
        budget = _EXPLORE_CREDIT * outlook.times[0] + _EXPLORE_SHARE * self._total_ms
        if self._explored_ms + loss + catch_up > budget:
            return False
        if best > 0 and not outlook.far_ahead(best):
            # Drafts longer than one that pays wait until the reply has gained what they may lose.
            gap = took + catch_up - outlook.times[0]
            return self._lost_ms + gap <= LOSS_SHARE * self._plain_ms
        return self._may_lose(outlook, took, catch_up)

    def _plain_is_due(self, bucket: int, lead: float) -> bool:
        cell = self._verify.cell(1, bucket)
        if cell is None:
            return True
        if lead > _FAR_FROM_PLAIN:
            return self._verify.since(1, bucket) >= _PLAIN_EVERY * min(2.0, lead)
        every = min(_PLAIN_EVERY, _PLAIN_EVERY_AT_FIRST * len(cell))
        if self._plain_surprised or cell.error > _PLAIN_DOUBT * cell.mean:
            every = _PLAIN_RECHECK
        return self._verify.since(1, bucket) >= every

    def _settle(self, outlook: Outlook) -> int:
        """The length to play: the best one, once it is better by more than noise for a while."""
        rates = outlook.rates
        current = min(self._n, len(rates) - 1)
        # A width far beyond any that was measured may cost anything.
        known = min(len(rates), 2 * self._verify.largest)
        best = max(range(known), key=rates.__getitem__)
        lead = rates[best] / rates[current]
        enough = _HYSTERESIS if best > 0 else 1.0
        self._dwelt += 1
        if lead > _CLEARLY_BETTER or (lead > enough and self._dwelt >= _DWELL):
            self._n, self._dwelt = best, 0
            return best
        return current

    def _candidate(self, outlook: Outlook, best: int, bucket: int) -> int | None:
        """A length that may be better than the best known one. Of widths never measured one
        twice the widest known comes first, since what it costs bounds all below it; out of plain
        decoding the shortest, since of a draft that fails the first token is all that is learnt."""
        bar = outlook.rates[best] * _HOPE
        hoped = self._hoped_rates(bucket, len(outlook.rates) - 1)
        hopeful = [n for n, rate in enumerate(hoped) if n not in (0, best) and rate > bar]
        if not hopeful:
            return None
        if best == 0:
            return hopeful[0]
        # What lies between measured widths is known well enough.
        first = self._verify.largest
        unknown = [n for n in hopeful if n >= first and self._verify.times_measured(n + 1) < 2]
        beyond = [n for n in unknown if n >= 2 * self._verify.largest - 1]
        if beyond:
            return beyond[0]
        if unknown:
            return max(unknown, key=hoped.__getitem__)
        # Shorter drafts than the one in use teach nothing that it does not.
        return next((n for n in hopeful if n > best), None)

    def _outlook(self, bucket: int, n_most: int) -> Outlook:
        verify, draft = self._verify.expected(bucket), self._draft_ms(bucket)
        kept = self._acceptance.kept()
        times = round_times(verify, draft, kept, n_most)
        rates = token_rates(self._acceptance.expected(), times)
        near = max(n for n, rate in enumerate(rates) if rate >= _CONSIDERED * max(rates)) or 1
        return Outlook(
            times,
            rates,
            one_round=verify[near] - verify[0] + draft[near - 1],
        )

    def _hoped_rates(self, bucket: int, n_most: int) -> list[float]:
        """Tokens a millisecond as they may be at best; a round that explores drafts throughout.

        The longer nothing was tried, the more may have changed since.
        """
        doubt = 1.0 + min(_MOST_DOUBT, self._since_exploring / _DOUBT_GROWS_OVER)
        times = round_times(self._verify.hoped(bucket), self._draft_ms(bucket), None, n_most)
        return token_rates(self._acceptance.hoped(doubt), times)

    def _draft_ms(self, bucket: int) -> list[float]:
        if self._draft:
            return self._draft.expected(N_DRAFT_MAX_LIMIT)
        step = _FIRST_DRAFT_STEP * self._verify.expected(bucket)[0]
        return [step * n for n in range(1, N_DRAFT_MAX_LIMIT + 1)]

    def _catch_up_ms(self, n_waiting: int, bucket: int) -> float:
        behind = max(0, n_waiting - _USUAL_WAITING)
        if len(self._catch_up):
            return self._catch_up.mean * behind
        # A row of a batch never costs what a step does.
        return self._draft_ms(bucket)[0] * _FIRST_ROW_SHARE * behind

    def _plan(self, n: int, reason: AutoReason, outlook: Outlook | None, bucket: int) -> DraftPlan:
        rate = max(outlook.rates) if outlook is not None else 0.0
        return DraftPlan(
            n=n,
            worth=self._worth(n, rate, bucket) if n > 0 else (),
            by_probability=self._acceptance.by_probability(),
            whole=n > 0 and self._verify.times_measured(n + 1) < 2,
            state=self._state(n, reason, outlook, bucket),
        )

    def _worth(self, n: int, rate: float, bucket: int) -> tuple[float, ...]:
        """For each draft token the least survival that pays for verifying it, alone or with the
        best number of tokens after it."""
        verify, draft = self._verify.expected(bucket), self._draft_ms(bucket)
        accepted = self._acceptance.expected()
        worth = []
        for j in range(n):
            least = 1.0
            following = yields = 1.0
            for last in range(j, n):
                if last > j:
                    following *= accepted[last]
                    yields += following
                cost = verify[last + 1] - verify[j] + draft[last] - draft[j]
                least = min(least, rate * cost / yields)
            worth.append(max(0.0, least))
        return tuple(worth)

    def _state(self, n: int, reason: AutoReason, outlook: Outlook | None, bucket: int) -> AutoDraft:
        if outlook is None:
            return AutoDraft(n, reason, (), 0.0, 0.0, 0.0)
        plain = self._verify.cell(1, bucket)
        error = plain.error / plain.mean if plain is not None else 1.0
        speeds = tuple(round(rate * 1000.0, 1) for rate in outlook.rates)
        return AutoDraft(
            n=n,
            reason=reason,
            tokens_per_second=speeds,
            plain_error=round(speeds[0] * 2.0 * error, 1),
            lost_ms=round(self._lost_ms, 1),
            allowed_ms=round(self._allowed_ms(outlook.times[n] - outlook.times[0]), 1),
        )
