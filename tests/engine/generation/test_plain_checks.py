"""Plain checks and the speed-up that is computed from them.

Simulated: replies of a pair whose loop takes 30% longer than its bare passes, with any acceptance
and costs, on a machine that drifts, halves its speed for minutes or is disturbed for a second. The
truth is known there: the time that plain decoding would have taken on that machine at that time.
"""

from __future__ import annotations

import random
import time
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import sqrt

import pytest

from eaglechat.engine.auto.controller import CHAIN, Arm, Controller
from eaglechat.engine.auto.planner import PlainChecks
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.loop import Live
from eaglechat.wire.gain import GainOfRounds, GainVerdict
from eaglechat.wire.protocol import AUTO, Auto, Shape, Speculation
from eaglechat.wire.records import ReplyEnd, Round
from tests.engine.auto.pairs import calibrated
from tests.engine.auto.simulated_pair import Driver, Fixed, Reply, Simulated, write
from tests.engine.rig import Rig, check_bookkeeping, open_rig, plainly

pytestmark = pytest.mark.usefixtures("plain_checks")


LOOP = 1.3
"""A round takes so many times as long as its bare pass."""


@dataclass(frozen=True)
class Simulation:
    reply: Reply

    @property
    def truth(self) -> float:
        return self.reply.speed_ups[-1]

    @cached_property
    def verdicts(self) -> list[GainVerdict | None]:
        """What is said after each round."""
        so_far, said = GainOfRounds(), list[GainVerdict | None]()
        for round_ in self.reply.rounds:
            so_far.add(len(round_.tokens), round_.timings.total_ms, round_.plain_ms)
            gain = so_far.gain()
            said.append(gain.verdict if gain else None)
        return said


def weather(rng: random.Random, *, gusty: bool) -> Callable[[float], float]:
    """How many times as long the machine takes for everything, by time. If it is `gusty`, other
    programs run for moments, so rounds beside each other are alike."""
    drift = rng.choice([0.0, rng.uniform(-0.2, 0.4)]) / 10_000.0
    slow_from = rng.uniform(-5_000.0, 20_000.0)
    slow_until = slow_from + rng.choice([0.0, 60_000.0, rng.uniform(2_000.0, 200_000.0)])
    busy_from, busy = rng.uniform(0.0, 15_000.0), rng.choice([1.0, rng.uniform(2.0, 5.0)])
    gust = rng.choice([1.0, 1.0, rng.uniform(1.2, 2.5)]) if gusty else 1.0
    calm_and_gust_ms = rng.uniform(50.0, 1_500.0), rng.uniform(10.0, 400.0)
    edges = [0.0]
    while gust > 1.0 and edges[-1] < 100_000.0:
        edges.append(edges[-1] + rng.expovariate(1.0 / calm_and_gust_ms[len(edges) % 2 == 0]))

    def slowness(ms: float) -> float:
        slow = 2.0 if slow_from <= ms < slow_until else 1.0
        disturbed = busy if busy_from <= ms < busy_from + 1_000.0 else 1.0
        disturbed *= gust if bisect(edges, ms) % 2 == 0 else 1.0
        return max(0.5, 1.0 + drift * ms) * slow * disturbed

    return slowness


@lru_cache(maxsize=2_000)
def simulated(seed: int, *, gusty: bool = True) -> Simulation:
    """A quarter of the replies are on auto."""
    rng = random.Random(seed)
    bare, n = rng.choice([4.0, 8.0, 20.0, 60.0]), rng.choice([1, 2, 3, 3, 5, 8])
    rate = rng.uniform(0.2, 0.9)
    tokens = sum(rate**k for k in range(n + 1))
    wanted = rng.uniform(0.6, 2.5) if rng.random() < 0.7 else rng.uniform(0.9, 1.1)
    # What a round of n drafted tokens takes beyond a plain one, so that it comes out as wanted.
    more = max(0.0, tokens / wanted - 1.0) * LOOP * bare / n
    share = rng.random()
    moods = [rng.uniform(0.7, 1.2) for _ in range(40)]
    pair = Simulated(
        verify=lambda width, _n_past: LOOP * bare + (width - 1) * more * share,
        accepts=lambda position, _depth: min(0.97, rate * moods[position // 50 % 40]),
        draft_step=more * (1.0 - share),
        shape="chain",
        noise=rng.choice([0.02, 0.05, 0.1]),
        tail=rng.choice([0.0, 0.0, 0.02]),
        seed=seed,
    )
    n_tokens = int(60 * 25 ** rng.random())
    driver: Driver = Controller(calibrated(pair)) if seed % 4 == 0 else Fixed(Arm(CHAIN, n))
    slowness = weather(rng, gusty=gusty)
    return Simulation(write(pair, n_tokens, driver, checks=PlainChecks(), slowness=slowness))


def first_verdict(one: Simulation) -> tuple[GainVerdict, float] | None:
    """The first verdict that is told, and what was true by then."""
    told = zip(one.verdicts, one.reply.speed_ups, strict=True)
    return next(((v, truth) for v, truth in told if v not in (None, "unclear")), None)


def is_false(verdict: GainVerdict | None, truth: float) -> bool:
    return (
        (verdict == "faster" and truth < 1.0)
        or (verdict == "slower" and truth > 1.0)
        or (verdict == "same" and abs(truth - 1.0) > 0.1)
    )


def test_verdicts_are_true_on_a_machine_that_changes() -> None:
    n = 100
    replies = [*map(simulated, range(n))]
    verdicts = [one.verdicts[-1] for one in replies]
    false = [*map(is_false, verdicts, (one.truth for one in replies))]
    assert sum(false) <= 0.05 * n
    # Less the luck of the seeds.
    assert sum(one not in (None, "unclear") for one in verdicts) >= 0.6 * n - sqrt(n)
    # While a reply is written: the first verdict may rest on less than a second.
    firsts = [*filter(None, map(first_verdict, replies))]
    assert sum(is_false(*first) for first in firsts) <= 0.05 * len(firsts) + sqrt(0.05 * n)


@pytest.mark.parametrize("seed", range(40))
def test_checks_cost_little_and_are_spread(seed: int) -> None:
    rounds = simulated(seed, gusty=False).reply.rounds
    checks = [round_ for round_ in rounds if round_.is_plain_check]
    others = [round_ for round_ in rounds if not round_.is_plain_check]
    pace = sum(r.timings.total_ms for r in others) / sum(len(r.tokens) for r in others)
    cost = sum(round_.timings.total_ms - pace for round_ in checks)
    one = 2 * max(round_.timings.total_ms for round_ in checks)
    assert cost <= 0.02 * sum(round_.timings.total_ms for round_ in rounds) + one
    if rounds[0].auto is None:
        places = [place for place, round_ in enumerate(rounds) if round_.is_plain_check]
        begins = places[::2]
        assert begins[0] == 2
        assert all(b == a + 1 for a, b in zip(begins, places[1::2], strict=False))
        assert all(b - a > 5 for a, b in pairwise(begins))


def test_the_same_rounds_lead_to_the_same_checks_and_a_changed_length_to_new_ones() -> None:
    def is_due_after(rounds: Sequence[Round], length: int, *, goes_on: bool = False) -> bool:
        checks = PlainChecks(goes_on=goes_on)
        for round_ in rounds:
            checks.add(round_)
        return checks.is_due(length)

    rounds = next(s for s in map(simulated, range(1, 9)) if s.reply.rounds[0].auto is None)
    drafting = [r for r in rounds.reply.rounds if not r.is_plain_check][:3]
    n = drafting[0].n_draft_max
    assert [is_due_after(drafting[:k], n) for k in range(4)] == [False, False, True, True]
    assert not is_due_after(drafting, n + 1)
    assert not is_due_after(drafting, n, goes_on=True)


@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("length", [1, 3, AUTO], ids=str)
def test_the_loop_plays_checks_and_writes_what_it_would_have_written(
    tiny_models: tuple[Model, Model], length: int | Auto, shape: Shape
) -> None:
    with open_rig(*tiny_models, shape=shape, ngram=True) as rig:
        prompt = rig.prompt("the cat sat on the mat")
        plain = rig.reply(prompt, live=plainly(), max_tokens=160)
        live = Live(Speculation(n_draft_max=length, shape=shape, ngram=True), 0.0)
        reply = rig.reply(prompt, live=live, max_tokens=160)
    assert reply.tokens == plain.tokens
    check_bookkeeping(reply, prompt)
    checks = [round_ for round_ in reply.rounds if round_.is_plain_check]
    assert checks
    assert not any(round_.drafted for round_ in checks)
    assert all(round_.is_plain for round_ in checks)
    assert {r.n_draft_max for r in checks} == ({0} if length == AUTO else {length})
    assert not any(round_.is_plain_check for round_ in plain.rounds)


@pytest.mark.parametrize("live", [None, plainly()], ids=["drafts", "plain"])
def test_the_rounds_have_all_the_time_of_the_reply_also_that_of_handing_them_over(
    rig: Rig, live: Live | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    rounds, end = [], None
    for event in rig.stream(rig.prompt("the cat"), live=live, max_tokens=20):
        if isinstance(event, Round):
            rounds.append(event)
            now[0] += 7.0
        end = event
    assert isinstance(end, ReplyEnd)
    assert sum(r.timings.total_ms for r in rounds) == pytest.approx(end.timings.generation_ms)
    assert all(round_.timings.total_ms == pytest.approx(7_000.0) for round_ in rounds[1:])
