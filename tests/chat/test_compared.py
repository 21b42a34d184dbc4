"""What heats say: speeds, gains, their errors, and the claims that may be made of them."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from eaglechat.chat.compared import LEVEL, Heat, Leg, Result, level_of, level_of_last
from eaglechat.wire.protocol import AUTO, PLAINLY, Speculation
from eaglechat.wire.records import FinishReason
from eaglechat.words import comparing
from tests.chat.records import plainly, recorded, round_of

N_PROMPTS, HEATS, TOKENS, LIMIT_S = 8, 2, 64, 240.0
PLAIN_RECORDING, DRAFTED = plainly(1, ms=1.0), recorded(round_of(1), reason=FinishReason.LENGTH)


def contenders(*lengths: str) -> dict[str, Speculation]:
    """By their lengths."""
    whats = {one: one if one == AUTO else int(one.removeprefix("length ")) for one in lengths}
    return {"plain": PLAINLY, **{one: Speculation(n_draft_max=n) for one, n in whats.items()}}


def heat_of(prompt: str, ms: Mapping[str, float]) -> Heat:
    legs = {
        name: Leg(PLAIN_RECORDING if name == "plain" else DRAFTED, TOKENS, one)
        for name, one in ms.items()
    }
    return Heat(prompt, legs)


def simulated(rng: random.Random, truth: Mapping[str, float], spread: float) -> Result:
    """Whole replies for four minutes at most, on a machine that drifts, is half as fast for a
    minute, and has noise. What a contender gains varies between the prompts around `truth`, by
    `spread`."""
    began, drift, who = rng.uniform(-30.0, LIMIT_S), rng.uniform(-0.3, 0.3), contenders(*truth)
    gains = [
        {
            "plain": 1.0,
            **{name: gain * math.exp(rng.gauss(0.0, spread)) for name, gain in truth.items()},
        }
        for _ in range(N_PROMPTS)
    ]
    look, heats, now, repeats = 0, list[Heat](), 0.0, 0
    while True:
        for place in range(N_PROMPTS * HEATS):
            prompt, ms = place // HEATS, dict[str, float]()
            for name in [*who][:: 1 if len(heats) % 2 == 0 else -1]:
                busy = 0.5 if began <= now < began + 60.0 else 1.0
                speed = 100.0 * busy * (1.0 + drift * now / LIMIT_S) * gains[prompt][name]
                ms[name] = 1000.0 * TOKENS / speed / math.exp(rng.gauss(0.0, 0.05))
                now += ms[name] / 1000.0
                if now > LIMIT_S:
                    return Result((*heats,), who, level_of_last(look))
            heats.append(heat_of(f"{prompt}", ms))
        repeats += 1
        if repeats == 2**look:
            result = Result((*heats,), who, level_of(look))
            look += 1
            if result.is_certain:
                return result


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
def test_of_100_benches_at_most_one_in_20_ends_with_a_false_verdict(
    truth: dict[str, float], spread: float, found: str
) -> None:
    rng, verdicts, n_false = random.Random(1), Counter[str](), 0
    for _ in range(100):
        best = simulated(rng, truth, spread).best
        assert best is not None
        said, true = best.verdict, truth[best.name]
        right = {"faster": true > 1.0, "slower": true < 1.0, "same": 0.95 <= true <= 1.05}
        verdicts[said] += 1
        n_false += not right.get(said, True)
    assert n_false <= 5, verdicts
    assert not found or verdicts[found] > 70, verdicts


def measured(
    speeds: Mapping[str, Mapping[str, float]], repeats: int = 2, noise: float = 0.003
) -> Result:
    """Speeds by prompt and contender, a little off in each heat."""
    names = [name for name in next(iter(speeds.values())) if name != "plain"]
    heats = [
        heat_of(
            prompt,
            {
                name: 1000.0 * TOKENS / speed * (1 + noise * (-1) ** (repeat + part + place))
                for place, (name, speed) in enumerate(by_name.items())
            },
        )
        for repeat in range(repeats)
        for prompt, by_name in speeds.items()
        for part in range(4)
    ]
    return Result((*heats,), contenders(*names))


@pytest.mark.parametrize(
    ("chat", "code", "said"),
    [
        ((14, 17), (14, 17.2), "1.7x ±0.3 as fast as plain with length 3. Of"),
        # Two prompts that differ are no evidence for others, however exact each of them is.
        ((7, 5), (12, 17),
         "Can't tell: 1x ±18 as fast as plain with length 3. Of 16 tokens of each, over 2 prompts"),
        ((7, 5), (7, 5), "0.70x ±0.01 as fast as plain with length 1. Of"),
        ((10.05, 9), (10.05, 8), "Same as plain with length 1. Of"),
    ],
)  # fmt: skip
def test_the_sentence_claims_no_noise(
    chat: tuple[float, float], code: tuple[float, float], said: str
) -> None:
    """The speeds of two lengths beside plain decoding of 10 tokens per second."""
    speeds = {
        prompt: {"plain": 10.0, "length 1": one, "length 3": three}
        for prompt, (one, three) in (("chat", chat), ("code", code))
    }
    result = measured(speeds)
    assert said in comparing.sentence(result)


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.1])
def test_auto_is_not_advised_where_another_length_was_measured_as_faster(noise: float) -> None:
    best = measured({"chat": {"plain": 10.0, "1": 10.9, "auto": 10.8}}, noise=noise).best
    assert best is not None
    assert best.name == "1"


def test_without_a_draft_length_that_drafts_nothing_is_best() -> None:
    assert measured({"chat": {"plain": 10.0}}).best is None
    assert measured({"chat": {"plain": 10.0, "0": 10.0}}).best is None


def test_a_contender_has_its_speed_and_how_much_that_varied() -> None:
    (_, three) = measured({"chat": {"plain": 10.0, "3": 15.0}}, noise=0.0).scores
    assert three.tokens_per_second == pytest.approx(15.0)
    assert three.spread == pytest.approx(0.0)
    assert three.stats.verify_steps == 8
    assert three.longest == 2
    (_, three) = measured({"chat": {"plain": 10.0, "3": 15.0}}, noise=0.1).scores
    assert three.spread == pytest.approx(0.1, abs=0.01)
    # A longer prompt is slower in every heat: that is no spread.
    speeds = {"chat": {"plain": 10.0, "3": 15.0}, "file": {"plain": 5.0, "3": 6.0}}
    (_, three) = measured(speeds, noise=0.0).scores
    assert three.spread == pytest.approx(0.0)


def test_a_last_draft_that_exceeds_the_heat_is_no_gain() -> None:
    """Both wrote a token in the same time."""
    legs = {"plain": Leg(PLAIN_RECORDING, 20, 200.0), "3": Leg(DRAFTED, 23, 230.0)}
    result = Result((Heat("q", legs),), contenders("3"))
    assert result.scores[1].gain.speed_up == pytest.approx(1.0)


def test_repeats_of_one_prompt_are_no_further_prompts() -> None:
    """What differs between two prompts is not known better after a thousand repeats."""
    speeds = {"a": {"plain": 10.0, "3": 12.5}, "b": {"plain": 10.0, "3": 16.7}}
    best = measured(speeds, repeats=1000).best
    assert best is not None
    assert best.verdict == "unclear"


def test_all_looks_share_one_error_probability() -> None:
    for n_looks in range(10):
        shares = [*map(level_of, range(n_looks)), level_of_last(n_looks)]
        assert sum(shares) == pytest.approx(LEVEL)
        assert shares[-1] > LEVEL / 2
