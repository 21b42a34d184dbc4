"""The report of a training run, as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eaglechat.hub.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from eaglechat.train.run.report import Measured
    from eaglechat.train.run.training import Outcome
    from eaglechat.train.settings import RunSettings


def beside(out: Path) -> Path:
    """Where the report of a draft lies."""
    return out.with_suffix(".md")


def text(outcome: Outcome, settings: RunSettings) -> str:
    """What was trained, and what it does in the engine."""
    state = outcome.state
    lines = [
        f"# {outcome.out.name}",
        "",
        f"An EAGLE-3 draft for {settings.target.name}: {format_bytes(outcome.size_bytes)}, reads "
        f"layers {', '.join(map(str, outcome.layers))}, drafts from "
        f"{outcome.draft_vocabulary:,} tokens.",
        "",
        f"Trained for {format_seconds(state.seconds)} ({state.tokens:,} tokens seen, "
        f"{settings.recipe.steps} unrolled steps) on {outcome.n_samples:,} samples; "
        f"{outcome.n_held_out:,} were held out. Training predicts on held-out replies: "
        f"{_rates(outcome.foreseen.per_position)}, mean accepted length "
        f"{outcome.foreseen.mean_accepted_length:.2f}.",
        "",
        f"Measured in the engine, greedy replies of at most {settings.report_tokens} tokens to "
        "held-out prompts:",
        "",
        "| Draft | n | Accepted at each position | Mean accepted length | Tokens/s | Plain | "
        "Speed-up |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, measured in (("before", outcome.before), ("this one", outcome.after)):
        lines += [_row(name, one) for one in measured]
    return "\n".join(lines)


def _row(name: str, measured: Measured) -> str:
    length = measured.stats.mean_accepted_length
    return (
        f"| {name} | {measured.n_draft_max} | {_rates(measured.stats.per_position)} | "
        f"{'-' if length is None else f'{length:.2f}'} | {measured.tokens_per_second:.0f} | "
        f"{measured.plain_tokens_per_second:.0f} | {measured.speed_up:.2f}x |"
    )


def _rates(per_position: tuple[float, ...]) -> str:
    return " ".join(f"{100 * rate:.0f}%" for rate in per_position) or "-"
