"""Why a session does not do what it was asked to do, and its short news, in sentences.

A function below returns None where nothing stands in the way. `{chat.stop}` in a sentence stands
for the key of that command: the screen fills it in. `hello` is None while no engine runs.
"""

from __future__ import annotations

from pathlib import Path

from eaglechat.chat.controls import Controls
from eaglechat.chat.recording import Recording, Terms
from eaglechat.chat.turns import Reply, TurnId, Turns
from eaglechat.wire.protocol import OWN_ENGINE, Capabilities, Hello, PairInfo, Reasoning
from eaglechat.wire.records import FinishReason
from eaglechat.wire.stats import DrafterStats

BUSY = "A reply is being written: {chat.stop} stops it."
NOT_LOADED = "The models are not loaded: {chat.load_again} loads them."
TURN_GONE = "This turn was deleted."
NOTHING_DELETED = "Nothing has been deleted since this chat was opened."
STOPPED_EMPTY = "Stopped before the first token."
LOADED_AGAIN = "The models are loaded again."
IS_COPY = (
    "This chat is open in another eaglechat. What you write here goes into a copy, which is listed "
    "separately."
)
SWITCHED_OFF = "you switched it off"
"""Why nothing is drafted, as it stands behind a colon."""

_FEWEST_ROUNDS, _LEAST_SHARE = 100, 0.05
"""After so many rounds, a draft with fewer accepted tokens per round than this does not fit."""


def cannot_answer_now(recording: Recording | None, reasoning: Reasoning) -> str | None:
    if recording is None or not recording.has_reasoning or recording.is_answering:
        return "The model is not thinking now."
    if not reasoning.can_end:
        return "This model's chat template has no way to end its thinking."
    return None


def speculation_off(pair: PairInfo | None, controls: Controls, stopped: str | None) -> str | None:
    """Why nothing is drafted, as it stands behind a colon. `stopped` is the reason for which
    speculation stopped by itself in the middle of the reply."""
    if pair is not None and pair.speculation_off is not None:
        return pair.speculation_off
    if not controls.enabled:
        return SWITCHED_OFF
    if controls.n_draft_max == 0:
        return "n_draft_max is 0"
    if pair is not None and not pair.drafters and not controls.ngram:
        return "no draft is loaded, and n-grams are off"
    return stopped


def only_read(target: Path) -> str:
    """That the models of a chat are not on this machine."""
    return (
        f"{target} no longer exists, so this chat is read-only. "
        "{chat.load_again} loads the models once they are back."
    )


def off(why: str) -> str:
    return f"Speculation is off: {why}."


def no_drafter(pair: PairInfo | None, controls: Controls) -> str | None:
    why = pair.no_drafter(controls.drafter) if pair is not None else None
    return f"The drafter {controls.drafter} cannot draft: {why}." if why else None


def chains_only(pair: PairInfo | None) -> str | None:
    why = pair.chains_only if pair is not None else None
    return f"This pair cannot draft trees: {why}." if why else None


def misfit(draft: DrafterStats, info: PairInfo) -> str | None:
    """A warning about a draft model that does not fit the target. None if it fits, if it is the
    target's own, or if there were too few rounds.

    Accepted tokens are divided by rounds: every round verifies at least the first drafted token.
    """
    drafter = info.drafter
    is_in_target = drafter is not None and drafter.file is None
    if is_in_target or draft.rounds < _FEWEST_ROUNDS:
        return None
    if draft.accepted >= _LEAST_SHARE * draft.rounds:
        return None
    layers = ", ".join(map(str, drafter.layers)) if drafter else ""
    reads = f", or was converted to read the wrong layers of it ({layers})" if layers else ""
    return (
        f"Of the draft's tokens, {draft.accepted} were accepted in {draft.rounds} rounds. It was "
        f"probably made for another model than this target{reads}: try another draft, or load the "
        "target alone."
    )


def not_saved(file: Path, error: OSError) -> str:
    """That the chat cannot be written to the file of all chats now."""
    return f"This chat cannot be saved to {file}: {error.strerror or error}. Retrying every second."


# What an engine cannot do


def no_comparison(hello: Hello | None) -> str | None:
    if can_of(hello).plain:
        return None
    return (
        f"{subject(hello)} drafts the way it was started. To compare, name the same model without "
        "a draft as plain_model in its entry in config.toml."
    )


def cannot_continue(turns: Turns, id: TurnId, terms: Terms, hello: Hello | None) -> str | None:
    reply, can = turns.find(id), can_of(hello)
    if not isinstance(reply, Reply):
        return "There is no reply to continue yet."
    if turns.below(id):
        return "Only the last reply of a chat can be continued."
    end = reply.recording.end
    if end is not None and end.finish_reason is FinishReason.STOP:
        return "The reply is complete: there is nothing to continue."
    if reply.recording.terms.target != terms.target:
        return "Another model wrote the reply: answer the question again instead."
    if not (can.own or can.goes_on_from_text):
        return f"{subject(hello)} cannot continue a reply."
    is_known = can.goes_on_from_text or reply.recording.ids
    return None if is_known else "The tokens of the reply are not known, so it cannot be continued."


def can_of(hello: Hello | None) -> Capabilities:
    """What an engine can do: all that eaglechat's own can while none runs."""
    return OWN_ENGINE if hello is None else hello.can


def subject(hello: Hello | None) -> str:
    """The engine at the beginning of a sentence."""
    name = "eaglechat" if hello is None else hello.engine
    return "This server" if name == "this server" else name
