"""What a session says of its own: why it does not do what it was asked to do, and short news.

Why a reply cannot be compared or continued is said beside the conditions, in `comparing.py` and
`conversation/continuation.py`. `{chat.stop}` in a sentence stands for the key of that command: the
view fills it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eaglechat.chat.controls import STARTED_WITH, Controls, not_followed
from eaglechat.chat.recording import Recording
from eaglechat.wire.protocol import AUTO, Hello, PairInfo, Reasoning
from eaglechat.wire.stats import DrafterStats

_FEWEST_ROUNDS, _LEAST_SHARE = 100, 0.05
"""After so many rounds, a draft with fewer accepted tokens per round than this does not fit."""

GONE = "This turn was deleted."
STOPPED_EMPTY = "Stopped before the first token."
ELSEWHERE = (
    "This chat is open in another eaglechat. What you write here goes into a copy, "
    "which is listed separately."
)
NOTHING_RECOMMENDED = "This model's file recommends no temperature."
LOADED_AGAIN = "The models are loaded again."
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


def no_role(name: str, problem: str | None) -> str:
    """The role of a chat cannot be used; `problem` is what is wrong with its file."""
    why = problem or f"The role “{name}” no longer exists."
    return f"{why} This chat continues without it."


def misfit(draft: DrafterStats, info: PairInfo) -> str | None:
    """A warning about a draft model that does not fit the target. None if it fits, or if there were
    too few rounds.

    Accepted tokens are divided by rounds: every round verifies at least the first drafted token.
    """
    if draft.rounds < _FEWEST_ROUNDS or draft.accepted >= _LEAST_SHARE * draft.rounds:
        return None
    layers = ", ".join(map(str, info.target_layers))
    reads = f", or was converted to read the wrong layers of it ({layers})" if layers else ""
    return (
        f"Of the draft's tokens, {draft.accepted} were accepted in {draft.rounds} rounds. It was "
        f"probably made for another model than this target{reads}: try another draft, or load the "
        "target alone."
    )


# What an engine cannot do. These are None if it can, or if no engine runs (`hello` is None).


def engine_as_subject(hello: Hello) -> str:
    """The name of an engine at the beginning of a sentence."""
    return "This server" if hello.engine == "this server" else hello.engine


def no_comparison(hello: Hello | None) -> str | None:
    """Why a reply cannot be written again without speculation."""
    if hello is None or hello.can.plain:
        return None
    return (
        f"{engine_as_subject(hello)} drafts the way it was started. To compare, name the same "
        "model without a draft as plain_model in its entry in config.toml."
    )


def no_prompt(hello: Hello | None) -> str | None:
    """Why the prompt cannot be shown."""
    if hello is None or hello.can.prompt:
        return None
    return f"{engine_as_subject(hello)} does not show prompts."


def no_drafting(hello: Hello | None, change: Mapping[str, Any]) -> str | None:
    """Why a change of these controls has no effect on the drafting."""
    if hello is None or not not_followed(hello) & change.keys():
        return None
    if hello.can.draft_length:
        return f"{engine_as_subject(hello)} drafts only chains, without n-grams."
    return (
        f"{engine_as_subject(hello)} drafts the way it was started; eaglechat cannot change that."
    )


def no_auto(hello: Hello | None, controls: Controls) -> str | None:
    """Why the draft length cannot be auto."""
    if hello is None or not hello.can.draft_length:
        return None
    if controls.n_draft_max != AUTO or hello.can.auto:
        return None
    return f"{engine_as_subject(hello)} cannot choose the draft length itself: set one by hand."


def restart(hello: Hello | None, change: Mapping[str, Any]) -> str | None:
    """A change of these controls restarts the engine's program."""
    if hello is None or not hello.can.restarts or not STARTED_WITH & change.keys():
        return None
    return f"{engine_as_subject(hello)} restarts with this before the next reply."


def not_yet(hello: Hello | None) -> str | None:
    """A change has no effect on the reply that is being written."""
    if hello is None or hello.can.live_draft_length:
        return None
    return f"{engine_as_subject(hello)} applies this from the next reply on."
