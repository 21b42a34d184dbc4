"""What of a chat is in the context, what leaves next, and what room the next reply has.

Lengths are the engine's where it reported them: the cache's after each reply. The rest is estimated
from the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from eaglechat.chat.conversation.session import ChatSession
from eaglechat.chat.conversation.turns import Question, Reply, Turn, TurnId
from eaglechat.chat.recording import TurnPart
from eaglechat.chat.writing.parts import shown, text_of, tokens_about

_ROOM = 8
"""The engine lets turns leave before a reply that has not one part in so many of the context."""


@dataclass(frozen=True)
class TurnLength:
    """A question with its reply. `tokens` is an estimate unless it is measured."""

    title: str
    tokens: int
    is_measured: bool
    is_in: bool
    """It is in the context."""


@dataclass(frozen=True)
class ContextUse:
    """The context as the next question finds it; all lengths in tokens."""

    n_ctx: int
    used: int
    draft: int
    """Of what stands in the prompt, estimated."""
    wanted: int
    """Free for a reply, or turns leave before it."""
    turns: tuple[TurnLength, ...]

    @property
    def room(self) -> int:
        """What the next reply can have without any turn leaving."""
        return max(0, self.n_ctx - self.used - self.draft)

    @property
    def leaves(self) -> TurnLength | None:
        """The turn that leaves first."""
        return next((turn for turn in self.turns if turn.is_in), None)


def context_use(
    session: ChatSession, draft: Sequence[TurnPart], edited: TurnId | None = None
) -> ContextUse:
    """The context of a chat with this in its prompt, or in place of a question and what follows."""
    path = list(takewhile(lambda turn: turn.id != edited, session.turns.path))
    turns = _turns(session, path)
    limit = session.settings.generation.max_tokens or session.n_ctx
    estimated = sum(turn.tokens for turn in turns if turn.is_in)
    # Not the cache's length: it may hold another version, or what was deleted.
    used = (_n_past(path[-1]) if path else 0) or estimated
    return ContextUse(
        n_ctx=session.n_ctx,
        # The chat may be from a larger context, of which this one holds the end.
        used=min(used, session.n_ctx) if session.n_ctx else used,
        draft=tokens_about(text_of(draft)),
        wanted=min(limit, session.n_ctx // _ROOM),
        turns=turns,
    )


def _turns(session: ChatSession, path: Sequence[Turn]) -> tuple[TurnLength, ...]:
    found: list[TurnLength] = []
    is_in, before = session.first_question is None, 0
    for place, turn in enumerate(path):
        if not isinstance(turn, Question):
            continue
        is_in = is_in or turn.id == session.first_question
        reply = path[place + 1] if place + 1 < len(path) else None
        after = _n_past(reply)
        text = turn.text + (reply.text if reply is not None else "")
        is_measured = after > before > 0 or (after > 0 and not found)
        length = after - before if is_measured else tokens_about(text)
        title = " ".join(shown(turn.parts).split())
        found.append(TurnLength(title, length, is_measured, is_in))
        before = after
    return tuple(found)


def _n_past(reply: Turn | None) -> int:
    """Tokens in the cache behind a reply; 0 where that is not known."""
    return reply.recording.n_past if isinstance(reply, Reply) else 0
