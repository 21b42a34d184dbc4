"""The sentences for what a session says: why it does not do what was asked, and its short news.

`{chat.stop}` in a sentence stands for the key of that command: the screen fills it in.
"""

from __future__ import annotations

from collections.abc import Mapping

from eaglechat.chat.compared import Result
from eaglechat.chat.conversation.continuation import CannotContinue
from eaglechat.chat.conversation.session import Said
from eaglechat.chat.refusals import (
    ChainsOnly,
    Deleted,
    EngineLimit,
    Limit,
    Misfit,
    NoDrafter,
    NoRole,
    NoSibling,
    NotSaved,
    Off,
    Remark,
)
from eaglechat.words import comparing, failures, wording

SENTENCES: Mapping[Remark | CannotContinue, str] = {
    Remark.BUSY: "A reply is being written: {chat.stop} stops it.",
    Remark.ENGINE_GONE: "The engine is not running. {chat.load_again} loads the models again.",
    Remark.TURN_GONE: "This turn was deleted.",
    Remark.NOTHING_DELETED: "Nothing has been deleted since this chat was opened.",
    Remark.STOPPED_EMPTY: "Stopped before the first token.",
    Remark.LOADED_AGAIN: "The models are loaded again.",
    Remark.IS_COPY: (
        "This chat is open in another eaglechat. What you write here goes into a copy, "
        "which is listed separately."
    ),
    Remark.NOT_THINKING: "The model is not thinking now.",
    Remark.THINKING_HAS_NO_END: "This model's chat template has no way to end its thinking.",
    CannotContinue.NO_REPLY: "There is no reply to continue yet.",
    CannotContinue.NOT_LAST: "Only the last reply of a chat can be continued.",
    CannotContinue.COMPLETE: "The reply is complete: there is nothing to continue.",
    CannotContinue.OTHER_MODEL: (
        "Another model wrote the reply: answer the question again instead."
    ),
    CannotContinue.TOKENS_UNKNOWN: (
        "The tokens of the reply are not known, so it cannot be continued."
    ),
}

LIMITS: Mapping[Limit, str] = {
    Limit.NO_PLAIN_REPLY: (
        "drafts the way it was started. To compare, name the same model without a draft as "
        "plain_model in its entry in config.toml."
    ),
    Limit.NO_PROMPT: "does not show prompts.",
    Limit.NO_CONTINUATION: "cannot continue a reply.",
    Limit.CHAINS_WITHOUT_NGRAMS: "drafts only chains, without n-grams.",
    Limit.DRAFTING_IS_FIXED: "drafts the way it was started; eaglechat cannot change that.",
    Limit.NO_AUTO: "cannot choose the draft length itself: set one by hand.",
    Limit.RESTARTS: "restarts with this before the next reply.",
    Limit.FROM_NEXT_REPLY: "applies this from the next reply on.",
}

REASONS: Mapping[Off, str] = {
    Off.SWITCHED_OFF: "you switched it off",
    Off.LENGTH_IS_0: "n_draft_max is 0",
    Off.NO_DRAFTER: "no draft is loaded, and n-grams are off",
}


def sentence_of(said: Said) -> str:  # noqa: PLR0911 - one for each record
    """What the session says, as a sentence. A text is an engine's own and stays as it is."""
    match said:
        case str():
            return said
        case EngineLimit(engine, limit):
            return f"{engine_as_subject(engine)} {LIMITS[limit]}"
        case Deleted(turns):
            what = "1 turn" if turns == 1 else f"{turns:,} turns"
            return f"{what} deleted. {{chat.undo_delete}} restores it."
        case NoSibling(1, _):
            return "There is no other version of this turn yet."
        case NoSibling(count, by):
            return f"This is the {'newest' if by > 0 else 'oldest'} of {count}."
        case ChainsOnly(why):
            return f"This pair cannot draft trees: {why}."
        case NoRole(name, problem):
            why = (
                f"cannot be used: {failures.wrong_role(problem)}" if problem else "no longer exists"
            )
            return f"The role “{name}” {why}. This chat continues without it."
        case NotSaved(file, why):
            return (
                f"This chat cannot be saved to {file}: {failures.why(why)}. Retrying every second."
            )
        case NoDrafter(kind, why):
            return f"{wording.drafter(kind)} cannot draft: {why}."
        case Misfit():
            return _misfit(said)
        case Result():
            return comparing.sentence(said)
        case _:
            return SENTENCES[said]


def reason_of(reason: Off | str) -> str:
    """Why nothing is drafted, as it stands behind a colon."""
    return reason if isinstance(reason, str) else REASONS[reason]


def engine_as_subject(engine: str) -> str:
    """The name of an engine at the beginning of a sentence."""
    return "This server" if engine == "this server" else engine


def _misfit(found: Misfit) -> str:
    layers = ", ".join(map(str, found.layers))
    reads = f", or was converted to read the wrong layers of it ({layers})" if layers else ""
    return (
        f"Of the draft's tokens, {found.accepted} were accepted in {found.rounds} rounds. It was "
        f"probably made for another model than this target{reads}: try another draft, or load the "
        "target alone."
    )
