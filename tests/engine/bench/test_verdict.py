"""How often a bench that goes on until it can tell is wrong, on simulated machines."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from eaglechat.engine.bench.looks import LEVEL, Looks, minutes_for
from eaglechat.engine.bench.measure import order_of
from eaglechat.engine.bench.report import report_of
from eaglechat.engine.bench.verdict import Verdict, judge
from eaglechat.wire.bench_records import PLAIN, BenchRun

N_PROMPTS, TOKENS, LIMIT_S = 8, 128, 240.0


def simulated(rng: random.Random, truth: Mapping[str, float], spread: float) -> Verdict:
    """A bench of four minutes at most, on a machine that drifts, is half as fast for a minute, and
    has noise. What a setting gains varies between the prompts around `truth`, by `spread`."""
    began, drift = rng.uniform(-30.0, LIMIT_S), rng.uniform(-0.3, 0.3)
    gains = [
        {
            PLAIN: 1.0,
            **{name: gain * math.exp(rng.gauss(0.0, spread)) for name, gain in truth.items()},
        }
        for _ in range(N_PROMPTS)
    ]
    looks, runs, now, repeat = Looks(1), [], 0.0, 0
    while True:
        for prompt in range(N_PROMPTS):
            for setting in order_of([PLAIN, *truth], prompt + repeat):
                busy = 0.5 if began <= now < began + 60.0 else 1.0
                speed = 100.0 * busy * (1.0 + drift * now / LIMIT_S) * gains[prompt][setting]
                seconds = TOKENS / speed / math.exp(rng.gauss(0.0, 0.05))
                now += seconds
                if now > LIMIT_S:
                    return verdict_of(runs, looks.last())
                runs.append(run_of(f"{prompt}", setting, repeat, 1000.0 * seconds))
        repeat += 1
        if repeat == looks.next:
            verdict = verdict_of(runs, looks.take())
            if verdict.is_certain:
                return verdict


def run_of(prompt: str, setting: str, repeat: int, ms: float) -> BenchRun:
    n = None if setting == PLAIN else setting if setting == "auto" else int(setting)
    return BenchRun(
        prompt=prompt, setting=setting, repeat=repeat, tokens=TOKENS, generation_ms=ms,
        n_drafted=0, n_tested=0, n_accepted=0, mean_accepted_length=None, verify_ms={}, n=n,
    )  # fmt: skip


def verdict_of(runs: list[BenchRun], level: float) -> Verdict:
    verdict = judge(report_of(runs), level)
    assert verdict is not None
    return verdict


@pytest.mark.parametrize(
    ("truth", "spread", "found"),
    [
        ({"1": 1.0, "3": 1.0, "8": 1.0, "auto": 1.0}, 0.02, ""),
        ({"1": 1.0, "3": 1.0, "8": 1.0, "auto": 1.0}, 0.15, ""),
        ({"3": 1.0}, 0.0, "same"),
        ({"1": 0.82, "3": 0.78, "8": 0.55, "auto": 0.8}, 0.05, "slower"),
        ({"1": 1.2, "3": 1.5, "8": 1.3, "auto": 1.4}, 0.1, "faster"),
    ],
)
def test_of_1000_benches_at_most_one_in_20_ends_with_a_false_verdict(
    truth: dict[str, float], spread: float, found: str
) -> None:
    rng, verdicts, n_false = random.Random(1), Counter[str](), 0
    for _ in range(1000):
        verdict = simulated(rng, truth, spread)
        said, true = verdict.gain.verdict, truth[verdict.best.setting]
        right = {"faster": true > 1.0, "slower": true < 1.0, "same": 0.95 <= true <= 1.05}
        verdicts[said] += 1
        n_false += not right.get(said, True)
    assert n_false <= 50, verdicts
    assert not found or verdicts[found] > 700, verdicts


def test_all_looks_share_one_error_probability() -> None:
    looks, shares, due = Looks(3), [], []
    for _ in range(10):
        due.append(looks.next)
        shares.append(looks.take())
    assert due[:4] == [3, 6, 12, 24]
    assert sum(shares) + looks.last() == pytest.approx(LEVEL)
    assert looks.last() > LEVEL / 2


def test_repeats_of_one_prompt_are_no_further_prompts() -> None:
    """What differs between two prompts is not known better after a thousand repeats."""
    runs = [
        run_of(prompt, setting, repeat, ms)
        for repeat in range(1000)
        for prompt, by_setting in (("a", (PLAIN, 10.0)), ("b", (PLAIN, 10.0)))
        for setting, ms in (by_setting, ("3", 8.0 if prompt == "a" else 6.0))
    ]
    assert verdict_of(runs, LEVEL).gain.verdict == "unclear"


def test_a_slow_model_gets_the_time_of_two_passes() -> None:
    assert minutes_for(1000, None, 4) == minutes_for(1000, 10.0, 4) == 4
    assert minutes_for(5000, 200.0, 4) == 34
