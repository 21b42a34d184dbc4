"""The request in progress."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eaglechat.chat.conversation.turns import Comparison, Reply, TurnId
from eaglechat.wire.protocol import Loading
from eaglechat.wire.records import Prefill, ReplyEnd, Round, Window


@dataclass
class Running:
    """A reply to `question` that is being written, or a comparison with one."""

    turn: Reply | Comparison
    question: TurnId
    before: ReplyEnd | None = None
    """How a reply that goes on had ended."""
    so_far: ReplyEnd | None = None
    """What that one had taken."""
    n_before: int = 0
    """Rounds it had."""
    request_id: int = 0
    loading: Loading | None = None
    prefill: Prefill | None = None
    window: Window | None = None

    def in_place(self, round_: Round) -> Round:
        """A round as one of the whole reply."""
        return replace(round_, index=self.n_before + round_.index)

    @property
    def is_comparison(self) -> bool:
        return isinstance(self.turn, Comparison)
