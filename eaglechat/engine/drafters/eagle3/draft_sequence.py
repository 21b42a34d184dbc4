"""What a draft knows of one sequence of its target: what it holds, what waits, what it proposed."""

from __future__ import annotations

from dataclasses import dataclass, field

from eaglechat.engine.drafters.eagle3.waiting_rows import WaitingRows


@dataclass
class DraftSequence:
    """What a session knows of one sequence.

    Rows wait here from `process` to the next `draft`, at the positions from `taken` on. The last
    one waits because its next token is not known before it is sampled.
    """

    rows: WaitingRows
    taken: int = 0
    """Positions from 0 on that the draft's KV cache truly holds, or held before its window."""
    window_start: int = 0
    """The first of them that it still holds."""
    verify_start: int = 0
    """Index among the waiting rows of the last batch's first row."""
    drafted: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)

    def shift(self, start: int, end: int) -> None:
        """Drop the positions from `start` up to `end` and close the gap. Features hold no
        position, so those that wait stay as they are."""
        self.rows.remove(max(0, start - self.taken), max(0, end - self.taken))
        self.taken = _shifted(self.taken, start, end)
        self.window_start = _shifted(self.window_start, start, end)

    @property
    def known(self) -> int:
        """Positions from 0 on whose features were seen."""
        return self.taken + len(self.rows)


def _shifted(position: int, start: int, end: int) -> int:
    """Where a position is after those from `start` up to `end` have left."""
    return min(position, max(start, position - (end - start)))
