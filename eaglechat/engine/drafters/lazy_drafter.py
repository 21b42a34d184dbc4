"""What drafters that read hidden states of the target have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from eaglechat.engine.drafters.base import Limits, Proposal, Spent, shifted
from eaglechat.engine.drafters.waiting_rows import WaitingRows
from eaglechat.engine.llama.branches import TRUNK
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import ProcessError


class LazyDrafter(ABC):
    """What it sees waits as rows, one for each position, until it drafts.

    The first `_taken` positions have been taken in: they are in the draft's KV cache, if it has
    one. Rows are those of the positions from there on. Both contexts stay the caller's.
    """

    name: str
    in_one_pass = False

    def __init__(self, target: Context, draft: Context, width: int) -> None:
        """`width` is that of a row."""
        self._target = target
        self.draft = draft
        """The context that drafts."""
        self._rows = WaitingRows(width)
        self._taken = 0
        self._batch_start = 0
        """Index among the waiting rows of the first row of the batch last seen."""
        self._batch = Batch(draft)
        self._process_s = self._draft_s = 0.0
        self._is_closed = False

    def close(self) -> None:
        """Free the batch and stop the export of states; call it before closing the contexts."""
        if not self._is_closed:
            self._is_closed = True
            self.set_export(False)
            self._batch.close()

    @property
    def known(self) -> int:
        return self._taken + len(self._rows)

    @property
    def waiting(self) -> int:
        return len(self._rows)

    @property
    def grows_trees(self) -> bool:
        return False

    @property
    def spent(self) -> Spent:
        return Spent(self._process_s * 1000.0, self._draft_s * 1000.0)

    @abstractmethod
    def set_export(self, enabled: bool) -> None: ...

    # --- what the target holds ---

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
        self._rewind(min(len(tokens), self.known))
        return self.known

    def _rewind(self, length: int) -> None:
        """Forget the positions from `length` on."""
        self._rows.keep(max(0, length - self._taken))
        self._taken = min(self._taken, length)
        self._forget(self._taken)

    def shift(self, start: int, end: int) -> None:
        """If it has not seen all of it, or its KV cache cannot shift, it knows nothing from `start`
        on."""
        if self.known < end or not self.draft.can_shift:
            self._rewind(min(start, self.known))
            return
        self._forget(self._taken)
        self._shift_taken(start, end)
        # Rows hold no position, so those that wait stay as they are.
        self._rows.remove(max(0, start - self._taken), max(0, end - self._taken))
        self._taken = shifted(self._taken, start, end)

    def _forget(self, start: int, end: int = -1) -> None:
        self.draft.forget(TRUNK, start, end)

    def _shift_taken(self, start: int, end: int) -> None:
        self.draft.shift(TRUNK, start, end)

    # --- a round ---

    def see(self, batch: Batch) -> None:
        """Keep a batch of this sequence that the target has just decoded. Raises ProcessError if
        rows are missing before it, DecodeError."""
        self.see_rows(batch, 0, len(batch))

    def see_rows(self, batch: Batch, first: int, last: int) -> None:
        """`see` for rows `first` to `last` - 1 of a batch, those of this sequence."""
        started, spent = time.perf_counter(), self._process_s
        if batch.positions[first] != self.known:
            raise ProcessError(
                f"the draft saw {self.known} positions, the batch goes on at "
                f"{batch.positions[first]}"
            )
        # A row is some ten thousand numbers: no more wait than a batch has.
        if len(self._rows) + last - first > self.draft.n_batch:
            self.take_in()
        self._batch_start = len(self._rows)
        self._keep(batch, first, last)
        # Set, not added to: `take_in` may have counted its own time.
        self._process_s = spent + time.perf_counter() - started

    @abstractmethod
    def _keep(self, batch: Batch, first: int, last: int) -> None:
        """Add what these rows of the batch exported to the waiting rows."""

    @abstractmethod
    def take_in(self) -> None: ...

    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """Raises ProcessError if rows are missing or the draft fails to decode, DecodeError."""
        if limits.n_max == 0 or n_past == 0:
            return Proposal()
        if self.known != n_past or not self._has_last:
            raise ProcessError(
                f"the draft saw {self.known} positions, drafting after position {n_past} needs "
                f"{n_past}"
            )
        started, process_before = time.perf_counter(), self._process_s
        proposal = self._draft(n_past, id_last, limits)
        in_process = self._process_s - process_before
        self._draft_s += time.perf_counter() - started - in_process
        return proposal

    @property
    def _has_last(self) -> bool:
        """Whether it has what it reads of the last known position."""
        return True

    @abstractmethod
    def _draft(self, n_past: int, id_last: int, limits: Limits) -> Proposal: ...

    def accept(self, path: Sequence[int]) -> None:
        self._rows.keep_path(self._batch_start + 1, path)


def decode(draft: Context, batch: Batch) -> None:
    """Run the draft's decoder. Raises ProcessError."""
    status = draft.decode(batch)
    if status != 0:
        raise ProcessError(f"the draft failed to decode (llama.cpp status {status})")
