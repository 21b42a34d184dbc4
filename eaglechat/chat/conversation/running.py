"""The request in progress."""

from __future__ import annotations

from dataclasses import dataclass

from eaglechat.chat import wording
from eaglechat.chat.conversation.turns import Comparison, Reply, TurnId
from eaglechat.wire.records import Prefill, ReplyEnd, Window


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
    prefill: Prefill | None = None
    window: Window | None = None

    @property
    def is_comparison(self) -> bool:
        return isinstance(self.turn, Comparison)

    @property
    def progress(self) -> str:
        """What is being done for it."""
        if len(self.turn.recording.rounds) == self.n_before:
            prefill = self.prefill
            share = prefill.done / prefill.total if prefill and prefill.total else 0.0
            return wording.reading_prompt(share)
        return wording.COMPARING if self.is_comparison else wording.WRITING
