"""Why a session does not do what it was asked to do, and its short news: conditions and records.

`words/refusals.py` has the sentences. Why a reply cannot be continued is in
`conversation/continuation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from eaglechat.chat.controls import STARTED_WITH, Controls, not_followed
from eaglechat.chat.recording import Recording
from eaglechat.chat.writing.roles import RoleProblem
from eaglechat.wire.protocol import AUTO, DrafterChoice, Hello, PairInfo, Reasoning
from eaglechat.wire.stats import DrafterStats

_FEWEST_ROUNDS, _LEAST_SHARE = 100, 0.05
"""After so many rounds, a draft with fewer accepted tokens per round than this does not fit."""


class Remark(Enum):
    """What a session says without values."""

    BUSY = auto()
    ENGINE_GONE = auto()
    TURN_GONE = auto()
    NOTHING_DELETED = auto()
    STOPPED_EMPTY = auto()
    LOADED_AGAIN = auto()
    IS_COPY = auto()
    """Another eaglechat has the chat open, so this one is a copy."""
    NOT_THINKING = auto()
    THINKING_HAS_NO_END = auto()


class Limit(Enum):
    """What an engine cannot do, or does only later."""

    NO_PLAIN_REPLY = auto()
    NO_PROMPT = auto()
    NO_CONTINUATION = auto()
    CHAINS_WITHOUT_NGRAMS = auto()
    DRAFTING_IS_FIXED = auto()
    NO_AUTO = auto()
    RESTARTS = auto()
    FROM_NEXT_REPLY = auto()


class Off(Enum):
    """Why the session has nothing drafted. The engine's own reasons are text."""

    SWITCHED_OFF = auto()
    LENGTH_IS_0 = auto()
    NO_DRAFTER = auto()


@dataclass(frozen=True)
class EngineLimit:
    """A limit of the engine with this name."""

    engine: str
    limit: Limit


@dataclass(frozen=True)
class Deleted:
    """So many turns were deleted."""

    turns: int


@dataclass(frozen=True)
class NoSibling:
    """A turn, one of `count` siblings, has none in this direction; newer ones are at +1."""

    count: int
    by: int


@dataclass(frozen=True)
class ChainsOnly:
    """The user asked for tree drafts, but this pair can only draft chains."""

    why: str


@dataclass(frozen=True)
class NoRole:
    """The role of a chat cannot be used; `problem` is what is wrong with its file, if there is
    one."""

    name: str
    problem: RoleProblem | None


@dataclass(frozen=True)
class NotSaved:
    """The chat cannot be written to the file of all chats now."""

    file: Path
    why: OSError


@dataclass(frozen=True)
class NoDrafter:
    """The pair has no drafter of this kind."""

    kind: DrafterChoice
    why: str


@dataclass(frozen=True)
class Misfit:
    """The draft model does not fit the target, of which it reads these layers."""

    accepted: int
    rounds: int
    layers: tuple[int, ...]


def cannot_answer_now(recording: Recording | None, reasoning: Reasoning) -> Remark | None:
    """Why the reasoning cannot be ended, or None if it can."""
    if recording is None or not recording.has_reasoning or recording.is_answering:
        return Remark.NOT_THINKING
    return None if reasoning.can_end else Remark.THINKING_HAS_NO_END


def speculation_off(
    pair: PairInfo | None, controls: Controls, stopped: str | None
) -> Off | str | None:
    """Why nothing is drafted, or None if speculation is on. `stopped` is the reason for which
    speculation stopped by itself in the middle of the reply."""
    if pair is not None and pair.speculation_off is not None:
        return pair.speculation_off
    if not controls.enabled:
        return Off.SWITCHED_OFF
    if controls.n_draft_max == 0:
        return Off.LENGTH_IS_0
    if pair is not None and not pair.drafters and not controls.ngram:
        return Off.NO_DRAFTER
    return stopped


def no_drafter(pair: PairInfo | None, controls: Controls) -> NoDrafter | None:
    """Why the drafter that these controls name cannot draft; None if it can."""
    why = pair.no_drafter(controls.drafter) if pair is not None else None
    return NoDrafter(controls.drafter, why) if why else None


def misfit(draft: DrafterStats, info: PairInfo) -> Misfit | None:
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
    return Misfit(draft.accepted, draft.rounds, drafter.layers if drafter else ())


# What an engine cannot do. These are None if it can, or if no engine runs (`hello` is None).


def no_comparison(hello: Hello | None) -> EngineLimit | None:
    """Why a reply cannot be written again without speculation."""
    if hello is None or hello.can.plain:
        return None
    return EngineLimit(hello.engine, Limit.NO_PLAIN_REPLY)


def no_prompt(hello: Hello | None) -> EngineLimit | None:
    """Why the prompt cannot be shown."""
    if hello is None or hello.can.prompt:
        return None
    return EngineLimit(hello.engine, Limit.NO_PROMPT)


def no_drafting(hello: Hello | None, change: Mapping[str, Any]) -> EngineLimit | None:
    """Why a change of these controls has no effect on the drafting."""
    if hello is None or not not_followed(hello) & change.keys():
        return None
    follows_length = hello.can.draft_length
    return EngineLimit(
        hello.engine, Limit.CHAINS_WITHOUT_NGRAMS if follows_length else Limit.DRAFTING_IS_FIXED
    )


def no_auto(hello: Hello | None, controls: Controls) -> EngineLimit | None:
    """Why the draft length cannot be auto."""
    if hello is None or not hello.can.draft_length:
        return None
    if controls.n_draft_max != AUTO or hello.can.own:
        return None
    return EngineLimit(hello.engine, Limit.NO_AUTO)


def restart(hello: Hello | None, change: Mapping[str, Any]) -> EngineLimit | None:
    """A change of these controls restarts the engine's program."""
    if hello is None or not hello.can.restarts or not STARTED_WITH & change.keys():
        return None
    return EngineLimit(hello.engine, Limit.RESTARTS)


def not_yet(hello: Hello | None) -> EngineLimit | None:
    """A change has no effect on the reply that is being written."""
    if hello is None or hello.can.own:
        return None
    return EngineLimit(hello.engine, Limit.FROM_NEXT_REPLY)
