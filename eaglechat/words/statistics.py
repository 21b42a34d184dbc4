"""Every statistic of a reply: `run --json`, exports and docs/commands.md read this table.

To add one that needs a new measurement: a field in `wire/records.py`, the place in the engine that
measures it, and an entry here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from eaglechat.chat.measured import Measured
from eaglechat.wire.records import FinishReason
from eaglechat.wire.stats import SpeculationStats
from eaglechat.words.wording import percent, plural, tokens_per_second, two_decimals

Table = Literal["speculation", "timings"]


@dataclass(frozen=True)
class Statistic:
    """A number of a reply."""

    name: str
    """Its field in JSON, and in the records of a reply."""
    table: Table
    """Its object in `run --json`. `speculation` needs an engine that reports acceptance."""
    meaning: str
    """What it is, with its unit or formula, for somebody who has not seen the number before."""

    def value(self, measured: Measured) -> Any:
        """None where it is not known."""
        if self.name == _SPEED:
            return measured.tokens_per_second
        of = measured.stats if self.table == "speculation" else measured.timings
        return None if of is None else getattr(of, self.name)


_SPEED = "tokens_per_second"
STATISTICS = (
    Statistic("rounds", "speculation", "Passes of the target"),
    Statistic("drafted", "speculation", "Drafted tokens"),
    Statistic("tested", "speculation",
              "Drafted tokens up to the first one that the target rejected"),
    Statistic("accepted", "speculation", "Tested tokens that the target would have written, too"),
    Statistic("acceptance_rate", "speculation", "accepted / tested"),
    Statistic("mean_accepted_length", "speculation",
              "1 + accepted / rounds with a draft: tokens per pass of the target, its own and the "
              "accepted ones"),
    Statistic("per_position", "speculation",
              "Acceptance of the first drafted token of a round, the second, and so on, among the "
              "rounds that tested it; in a tree, by depth"),
    Statistic("trees", "speculation", "Rounds whose draft was a tree"),
    Statistic("by_drafter", "speculation", "The counts for each drafter"),
    Statistic("prefill_ms", "timings", "Reading the prompt"),
    Statistic("prefill_tokens", "timings",
              "Prompt tokens that were read, without those in the KV cache"),
    Statistic("generation_ms", "timings", "From the end of prefill to the end of the reply"),
    Statistic(_SPEED, "timings", "tokens / time from the end of prefill"),
    Statistic("draft_ms", "timings",
              "The draft's decoder: reading the latest accepted tokens, then a step for each "
              "further drafted token"),
    Statistic("verify_ms", "timings",
              "The target's pass over its last token and all drafted tokens"),
)  # fmt: skip
"""In the order in which JSON and the documentation have them."""

_DEFAULTS = {"acceptance_rate": 0.0, "mean_accepted_length": 1.0, _SPEED: 0.0}
"""What `run --json` has where nothing was tested or generated."""
_OF_WHOLE_REPLIES = ("drafted", "accepted", "mean_accepted_length", "by_drafter")
"""What a server may tell that counts whole replies."""

ENDINGS = {
    FinishReason.CANCELLED: "stopped",
    FinishReason.LENGTH: "token limit reached",
    FinishReason.CONTEXT: "context full",
}
"""Why a reply ended, for each reason other than that the model ended it."""


def in_json(table: Table, measured: Measured) -> dict[str, Any]:
    """The statistics of one object of `run --json`."""
    values = {s.name: s.value(measured) for s in STATISTICS if s.table == table}
    if table == "timings" and measured.timings is None:
        return dict.fromkeys(values)
    if table == "speculation" and measured.stats and measured.stats.is_of_whole_reply:
        return {name: values[name] if name in _OF_WHOLE_REPLIES else None for name in values}
    return {name: _DEFAULTS.get(name) if values[name] is None else values[name] for name in values}


def part_in_json(measured: Measured) -> dict[str, Any]:
    """The statistics that `run --json` has of each part of a reply."""
    known = {s.name: s.value(measured) for s in STATISTICS}
    return {name: known[name] for name in (_SPEED, "acceptance_rate", "mean_accepted_length")}


def all_in_json(measured: Measured) -> dict[str, Any]:
    """Every statistic, and the counts behind them, as an export has them."""
    known = {s.name: s.value(measured) for s in STATISTICS}
    counts = msgspec.to_builtins(measured.stats) if measured.stats else {}
    built: dict[str, Any] = msgspec.to_builtins({**counts, **known})
    return built


def summary(measured: Measured, *, is_over: bool = True) -> list[str]:
    """The numbers of a reply that are known, to be joined with commas. Its length and its speed are
    left out unless it is over."""
    stats, known = measured.stats or SpeculationStats(), []
    if is_over:
        known.append(plural(measured.tokens, "token"))
    if is_over and (speed := measured.tokens_per_second) is not None:
        known.append(tokens_per_second(speed))
    if (rate := stats.acceptance_rate) is not None:
        counts = f"{stats.accepted:,} of {stats.tested:,}"
        known.append(f"accepted {counts} tested draft tokens ({percent(rate)})")
    if (length := stats.mean_accepted_length) is not None:
        known.append(f"mean accepted length {two_decimals(length)}")
    if stats.is_of_whole_reply:
        known.append(of_whole_reply(stats))
    return known


def of_whole_reply(stats: SpeculationStats) -> str:
    """The counts of a server that counts whole replies."""
    return f"accepted {stats.accepted:,} of {stats.drafted:,} drafted tokens"
