"""The numbers of a reply in JSON and in a line. docs/commands.md says what each is.

To add one: a field in `wire/records.py` or `wire/stats.py`, the place in the engine that measures
it, its name here, and its meaning there.
"""

from __future__ import annotations

from typing import Any

from eaglechat.chat.measured import Measured
from eaglechat.wire.records import FinishReason
from eaglechat.wire.stats import SpeculationStats
from eaglechat.words.wording import percent, plural, tokens_per_second, two_decimals

_SPECULATION = (
    *("rounds", "drafted", "tested", "accepted", "acceptance_rate", "mean_accepted_length"),
    *("per_position", "trees", "by_drafter"),
)
_TIMINGS = (
    *("prefill_ms", "prefill_tokens", "generation_ms", "tokens_per_second", "draft_ms"),
    "verify_ms",
)
_OF_WHOLE_REPLIES = ("drafted", "accepted", "mean_accepted_length", "by_drafter")
"""What a server may tell that counts whole replies."""

ENDINGS = {
    FinishReason.CANCELLED: "stopped",
    FinishReason.LENGTH: "token limit reached",
    FinishReason.CONTEXT: "context full",
}
"""Why a reply ended, for each reason other than that the model ended it."""


def speculation_in_json(stats: SpeculationStats) -> dict[str, Any]:
    """The counts and rates of `run --json` and of exported chats."""
    known = {name: getattr(stats, name) for name in _SPECULATION}
    if stats.is_of_whole_reply:
        return {name: known[name] if name in _OF_WHOLE_REPLIES else None for name in known}
    if not stats.tested:
        known["acceptance_rate"] = 0.0
    known["mean_accepted_length"] = stats.mean_accepted_length or 1.0
    return known


def timings_in_json(measured: Measured) -> dict[str, Any]:
    """The times of `run --json` and of exported chats; None after an error."""
    known = {name: getattr(measured.timings, name, None) for name in _TIMINGS}
    if measured.timings:
        known["tokens_per_second"] = measured.tokens_per_second or 0.0
    return known


def part_in_json(part: Measured) -> dict[str, Any]:
    """The object that `run --json` has of each part of a reply."""
    return {
        "tokens": part.tokens,
        "tokens_per_second": part.tokens_per_second,
        "acceptance_rate": part.stats.acceptance_rate,
        "mean_accepted_length": part.stats.mean_accepted_length,
    }


def summary(measured: Measured, *, is_over: bool = True) -> list[str]:
    """The numbers of a reply that are known, to be joined with commas. Its length and its speed are
    left out unless it is over."""
    stats, known = measured.stats, []
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


def of_part(part: Measured) -> str:
    """The speed of a part of a reply and what was kept of its drafts, as far as they are known."""
    known = [tokens_per_second(part.tokens_per_second)]
    if (rate := part.stats.acceptance_rate) is not None:
        length = two_decimals(part.stats.mean_accepted_length)
        known += [f"kept {percent(rate)}", f"{length} tokens a round"]
    return ", ".join(filter(None, known))


def of_whole_reply(stats: SpeculationStats) -> str:
    """The counts of a server that counts whole replies."""
    return f"accepted {stats.accepted:,} of {stats.drafted:,} drafted tokens"
