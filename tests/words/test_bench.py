"""What `eaglechat bench` says of its measurements."""

from __future__ import annotations

import pytest

from eaglechat.engine.bench.report import BenchReport, report_of
from eaglechat.engine.bench.verdict import judge
from eaglechat.wire.bench_records import BenchRun
from eaglechat.words.bench import verdict_in_words


def measured(
    speeds: dict[str, dict[str, float]], repeats: int, noise: float = 0.003
) -> BenchReport:
    """Speeds by prompt and setting, a little off in each repeat."""
    return report_of(
        [
            BenchRun(
                prompt=prompt, setting=setting, repeat=repeat, tokens=100,
                generation_ms=100_000 / speed * (1 + noise * (-1) ** (repeat + place)),
                n_drafted=0, n_tested=0, n_accepted=0, mean_accepted_length=None, verify_ms={},
                n=None if setting == "plain" else setting if setting == "auto" else int(setting),
            )
            for prompt, by_setting in speeds.items()
            for repeat in range(repeats)
            for place, (setting, speed) in enumerate(by_setting.items())
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("chat", "code", "said"),
    [
        ({"1": 14, "3": 17}, {"1": 14, "3": 17.2},
         "Worth it: 1.7x ±0.3 as fast as plain with 3 tokens a round."),
        ({"1": 13.9, "auto": 14}, {"1": 13.9, "auto": 14},
         "Worth it: 1.40x ±0.01 as fast as plain with auto."),
        # Two prompts that differ are no evidence for others, however exact each of them is.
        ({"1": 7, "3": 5}, {"1": 12, "3": 17},
         "Can't tell: 1x ±18 as fast as plain with 3 tokens a round. Worth it for code: "
         "1.70x ±0.03 as fast as plain; chat is faster plain."),
        ({"1": 7, "3": 5}, {"1": 7, "3": 5},
         "Not worth it on this machine: 0.70x ±0.01 as fast as plain with 1 token a round."),
        ({"1": 10.05, "3": 9}, {"1": 10.05, "3": 8},
         "No gain on this machine: same as plain with 1 token a round."),
        ({"auto": 10.05, "3": 9}, {"auto": 10.05, "3": 8},
         "No gain on this machine: same as plain with auto."),
    ],
)  # fmt: skip
def test_the_verdict_claims_no_noise(
    chat: dict[str, float], code: dict[str, float], said: str
) -> None:
    speeds = {"chat": {"plain": 10, **chat}, "code": {"plain": 10, **code}}
    verdict = judge(measured(speeds, 2))
    assert verdict is not None
    assert verdict_in_words(verdict) == said


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.1])
def test_auto_is_not_advised_where_another_length_was_measured_as_faster(noise: float) -> None:
    speeds = {"chat": {"plain": 10.0, "1": 10.9, "auto": 10.8}}
    verdict = judge(measured(speeds, 2, noise=noise))
    assert verdict is not None
    assert verdict.best.setting == "1"


def test_nothing_is_judged_without_plain_decoding_or_without_drafts() -> None:
    assert judge(measured({"chat": {"plain": 10.0}}, 2)) is None
    assert judge(measured({"chat": {"plain": 10.0, "0": 10.0}}, 2)) is None
    assert judge(measured({"chat": {"1": 10.0, "3": 12.0}}, 2)) is None
