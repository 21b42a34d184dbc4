"""Every statistic of a reply, declared once: `run --json`, exports, summaries and docs/commands.md
read this table.

To add one that needs a new measurement: a field in `wire/records.py`, the place in the engine that
measures it, and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from eaglechat.wire.records import ReplyTimings
from eaglechat.wire.stats import Measured, SpeculationStats
from eaglechat.words.wording import one_decimal, percent, two_decimals


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """A number that is computed from the records of a reply."""

    name: str
    """Its field in JSON."""
    meaning: str
    """What it is, with its unit or formula, for somebody who has not seen the number before."""
    value: Callable[[Measured], Any]
    """None where it is not known."""
    table: Literal["speculation", "timings"]
    """Its object in `run --json`. `speculation` needs an engine that reports acceptance."""
    json_default: float | None = None
    """What its object in `run --json` has where nothing was tested or generated."""
    by_part: bool = False
    """`run --json` has it for the reasoning and the answer, too."""
    summary: str = ""
    """Its part of a reply's summary in one line; {value} and the counts of acceptance are filled
    in. Empty: the summary does without it."""
    digits: Callable[[float | None], str] = one_decimal
    """How a summary writes the value."""


def _count(name: str, meaning: str, value: Callable[[SpeculationStats], object]) -> Statistic:
    """A count of the rounds' records."""
    return Statistic(
        name=name,
        meaning=meaning,
        value=lambda measured: value(measured.stats) if measured.stats else None,
        table="speculation",
    )


def _time(name: str, meaning: str, value: Callable[[ReplyTimings], float | None]) -> Statistic:
    """A time of a whole reply, or a count beside it."""
    return Statistic(
        name=name,
        meaning=meaning,
        value=lambda measured: value(measured.timings) if measured.timings else None,
        table="timings",
    )


ACCEPTANCE_RATE = Statistic(
    name="acceptance_rate",
    meaning="accepted / tested",
    value=lambda measured: measured.stats.acceptance_rate if measured.stats else None,
    table="speculation",
    json_default=0.0,
    by_part=True,
    summary="accepted {stats.accepted:,} of {stats.tested:,} tested draft tokens ({value})",
    digits=percent,
)

MEAN_ACCEPTED_LENGTH = Statistic(
    name="mean_accepted_length",
    meaning="1 + accepted / rounds with a draft: tokens per pass of the target, its own and the "
    "accepted ones",
    value=lambda measured: measured.stats.mean_accepted_length if measured.stats else None,
    table="speculation",
    json_default=1.0,
    by_part=True,
    summary="mean accepted length {value}",
    digits=two_decimals,
)

PER_POSITION = Statistic(
    name="per_position",
    meaning="Acceptance of the first drafted token of a round, the second, and so on, among the "
    "rounds that tested it; in a tree, by depth",
    value=lambda measured: measured.stats.per_position if measured.stats else None,
    table="speculation",
)

TOKENS_PER_SECOND = Statistic(
    name="tokens_per_second",
    meaning="tokens / time from the end of prefill",
    value=lambda measured: measured.tokens_per_second,
    table="timings",
    json_default=0.0,
    by_part=True,
    summary="{value} tok/s",
)

STATISTICS: tuple[Statistic, ...] = (
    _count("rounds", "Passes of the target", lambda s: s.rounds),
    _count("drafted", "Drafted tokens", lambda s: s.drafted),
    _count("tested", "Drafted tokens up to the first one that the target rejected",
           lambda s: s.tested),
    _count("accepted", "Tested tokens that the target would have written, too",
           lambda s: s.accepted),
    ACCEPTANCE_RATE,
    MEAN_ACCEPTED_LENGTH,
    PER_POSITION,
    _count("trees", "Rounds whose draft was a tree", lambda s: s.trees),
    _count("siblings", "Tokens of a tree that were rejected beside another one tested in the same "
           "place", lambda s: s.siblings),
    _count("by_drafter", "The counts for each drafter", lambda s: s.by_drafter),
    _time("prefill_ms", "Reading the prompt", lambda t: t.prefill_ms),
    _time("prefill_tokens", "Prompt tokens that were read, without those in the KV cache",
          lambda t: t.prefill_tokens),
    _time("generation_ms", "From the end of prefill to the end of the reply",
          lambda t: t.generation_ms),
    TOKENS_PER_SECOND,
    _time("draft_ms", "The draft's decoder: reading the latest accepted tokens, then a step for "
          "each further drafted token", lambda t: t.draft_ms),
    _time("verify_ms", "The target's pass over its last token and all drafted tokens",
          lambda t: t.verify_ms),
)  # fmt: skip
"""In the order in which JSON and the documentation have them."""

_SPEED_FIRST = (TOKENS_PER_SECOND, *(s for s in STATISTICS if s is not TOKENS_PER_SECOND))


def in_json(table: str, measured: Measured) -> dict[str, Any]:
    """The statistics of one object of `run --json`."""
    if table == "timings" and measured.timings is None:
        return {s.name: None for s in STATISTICS if s.table == table}
    values = {s: s.value(measured) for s in STATISTICS if s.table == table}
    if table == "speculation" and measured.stats and measured.stats.is_of_whole_reply:
        counted = ("drafted", "accepted", MEAN_ACCEPTED_LENGTH.name, "by_drafter")
        return {s.name: value if s.name in counted else None for s, value in values.items()}
    return {s.name: s.json_default if value is None else value for s, value in values.items()}


def part_in_json(measured: Measured) -> dict[str, Any]:
    """The statistics that `run --json` has of each part of a reply."""
    return {s.name: s.value(measured) for s in _SPEED_FIRST if s.by_part}


def all_in_json(measured: Measured) -> dict[str, Any]:
    """Every statistic, and the counts behind them, as an export has them."""
    known = {s.name: s.value(measured) for s in STATISTICS}
    counts = msgspec.to_builtins(measured.stats) if measured.stats else {}
    built: dict[str, Any] = msgspec.to_builtins({**counts, **known})
    return built


def summary(measured: Measured) -> list[str]:
    """The summarised statistics of a reply that are known."""
    known = [
        s.summary.format(value=s.digits(s.value(measured)), stats=measured.stats)
        for s in _SPEED_FIRST
        if s.summary and s.value(measured) is not None
    ]
    if measured.stats and measured.stats.is_of_whole_reply:
        known.append(of_whole_reply(measured.stats))
    return known


def of_whole_reply(stats: SpeculationStats) -> str:
    """The counts of a server that counts whole replies."""
    return f"accepted {stats.accepted:,} of {stats.drafted:,} drafted tokens"
