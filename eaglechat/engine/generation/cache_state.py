"""What the target's KV cache and the drafter hold of a conversation, in step with each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from eaglechat.engine.clock import ms_since
from eaglechat.engine.drafters.base import Proposal
from eaglechat.engine.generation.checkpoints import Checkpoint, Checkpoints
from eaglechat.engine.generation.context_window import common_prefix, find_cut
from eaglechat.engine.generation.guarded_drafters import GuardedDrafters
from eaglechat.engine.llama.branches import Branches
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import DecodeError
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

SEQ = 0
"""The one sequence there is."""

_NO_ROOM, _STOPPED = 1, 2
"""llama.cpp's statuses of a decode that found no cells, and of one that was cancelled."""


class CacheState:
    """The caches of one conversation; `tokens` are those whose KV the target holds.

    All that changes what the target holds goes through here, and the drafter is told. It knows as
    many tokens, or fewer where it was off, failed, or could not keep them; `resume` says how far
    the target has to go back for it.
    """

    def __init__(self, target: Context, drafters: GuardedDrafters, checkpoint_bytes: int) -> None:
        self._target = target
        self._drafters = drafters
        self._batch = Batch(target)
        self._branches = Branches(target)
        self.checkpoints = Checkpoints(checkpoint_bytes)
        self._proposal = Proposal()
        self._decode_ms = 0.0
        self.tokens: list[int] = []
        self.first_turn = 0
        """The oldest turn of the conversation that they begin with."""
        self.can_shift = target.can_shift

    def close(self) -> None:
        self._batch.close()

    @property
    def room(self) -> int:
        """Tokens that the context has room for."""
        return self._target.n_ctx - len(self.tokens)

    @property
    def longest_draft(self) -> int:
        """The most tokens behind the last one that fit, and that can be taken back."""
        limit = N_DRAFT_MAX_LIMIT if self._target.n_rollback is None else self._target.n_rollback
        return min(limit, self.room - 1)

    @property
    def is_behind(self) -> bool:
        """Whether the drafter has to see again what the target holds."""
        return self._drafters.on and self._drafters.known < len(self.tokens)

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
        """Keep what can stay of both caches where `tokens` are to be held, and drop the rest; how
        many of them are left. With `to_draft` a proposal comes next, and needs its drafter to know
        the end of them."""
        common = common_prefix(self.tokens, tokens)
        if self._target.n_rollback is not None:
            return self._resume_recurrent(tokens[:common])
        return self._cut(self._drafters.resume(tokens[:common], to_draft=to_draft))

    def save_checkpoint(self) -> None:
        """Keep what it takes to come back to the tokens held now, which the target cannot rewind
        to."""
        if self._target.n_rollback is None or not self.tokens:
            return
        length = len(self.tokens)
        drafter = self._drafters.mark() if self._drafters.known == length else None
        size = self._target.recurrent_size(SEQ)
        self.checkpoints.save(length, size, drafter, lambda: self._target.save_recurrent(SEQ))

    def _resume_recurrent(self, tokens: Sequence[int]) -> int:
        """Keep all that is held, or go back to a checkpoint.

        The drafter is not asked to see more: a recurrent state would be computed anew for it.
        """
        if len(tokens) == self._target.last_position(SEQ) + 1:
            kept = self._drafters.resume(tokens, to_draft=False)
            if kept == len(tokens):
                return kept
        return self._go_back(tokens)

    def _go_back(self, tokens: Sequence[int]) -> int:
        """Restore the longest checkpoint within `tokens` from which the drafter can go on too."""
        for checkpoint in self.checkpoints.up_to(len(tokens)):
            self._drafters.restore(checkpoint.length, checkpoint.drafter)
            held = tokens[: checkpoint.length]
            if self._drafters.resume(held, to_draft=False) == len(held):
                return self._restore(checkpoint)
        return self._cut(0)

    def _restore(self, checkpoint: Checkpoint) -> int:
        length = checkpoint.length
        restored = self._target.restore_recurrent(SEQ, checkpoint.state)
        if not restored or not self._branches.forget(length):
            return self._cut(0)
        del self.tokens[length:]
        self.checkpoints.cut(length)
        return length

    def shift(self, before: Sequence[int], after: Sequence[int]) -> bool:
        """Take the turns that have left out of both caches, keeping what was behind them.

        False where the rest has to be read again.
        """
        cut = find_cut(before, after) if self.can_shift else None
        held = common_prefix(self.tokens, before)
        if cut is None or held <= cut.end:
            return False
        if held < len(before) and self._cut(held) < held:
            return False
        self._branches.shift(cut.start, cut.end)
        self._drafters.shift(cut.start, cut.end)
        del self.tokens[cut.start : cut.end]
        return True

    def read(self, tokens: Sequence[int], cancelled: Callable[[], bool]) -> bool:
        """Decode more of a prompt. False where it was cancelled: nothing of it is held then,
        and of a recurrent target's only what stands before the last checkpoint.

        Raises DecodeError.
        """
        self._fill_batch(tokens, outputs=False)
        with self._target.stopped_by(cancelled):
            if not self._decode():
                return False
        self.tokens += tokens
        return True

    def decode(self, id_last: int, proposal: Proposal) -> float:
        """Decode the last token and a proposal behind it, for the target to choose from; the
        target's milliseconds. `accept` must follow. Raises DecodeError."""
        self._proposal = proposal
        if proposal.is_chain:
            self._fill_batch([id_last, *proposal.ids], outputs=True)
        else:
            self._fill_with_tree(id_last, proposal)
        self._decode()
        return self._decode_ms

    def accept(self, path: Sequence[int]) -> None:
        """Hold, of the batch just decoded, the last token and those of the proposal at `path`.

        Raises DecodeError.
        """
        id_last, *proposed = self._batch.tokens
        start = len(self.tokens) + 1
        self.tokens += [id_last, *(proposed[index] for index in path)]
        if not self._proposal.is_chain:
            leaves = self._proposal.leaves()
            paths = (self._proposal.path(leaf)[: len(path)] for leaf in leaves)
            winner = [*paths].index([*path])
            self._branches.settle(winner, range(len(leaves)), start, len(self.tokens))
        elif len(path) < len(proposed) and not self._branches.forget(len(self.tokens)):
            self._cut(0)
            raise DecodeError("the target cannot take back the rejected tokens")
        self._drafters.accept(path)

    def _fill_with_tree(self, id_last: int, proposal: Proposal) -> None:
        """A sequence for each path of the tree; a token is in those of all paths through it."""
        n_past, leaves = len(self.tokens), proposal.leaves()
        through: list[list[int]] = [[] for _ in proposal]
        for seq_id, leaf in enumerate(leaves):
            for index in proposal.path(leaf):
                through[index].append(seq_id)
        self._branches.grow(range(len(leaves)), n_past)
        self._batch.clear()
        self._batch.add_node(id_last, n_past, range(len(leaves)))
        for token, depth, seq_ids in zip(proposal, proposal.depths, through, strict=True):
            self._batch.add_node(token.id, n_past + depth, seq_ids)

    def _fill_batch(self, tokens: Sequence[int], *, outputs: bool) -> None:
        self._batch.clear()
        self._batch.add_tokens(tokens, len(self.tokens), SEQ, output=outputs)

    def _decode(self) -> bool:
        """Run the target over the batch and show it to the drafter; False where it was stopped."""
        started = time.perf_counter()
        status = self._target.decode(self._batch)
        self._decode_ms = ms_since(started)
        if status == 0:
            self._drafters.see(self._batch)
            return True
        # Some of the batch may be in the cache. A recurrent state has taken it in for good.
        if self._target.n_rollback is None:
            self._cut(len(self.tokens))
        else:
            self._go_back(self.tokens)
        if status == _STOPPED:
            return False
        if status == _NO_ROOM:
            raise DecodeError("the KV cache has no room for the batch; load a larger context")
        raise DecodeError(f"the target failed to decode (llama.cpp status {status})")

    def _cut(self, length: int) -> int:
        """Drop all positions from `length` on, or all there are where the target's memory cannot
        drop those alone; how many are left."""
        held = self._target.last_position(SEQ) + 1
        if length < held and self._target.n_rollback is not None:
            # A recurrent state has snapshots of its latest batch only.
            length = 0
        if length < held and not self._branches.forget(length):
            self._branches.forget(0)
            length = 0
        del self.tokens[length:]
        self.checkpoints.cut(length)
        if length < self._drafters.known:
            self._drafters.resume(self.tokens, to_draft=False)
        return length
