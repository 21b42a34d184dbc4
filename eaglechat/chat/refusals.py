"""Why a session does not do what it was asked to do, and other short news of its own.

`{chat.stop}` in a sentence stands for the key of that command: the view fills it in.
"""

from __future__ import annotations

from eaglechat.chat.controls import Controls
from eaglechat.chat.recording import Recording
from eaglechat.wire.protocol import PairInfo, Reasoning

GONE = "This turn was deleted."
STOPPED_EMPTY = "Stopped before the first token."
ELSEWHERE = (
    "This chat is open in another eaglechat. What you write here goes into a copy, "
    "which is listed separately."
)
NOTHING_RECOMMENDED = "This model's file recommends no temperature."
NOTHING_DELETED = "Nothing has been deleted since this chat was opened."
ENGINE_GONE = "The engine is not running. {chat.load_again} loads the models again."
BUSY = "A reply is being written: {chat.stop} stops it."


def deleted(turns: int) -> str:
    """Says how many turns were deleted, and how to restore them."""
    what = "1 turn" if turns == 1 else f"{turns:,} turns"
    return f"{what} deleted. {{chat.undo_delete}} restores it."


def no_more_siblings(count: int, by: int) -> str:
    """A turn has no sibling in this direction."""
    if count == 1:
        return "There is no other version of this turn yet."
    return f"This is the {'newest' if by > 0 else 'oldest'} of {count}."


def stays_with_chains(why: str) -> str:
    """The user asked for tree drafts, but this pair can only draft chains."""
    return f"Drafts stay chains: {why}."


def cannot_answer_now(recording: Recording | None, reasoning: Reasoning) -> str | None:
    """Why the reasoning cannot be ended, or None if it can."""
    if recording is None or not recording.has_reasoning or recording.is_answering:
        return "The model is not thinking now."
    if not reasoning.can_end:
        return "This model's chat template has no way to end its thinking."
    return None


def speculation_off(
    pair: PairInfo | None, controls: Controls, stopped: str | None, is_comparison: bool
) -> str | None:
    """Why nothing is drafted, or None if speculation is on. `stopped` is the reason for which
    speculation stopped by itself in the middle of the reply."""
    if pair is not None and pair.speculation_off is not None:
        return pair.speculation_off
    if is_comparison:
        return "this is the comparison with plain decoding"
    if not controls.enabled:
        return "you switched it off"
    if controls.n_draft_max == 0:
        return "n_draft_max is 0"
    if pair is not None and pair.draft is None and not controls.ngram:
        return "no draft is loaded, and n-grams are off"
    return stopped
