"""Keeps what the target's KV cache holds of a conversation, and what the drafters know, in step."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eaglechat.engine.drafters.guard import GuardedDrafters
from eaglechat.engine.drafters.proposal import Proposal
from eaglechat.engine.llama.backend import cancellable
from eaglechat.engine.llama.objects import TRUNK, Batch, Branches, Context
from eaglechat.engine.sequences import common_prefix, find_cut
from eaglechat.wire.errors import Cancelled, DecodeError
from eaglechat.wire.records import ms_since

_NO_ROOM, _STOPPED = 1, 2
"""Statuses of llama.cpp: a decode found no free cells, or was cancelled."""


@dataclass(frozen=True)
class Checkpoint:
    """The state behind the first `length` tokens that the target holds."""

    length: int
    state: bytes
    """The recurrent part; keys and values of attention layers stay in the KV cache."""
    marks: dict[str, object]
    """By the name of a draft model that has seen all the tokens: what it needs to go on there."""


class Checkpoints:
    """The checkpoints of one conversation, up to a number of bytes; the oldest make room.

    A recurrent target cannot be rewound, so a chat goes back to one of these.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: dict[int, Checkpoint] = {}
        """By length, the oldest first."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def n_bytes(self) -> int:
        return sum(len(checkpoint.state) for checkpoint in self._kept.values())

    def save(
        self, length: int, size: int, marks: Mapping[str, object], read: Callable[[], bytes]
    ) -> None:
        """Keep the state behind `length` tokens: `size` bytes, which `read` returns."""
        if length in self._kept:
            self._kept[length].marks.update(marks)
        elif size <= self._most_bytes:
            while self.n_bytes + size > self._most_bytes:
                del self._kept[next(iter(self._kept))]
            if state := read():
                self._kept[length] = Checkpoint(length, state, {**marks})

    def up_to(self, length: int) -> list[Checkpoint]:
        """The checkpoints of at most `length` tokens, longest first."""
        return [self._kept[n] for n in sorted(self._kept, reverse=True) if n <= length]

    def cut(self, length: int) -> None:
        """The target no longer holds the tokens from `length` on."""
        self._kept = {n: one for n, one in self._kept.items() if n <= length}


class CacheState:
    """The KV caches of one conversation; `tokens` are those that the target holds.

    Whatever changes what the target holds goes through here, so the drafters are told. A drafter
    may know fewer tokens than the target, as it was off or could not keep them. `resume` returns
    how many the target may keep; the others are decoded again so that the drafter sees them.
    """

    def __init__(self, target: Context, drafters: GuardedDrafters, checkpoint_bytes: int) -> None:
        self._target = target
        self._drafters = drafters
        self._batch = Batch(target)
        self._branches = Branches(target)
        self.checkpoints = Checkpoints(checkpoint_bytes)
        self._proposal = Proposal()
        # As `ngram.look_up` likes it.
        self.tokens = array("i")
        self.first_turn = 0
        """The turn of the conversation that `tokens` begin with."""
        self.can_shift = target.can_shift

    def close(self) -> None:
        self._batch.close()

    @property
    def room(self) -> int:
        """Tokens that still fit in the context."""
        return self._target.n_ctx - len(self.tokens)

    @property
    def longest_draft(self) -> int:
        """The most draft tokens that fit behind the last one and can be taken back."""
        return min(self._target.longest_draft, self.room - 1)

    @property
    def is_behind(self) -> bool:
        """Whether the draft model has not seen all that the target holds."""
        return self._drafters.is_behind(len(self.tokens))

    def resume(self, tokens: Sequence[int]) -> int:
        """Prepare to hold `tokens`: keep their beginning as far as it is held, drop the rest, and
        return how many are kept."""
        tokens = tokens[: common_prefix(self.tokens, tokens)]
        if self._target.n_rollback is None:
            return self._cut(self._drafters.resume(tokens))
        # A recurrent state keeps all that is held, or goes back to a checkpoint.
        is_all = len(tokens) == self._target.last_position(TRUNK) + 1
        if is_all and self._drafters.resume(tokens) == len(tokens):
            return len(tokens)
        return self._go_back(tokens)

    def save_checkpoint(self) -> None:
        """Save what it takes to return to the tokens held now, if the target has a recurrent
        state, which cannot be rewound."""
        if self._target.n_rollback is None or not self.tokens:
            return
        length = len(self.tokens)
        marks = {} if self.is_behind else self._drafters.marks()
        size = self._target.recurrent_size(TRUNK)
        self.checkpoints.save(length, size, marks, lambda: self._target.save_recurrent(TRUNK))

    def _go_back(self, tokens: Sequence[int]) -> int:
        """Restore the longest checkpoint within `tokens` from which the drafters can go on too, and
        return its length: 0 if there is none.

        There is none for a drafter that has drafted nothing of this conversation so far: what it
        reads of the target exists only while the target decodes. Everything is then read again, and
        the drafter that was used before has to forget it, so changing back costs as much.
        """
        for checkpoint in self.checkpoints.up_to(len(tokens)):
            length = checkpoint.length
            self._drafters.restore(length, checkpoint.marks)
            if self._drafters.resume(tokens[:length]) == length:
                restored = self._target.restore_recurrent(TRUNK, checkpoint.state)
                if not restored or not self._branches.forget(length):
                    break
                del self.tokens[length:]
                self.checkpoints.cut(length)
                return length
        return self._cut(0)

    def shift(self, before: Sequence[int], after: Sequence[int]) -> bool:
        """Remove the turns that `after` lacks from both KV caches, and keep what is behind them.
        False if the rest has to be read again.
        """
        cut = find_cut(before, after) if self.can_shift else None
        held = common_prefix(self.tokens, before)
        if cut is None or held <= cut.stop:
            return False
        if held < len(before) and self._cut(held) < held:
            return False
        self._branches.shift(cut.start, cut.stop)
        self._drafters.shift(cut.start, cut.stop)
        del self.tokens[cut.start : cut.stop]
        return True

    def read(self, tokens: Sequence[int]) -> None:
        """Decode more of a prompt. Raises DecodeError, Cancelled: then none of `tokens` is held,
        and a recurrent target is back at its last checkpoint.
        """
        self._fill_batch(tokens, outputs=False)
        with cancellable(self._target.pointer):
            self._decode()
        self.tokens.extend(tokens)

    def decode(self, id_last: int, proposal: Proposal) -> float:
        """Decode the last token and the proposal behind it, and return the milliseconds it took.
        `accept` must follow. Raises DecodeError."""
        self._proposal = proposal
        if proposal.is_chain:
            self._fill_batch([id_last, *proposal.ids], outputs=True)
        else:
            self._fill_with_tree(id_last, proposal)
        return self._decode()

    def accept(self, path: Sequence[int]) -> None:
        """Of the batch just decoded, keep the last token and the proposal's tokens at `path`, drop
        the others. Raises DecodeError."""
        id_last, *proposed = self._batch.tokens
        start = len(self.tokens) + 1
        self.tokens.extend([id_last, *(proposed[index] for index in path)])
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
        """Each path of the tree has a sequence; a token is in those of all paths through it."""
        n_past, leaves = len(self.tokens), proposal.leaves()
        through: list[list[int]] = [[] for _ in proposal.ids]
        for seq_id, leaf in enumerate(leaves):
            for index in proposal.path(leaf):
                through[index].append(seq_id)
        self._branches.grow(range(len(leaves)), n_past)
        self._batch.clear()
        self._batch.add_node(id_last, n_past, range(len(leaves)))
        for id, depth, seq_ids in zip(proposal.ids, proposal.depths, through, strict=True):
            self._batch.add_node(id, n_past + depth, seq_ids)

    def _fill_batch(self, tokens: Sequence[int], *, outputs: bool) -> None:
        self._batch.clear()
        self._batch.add_tokens(tokens, len(self.tokens), TRUNK, output=outputs)

    def _decode(self) -> float:
        """Decode the batch, and return the milliseconds that the target took."""
        started = time.perf_counter()
        status = self._target.decode(self._batch)
        ms = ms_since(started)
        if status == 0:
            self._drafters.see(self._batch)
            return ms
        # Part of the batch may be in the KV cache; a recurrent state cannot be rid of it.
        if self._target.n_rollback is None:
            self._cut(len(self.tokens))
        else:
            self._go_back(self.tokens)
        if status == _STOPPED:
            raise Cancelled
        if status == _NO_ROOM:
            raise DecodeError("the KV cache has no room for the batch; load a larger context")
        raise DecodeError(f"the target failed to decode (llama.cpp status {status})")

    def _cut(self, length: int) -> int:
        """Drop all positions from `length` on, or every position if the target cannot drop only
        those. Returns how many are left."""
        held = self._target.last_position(TRUNK) + 1
        if length < held and self._target.n_rollback is not None:
            # Its snapshots go back no further than its latest batch.
            length = 0
        if length < held and not self._branches.forget(length):
            self._branches.forget(0)
            length = 0
        del self.tokens[length:]
        self.checkpoints.cut(length)
        self._drafters.forget(self.tokens)
        return length
