"""Short texts about a reply: its progress, how it ended, and its numbers in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eaglechat.chat.headline import headline_of
from eaglechat.chat.recording import Recording
from eaglechat.wire.protocol import Loading
from eaglechat.wire.records import FinishReason, Prefill
from eaglechat.wire.stats import PartStats
from eaglechat.words.headline import in_short
from eaglechat.words.wording import (
    percent,
    plural,
    tokens_per_second,
    two_decimals,
)

if TYPE_CHECKING:
    # Not imported: the command line reads this file at its start.
    from eaglechat.chat.session import Running

ENDINGS = {
    FinishReason.CANCELLED: "stopped",
    FinishReason.LENGTH: "token limit reached",
    FinishReason.CONTEXT: "context full",
}
"""Why a reply ended, for each reason other than that the model ended it."""


def progress(running: Running) -> str:
    """What the engine is doing for the request in progress."""
    recording = running.turn.recording
    if len(recording.rounds) > recording.n_before:
        return "writing…"
    return before_writing(running.loading, running.prefill)


def before_writing(loading: Loading | None, prefill: Prefill | None) -> str:
    """What the engine does before the first token."""
    if prefill is None and loading is not None:
        if loading.stage == "server":
            return "waiting for the server"
        return f"loading the {loading.stage} {loading.fraction:.0%}"
    if prefill is None or not prefill.total:
        # Most servers do not report the progress of prefill.
        return "reading the prompt"
    return f"reading the prompt {prefill.done / prefill.total:.0%}"


def thought(stats: PartStats | None) -> str:
    """The line of folded reasoning: how long it took, and how much of it was accepted."""
    if stats is None:
        return "thought"
    parts = [f"thought for {stats.ms / 1000:.0f} s", plural(stats.tokens, "token")]
    if stats.stats.acceptance_rate is not None:
        parts.append(f"{percent(stats.stats.acceptance_rate)} accepted")
        parts.append(f"length {two_decimals(stats.stats.mean_accepted_length)}")
    if stats.tokens_per_second is not None:
        parts.append(tokens_per_second(stats.tokens_per_second))
    return ", ".join(parts)


def end_note(recording: Recording, n_ctx: int) -> str:
    """The line below a reply that is over: why it ended, its length and its speed."""
    end = recording.end
    if end is None:
        return "cut off here"
    speed = plural(end.tokens, "token")
    if end.tokens_per_second > 0:
        speed += f", {tokens_per_second(end.tokens_per_second)}"
    reason = end.finish_reason
    if reason not in ENDINGS:
        return speed
    details = speed
    if reason is FinishReason.CONTEXT and recording.terms.engine:
        details = f"{speed}, and no more fits into its {n_ctx:,} tokens"
    elif reason is FinishReason.CONTEXT:
        details = f"this turn alone fills its {n_ctx:,} tokens (engine.n_ctx) · {speed}"
    elif reason is FinishReason.LENGTH and recording.terms.max_tokens:
        details = f"generation.max_tokens · {speed}"
    return f"{ENDINGS[reason]} · {details}"


def with_headline(recording: Recording, note: str) -> str:
    """The note below a reply, behind what it gained over plain decoding if that is known."""
    headline = headline_of(recording)
    is_told = headline.verdict is not None or headline.state == "repeats"
    return f"{in_short(headline)} · {note}" if is_told else note
