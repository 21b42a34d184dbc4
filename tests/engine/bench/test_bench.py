"""The bench's arithmetic, with replies that take scripted times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from eaglechat.engine.bench import measure as bench
from eaglechat.engine.bench import prompts as bench_prompts
from eaglechat.engine.bench.measure import name_of, settings_of
from eaglechat.engine.bench.report import report_of
from eaglechat.wire.bench_records import BenchPrompt, BenchRun
from eaglechat.wire.errors import BenchFailedError, Cancelled
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import (
    DraftToken,
    FinishReason,
    Origin,
    ReplyEnd,
    ReplyTimings,
    Round,
    RoundTimings,
    SpeculationOff,
    Token,
)
from eaglechat.wire.stats import DrafterStats

CHAT, CODE = BenchPrompt("chat", "Hello"), BenchPrompt("code", "Sort a list")


def scripted_round(n_drafted: int, n_accepted: int, verify_ms: float) -> Round:
    drafted = tuple(DraftToken(i, "x", 0.5, i - 1) for i in range(n_drafted))
    return Round(
        index=0,
        n_draft_max=n_drafted,
        drafted=drafted,
        n_tested=min(n_accepted + 1, n_drafted),
        n_accepted=n_accepted,
        tokens=tuple(Token(i, "x", Origin.PLAIN) for i in range(n_accepted + 1)),
        n_past=10,
        timings=RoundTimings(0.0, verify_ms, 0.0, 0.0, verify_ms),
    )


def scripted_end(tokens: int, generation_ms: float) -> ReplyEnd:
    timings = ReplyTimings(0.0, 0, 0, generation_ms, 0.0, 0.0, 0.0, 0.0)
    return ReplyEnd(FinishReason.LENGTH, 0, tokens, "", timings)


class ScriptedEngine:
    """Ten tokens a reply: plain in 100, 110, 130 ms; n = 2 in 50, of two rounds with 3 accepted
    of 4 drafted tokens; auto in 40. A shorter reply, of a warm-up, is slow."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int]] = []
        self._plain_ms = iter([100.0, 110.0, 130.0] * 9)

    def write(
        self, prompt: BenchPrompt, setting: Speculation | None, max_tokens: int
    ) -> Iterator[object]:
        self.asked.append((prompt.name, name_of(setting), max_tokens))
        speculation = setting or Speculation()
        if max_tokens < 10:
            yield scripted_end(max_tokens, 1e6)
        elif not speculation.enabled:
            yield scripted_round(0, 0, 9.0)
            yield scripted_end(10, next(self._plain_ms))
        elif speculation.n_draft_max == AUTO:
            yield scripted_round(1, 1, 6.0)
            yield scripted_end(10, 40.0)
        else:
            yield scripted_round(2, 2, 8.0)
            yield scripted_round(2, 1, 10.0)
            yield scripted_end(10, 50.0)


def measured(
    write: bench.Write,
    *prompts: BenchPrompt,
    settings: Sequence[Speculation] = settings_of([2, AUTO], ["chain"], [False]),
    repeats: int = 1,
) -> list[BenchRun]:
    return list(bench.measure(write, prompts, settings, repeats=range(repeats), max_tokens=10))


def test_settings_take_turns_after_a_short_reply_that_is_not_counted() -> None:
    engine = ScriptedEngine()
    runs = measured(engine.write, CHAT, repeats=3)
    assert [(run.repeat, run.setting) for run in runs] == [
        *((0, "plain"), (0, "2"), (0, "auto")),
        *((1, "auto"), (1, "2"), (1, "plain")),
        *((2, "2"), (2, "auto"), (2, "plain")),
    ]
    first = engine.asked[:6]
    assert [setting for _, setting, _ in first] == ["plain", "plain", "2", "2", "auto", "auto"]
    assert all(length < 10 for _, _, length in first[::2])
    assert len(engine.asked) == len(runs) + 3


@pytest.mark.parametrize("n_settings", [2, 3, 4])
def test_no_setting_always_follows_the_same_other_one(n_settings: int) -> None:
    settings = [str(n) for n in range(n_settings)]
    orders = [bench.order_of(settings, turn) for turn in range(2 * n_settings)]
    assert {order[0] for order in orders} == set(settings)
    for setting in settings:
        before = {order[order.index(setting) - 1] for order in orders if order[0] != setting}
        assert len(before) == min(2, n_settings - 1)


def test_every_combination_is_a_setting_once_and_one_token_makes_no_tree() -> None:
    settings = settings_of([0, 1, 3, AUTO], ["chain", "tree"], [False, True])
    assert [name_of(setting) for setting in settings] == [
        *("plain", "0", "1", "3", "auto", "tree 3", "tree auto"),
        *("1 + n-grams", "3 + n-grams", "auto + n-grams"),
        *("tree 3 + n-grams", "tree auto + n-grams"),
    ]


def test_what_each_drafter_s_tokens_come_to_is_counted_apart() -> None:
    def write(_prompt: BenchPrompt, setting: Speculation | None, _most: int) -> Iterator[object]:
        if setting != bench.PLAINLY:
            yield drafted_by(scripted_round(2, 1, 8.0), "eagle3")
            yield drafted_by(scripted_round(4, 4, 8.0), "ngram")
        yield scripted_end(10, 50.0)

    runs = measured(write, CHAT, CODE, settings=settings_of([4], ["tree"], [True]))
    _, result = report_of(runs).settings
    assert (result.n, result.shape, result.ngram) == (4, "tree", True)
    assert result.by_drafter == {
        "eagle3": DrafterStats(rounds=2, drafted=4, tested=4, accepted=2),
        "ngram": DrafterStats(rounds=2, drafted=8, tested=8, accepted=8),
    }


def drafted_by(round_: Round, drafter: str) -> Round:
    return replace(
        round_, drafted=tuple(replace(token, drafter=drafter) for token in round_.drafted)
    )


def test_a_prompt_is_reported_by_medians_with_their_spread() -> None:
    report = report_of(measured(ScriptedEngine().write, CHAT, repeats=3))
    (chat,) = report.prompts
    plain = chat.speeds["plain"]
    assert plain.median == pytest.approx(10 / 0.110)
    assert (plain.low, plain.high) == pytest.approx((10 / 0.130, 10 / 0.100))
    assert chat.fastest == "auto"
    assert chat.speed_up == pytest.approx(110 / 40)
    assert chat.acceptance_rate == 1.0
    assert chat.mean_accepted_length == 2.0


def test_a_draft_length_is_reported_over_all_prompts() -> None:
    report = report_of(measured(ScriptedEngine().write, CHAT, CODE, repeats=3))
    two = next(result for result in report.settings if result.setting == "2")
    assert two.tokens_per_second == pytest.approx(200.0)
    assert two.speed_up == pytest.approx(110 / 50)
    assert two.acceptance_rate == pytest.approx(3 / 4)
    assert two.mean_accepted_length == pytest.approx(2.5)


def test_verify_cost_is_that_of_decoding_with_a_draft_loaded() -> None:
    report = report_of(measured(ScriptedEngine().write, CHAT))
    assert report.verify_ms == {2: 6.0, 3: 9.0}


def test_what_was_measured_before_a_cancel_is_kept() -> None:
    engine = ScriptedEngine()

    def write(*asked: Any) -> Iterator[object]:
        yield from engine.write(*asked)
        if len(engine.asked) > 4:
            raise Cancelled

    settings, done = settings_of([2], ["chain"], [False]), list[BenchRun]()
    with pytest.raises(Cancelled):
        done.extend(bench.measure(write, [CHAT, CODE], settings, repeats=range(1), max_tokens=10))
    assert [(run.prompt, run.setting) for run in done] == [("chat", "plain"), ("chat", "2")]
    assert [result.prompt for result in report_of(done).prompts] == ["chat"]


def test_settings_are_compared_over_the_same_replies() -> None:
    runs = measured(ScriptedEngine().write, CHAT, CODE, repeats=2)
    # Stopped in the second repeat of the second prompt, after one setting.
    whole, stopped = report_of(runs[:9]), report_of(runs[:10])
    assert stopped.settings == whole.settings
    assert stopped.prompts == whole.prompts
    assert len(stopped.runs) == 10


def test_a_draft_that_gives_up_ends_the_bench_with_its_reason() -> None:
    def write(_prompt: BenchPrompt, _setting: Speculation | None, _most: int) -> Iterator[object]:
        yield SpeculationOff("the draft failed: status -1")
        yield scripted_end(10, 100.0)

    with pytest.raises(BenchFailedError, match="chat, n = 3: the draft failed: status -1"):
        measured(write, CHAT, settings=[Speculation(n_draft_max=3)])


def test_the_prompts_to_copy_from_are_another_set() -> None:
    work = {prompt.text for prompt in bench_prompts.builtin_prompts()}
    copies = bench_prompts.copy_prompts()
    assert len(copies) > 3
    assert work.isdisjoint(prompt.text for prompt in copies)


def test_a_prompt_file_is_one_prompt_or_many_by_name() -> None:
    assert bench_prompts.parse_prompts("Just ask.\n") == [BenchPrompt("prompt", "Just ask.")]
    two = bench_prompts.parse_prompts("=== a\nfirst\n\nstill first\n=== b\nsecond")
    assert two == [BenchPrompt("a", "first\n\nstill first"), BenchPrompt("b", "second")]
    with pytest.raises(ValueError, match="'b' is empty"):
        bench_prompts.parse_prompts("=== a\nx\n=== b\n\n")
    with pytest.raises(ValueError, match="two prompts are named 'a'"):
        bench_prompts.parse_prompts("=== a\nx\n=== a\ny")
