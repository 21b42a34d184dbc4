"""The numbers the speculation panel and the status line show, taken from the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eaglechat.chat import wording
from eaglechat.chat.conversation import Comparison, Controls, Conversation
from eaglechat.wire.protocol import AUTO, PairInfo
from eaglechat.wire.records import AutoDraft, Round, summed
from eaglechat.wire.stats import ROLLING_ROUNDS, SpeculationStats


@dataclass(frozen=True)
class Numbers:
    """One picture of the loop. None stands for “not measured yet”."""

    rolling: SpeculationStats
    reply: SpeculationStats
    tokens_per_second: float | None
    is_comparison: bool
    rounds: tuple[Round, ...]
    """The latest rounds of the reply on show, oldest first."""
    draft_ms: float | None
    verify_ms: float | None
    """Means over the latest rounds, per round."""
    n_past: int
    n_ctx: int
    prefill: str
    off: str | None
    """Why nothing is drafted, or None."""
    comparison: Comparison | None
    controls: Controls
    auto: AutoDraft | None
    """The latest choice of the automatic draft length; None while it is not in force."""


def numbers_of(
    conversation: Conversation,
    controls: Controls,
    pair: PairInfo | None,
    most_rounds: int = 512,
) -> Numbers:
    """The numbers at this moment."""
    run = conversation.shown
    rounds = tuple(run.rounds[-most_rounds:]) if run else ()
    latest = rounds[-ROLLING_ROUNDS:]
    is_comparison = run is not None and run.is_comparison
    return Numbers(
        rolling=conversation.rolling.stats(),
        reply=run.stats if run else SpeculationStats(),
        tokens_per_second=run.tokens_per_second if run else None,
        is_comparison=is_comparison,
        rounds=rounds,
        draft_ms=_mean([r.timings.draft_ms for r in latest if r.drafted]),
        verify_ms=_mean([r.timings.verify_ms for r in latest]),
        n_past=conversation.n_past,
        n_ctx=pair.n_ctx if pair else 0,
        prefill=_prefill(conversation),
        off=wording.speculation_off(
            pair, controls, run.speculation_stopped if run else None, is_comparison
        ),
        comparison=conversation.comparison,
        controls=controls,
        auto=_auto(rounds) if controls.n_draft_max == AUTO else None,
    )


def _auto(rounds: Sequence[Round]) -> AutoDraft | None:
    return rounds[-1].auto if rounds else None


def _mean(times: list[float | None]) -> float | None:
    """None where there are none, or one of them is not reported."""
    total = summed(times)
    return total / len(times) if times and total is not None else None


def _prefill(conversation: Conversation) -> str:
    run = conversation.shown
    if run is None:
        return "-"
    if run.end is not None:
        times = run.end.timings
        counts = f"{times.prefill_tokens:,} read, {times.reused_tokens:,} kept"
        return f"{counts}, {times.prefill_ms:,.0f} ms"
    if run.prefill is not None:
        return f"{run.prefill.done:,} of {run.prefill.total:,}, {run.prefill.reused:,} kept"
    return "starting"
