"""EAGLE-3 drafting over llama.cpp: the target's features in, draft tokens out.

The algorithm is llama.cpp's `common_speculative_impl_draft_eagle3` (common/speculative.cpp) after
EAGLE-3 (arXiv 2503.01840): the inputs of three target layers are fused by the draft's encoder into
one state g[P] for each position P; the draft's decoder sees the pair (token[P+1], g[P]) at
position P, so the last position waits, as the boundary, until its next token is known; after that
the decoder goes on with its own pre-norm states. The life cycle is that of llama-cpp-4's
`Eagle3Session`.

One thing differs from upstream, and only in when it is done: `process` keeps the features and
`draft` takes in those of the accepted rows, together with the seed step. Rejected rows never reach
the draft, and a round with n_draft_max 0 costs the draft nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from eaglechat.engine.drafters.base import MOST_CAUGHT_UP, Limits
from eaglechat.engine.drafters.eagle3.draft_sequence import DraftSequence
from eaglechat.engine.drafters.eagle3.encoder import Encoder
from eaglechat.engine.drafters.eagle3.likeliest import Likeliest
from eaglechat.engine.drafters.eagle3.session_config import (
    Eagle3SessionConfig,
    check_contexts,
    check_draft_length,
)
from eaglechat.engine.drafters.eagle3.session_stats import SessionCounts, SessionStats
from eaglechat.engine.drafters.eagle3.stretches import chunks, runs
from eaglechat.engine.drafters.eagle3.tree import TreeGrower, decode, parents_of
from eaglechat.engine.drafters.eagle3.waiting_rows import Boundary, WaitingRows
from eaglechat.engine.llama.branches import Branches
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.gguf.preflight import EXTRACT_LAYERS
from eaglechat.wire.errors import BadSeqIdError, ProcessError
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

_OUTPUT_ROWS = N_DRAFT_MAX_LIMIT + 1
"""A catch-up of up to this many rows, that is a verified draft, goes in one batch with the seed."""

_SEEN_AGAIN = 256
"""Positions that the target computes again for a draft that has nothing left of what stands there.
More would be a long wait on a slow machine."""

_WINDOW_STEP = 64
"""Positions that leave a draft window at once."""


class Eagle3Session:
    """Drafts for the sequences of a target context.

    Per round and sequence: `draft`, the target's decode of [id_last, *draft], `process` of that
    batch, `accept` of what the target confirmed. Both contexts stay the caller's.
    """

    def __init__(self, target: Context, draft: Context, config: Eagle3SessionConfig) -> None:
        """Raises InitError when the two contexts do not make a pair."""
        check_contexts(target, draft, config)
        self._target = target
        self._draft = draft
        self._config = config
        self.layers = draft.model.target_layers
        self.limits = Limits(config.n_draft_max, config.n_min, config.p_min)
        """What bounds the next draft; may be set between any two rounds."""
        width = EXTRACT_LAYERS * target.model.n_embd
        self._sequences = [DraftSequence(WaitingRows(width)) for _ in range(config.n_seq)]
        self._encoder = Encoder(draft)
        self._batch = Batch(draft)
        self._likeliest = Likeliest(draft.head)
        # Several sequences of a target leave none for the paths of a tree.
        self._branches = Branches(draft) if config.n_seq == 1 else None
        self._counts = SessionCounts()
        self._closed = False
        draft.export_states()
        self.set_extraction(True)

    def close(self) -> None:
        """Stop the extraction of features and free the batches; before the contexts close."""
        if self._closed:
            return
        self._closed = True
        self.set_extraction(False)
        self._encoder.close()
        self._batch.close()

    def __enter__(self) -> Eagle3Session:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self.close()

    @property
    def config(self) -> Eagle3SessionConfig:
        return self._config

    @property
    def n_draft_max(self) -> int:
        """Most tokens `draft` proposes; may be set between any two rounds, 0 drafts nothing."""
        return self.limits.n_max

    @n_draft_max.setter
    def n_draft_max(self, value: int) -> None:
        check_draft_length("n_draft_max", value)
        self.limits = replace(self.limits, n_max=value)

    @property
    def need_embd(self) -> bool:
        """Whether the target must output post-norm embeddings: EAGLE-3 never asks for them."""
        return False

    @property
    def need_embd_pre_norm(self) -> bool:
        """Whether the target must export its final pre-norm state: one layer read is the last."""
        return self._target.model.n_layers in self.layers

    def set_extraction(self, enabled: bool) -> None:
        """Switch the export of the target's layer inputs, which costs a little in every decode.

        The target's decodes without it leave a gap that `begin` reports.
        """
        self._target.extract_layer_inputs(self.layers, enabled)

    def begin(self, seq_id: int, prompt: Sequence[int]) -> None:
        """Check that `process` saw the whole prompt that is now in the target's KV cache.

        Raises ProcessError, naming how far it got.
        """
        known = self._sequence(seq_id).known
        if known != len(prompt):
            raise ProcessError(
                f"the draft saw {known} positions of a prompt of {len(prompt)} tokens; "
                "process() must follow every decode of the target"
            )

    def take_in(self, seq_id: int) -> None:
        """Write all waiting rows but the last into the draft's KV cache, ahead of a `draft`.

        The last one goes on waiting for its next token. Raises ProcessError, DecodeError.
        """
        sequence = self._sequence(seq_id)
        following = sequence.rows.tokens[1:]
        if following:
            self._take_in(seq_id, sequence, following, n_quiet=len(following))

    def waiting(self, seq_id: int) -> int:
        """Rows of features the draft has not taken in yet."""
        return len(self._sequence(seq_id).rows)

    def known_length(self, seq_id: int) -> int:
        """Positions from 0 on whose features the session has seen."""
        return self._sequence(seq_id).known

    def resumable(self, seq_id: int, length: int, *, to_draft: bool) -> int:
        """How many of the first `length` positions to `rewind` to, to go on with any token there.

        One less than are known where the draft has taken in the last of them: its row is paired
        with the token that followed. Where the draft is about to draft, but has nothing left of
        what stood there (`draft_window`), the end has to be processed again.
        """
        sequence = self._sequence(seq_id)
        kept = min(length, sequence.known)
        if kept <= sequence.taken:
            kept = max(0, kept - 1)
        if not to_draft or not self._is_blind(seq_id, kept):
            return kept
        return max(0, kept - min(_SEEN_AGAIN, self._config.draft_window))

    def is_blind(self, seq_id: int) -> bool:
        """Whether the draft holds too little of what stands before the next token to guess it."""
        return self._is_blind(seq_id, self.known_length(seq_id))

    def _is_blind(self, seq_id: int, length: int) -> bool:
        enough = min(length, MOST_CAUGHT_UP, self._config.draft_window or MOST_CAUGHT_UP)
        return length - self._sequence(seq_id).window_start < enough

    def rewind(self, seq_id: int, length: int) -> None:
        """Forget the positions from `length` on, to prefill other tokens there.

        The token at position `length` must stay the same, because the draft's row before it was
        paired with it: keep one token less than the common prefix.
        """
        sequence = self._sequence(seq_id)
        sequence.rows.keep(max(0, length - sequence.taken))
        sequence.taken = min(sequence.taken, length)
        sequence.window_start = min(sequence.window_start, length)
        sequence.drafted = []
        self._forget(seq_id, sequence.taken)

    def mark(self, seq_id: int) -> Boundary:
        """The row of the last known position, which `draft` pairs with the token that follows."""
        return self._sequence(seq_id).rows.last()

    def restore(self, seq_id: int, length: int, boundary: Boundary) -> None:
        """Have the row of position `length` - 1 wait again, as it did at `mark`, where it has been
        taken in since; any token may then follow."""
        sequence = self._sequence(seq_id)
        if sequence.taken >= length - 1:
            self.rewind(seq_id, length - 1)
            sequence.rows.put(boundary)

    def shift(self, seq_id: int, start: int, end: int) -> None:
        """Drop the positions from `start` up to `end` and move those from `end` on to `start`, as
        the target's KV cache does between two rounds.

        The draft's row before `start` was paired with the token at `start`; the one at `end`
        should be the same. Where the draft has not seen all of it, or its memory cannot shift, it
        knows nothing from `start` on.
        """
        sequence = self._sequence(seq_id)
        if sequence.known < end or not self._draft.can_shift:
            self.rewind(seq_id, min(start, sequence.known))
            return
        self._forget(seq_id, sequence.taken)
        if self._branches is not None:
            self._branches.shift(start, end)
        else:
            self._draft.shift(seq_id, start, end)
        sequence.shift(start, end)

    def process(self, batch: Batch) -> None:
        """Take note of the features of a batch that the target has just decoded.

        The rows of a sequence must be contiguous and in order.
        Raises ProcessError, BadSeqIdError.
        """
        started, spent = time.perf_counter(), self._counts.process_s
        layers = [self._target.layer_inputs(layer, len(batch)) for layer in self.layers]
        for seq_id, first, last in runs(batch.seq_ids):
            sequence = self._sequence(seq_id)
            if batch.positions[first] != sequence.known:
                raise ProcessError(
                    f"the draft saw {sequence.known} positions of sequence {seq_id}, "
                    f"the batch goes on at {batch.positions[first]}"
                )
            rows = sequence.rows
            # Bounds what waits to one batch beside the new rows.
            if len(rows) and len(rows) + last - first > self._draft.n_batch:
                following = [*rows.tokens[1:], batch.tokens[first]]
                self._take_in(seq_id, sequence, following, n_quiet=len(following))
            sequence.verify_start = len(rows)
            rows.add(batch.tokens[first:last], layers, first)
        # Not added up: a catch-up in between has counted its encoder already.
        self._counts.process_s = spent + time.perf_counter() - started

    def draft(self, seq_id: int, n_past: int, id_last: int) -> list[int]:
        """Propose tokens to follow `id_last`, which stands at `n_past`, within the limits.

        Raises ProcessError when the draft is out of step with the target or fails to decode.
        """
        sequence = self._sequence(seq_id)
        sequence.drafted, sequence.probabilities = [], []
        if self.limits.n_max == 0 or n_past == 0:
            return []
        if not len(sequence.rows) or sequence.known != n_past:
            raise ProcessError(
                f"the draft saw {sequence.known} positions of sequence {seq_id}, "
                f"drafting after position {n_past} needs {n_past}"
            )
        started = time.perf_counter()
        process_before = self._counts.process_s
        following = [*sequence.rows.tokens[1:], id_last]
        n_quiet = 0 if len(following) <= _OUTPUT_ROWS else len(following) - 1
        self._take_in(seq_id, sequence, following, n_quiet=n_quiet)
        if self.limits.is_tree and self.grows_trees:
            self._grow(sequence, n_past)
        else:
            self._extend(seq_id, sequence, n_past)
            sequence.parents = list(range(-1, len(sequence.drafted) - 1))
        if not self.limits.suffices(len(sequence.drafted)):
            sequence.drafted, sequence.probabilities = [], []
        in_encoder = self._counts.process_s - process_before
        self._counts.draft_s += time.perf_counter() - started - in_encoder
        self._counts.note_draft(sequence.drafted)
        return list(sequence.drafted)

    @property
    def grows_trees(self) -> bool:
        """Whether drafts may be trees: both contexts have a sequence for each path."""
        most = min(self._target.n_seq, self._draft.n_seq)
        return self._branches is not None and most >= N_DRAFT_MAX_LIMIT

    def parents(self, seq_id: int) -> list[int]:
        """The index of the token that each token of its last draft follows, -1 for `id_last`."""
        return self._sequence(seq_id).parents[: len(self._sequence(seq_id).drafted)]

    def probabilities(self, seq_id: int) -> list[float]:
        """The draft's probability of each token of its last draft (softmax over its top 10)."""
        return list(self._sequence(seq_id).probabilities)

    def accept(self, seq_id: int, n_accepted: int) -> None:
        """The target confirmed the first `n_accepted` drafted tokens of the batch just processed,
        whoever drafted them; the rows after them are dropped. Raises ProcessError for more than
        the batch had."""
        sequence = self._sequence(seq_id)
        n_verified = len(sequence.rows) - sequence.verify_start - 1
        if not 0 <= n_accepted <= n_verified:
            raise ProcessError(f"{n_accepted} accepted of a draft of {n_verified}")
        self.accept_path(seq_id, range(n_accepted))

    def accept_path(self, seq_id: int, path: Sequence[int]) -> None:
        """The target confirmed the tokens at `path`, each a child of the one before, of the tree
        in the batch just processed; the rows of the others are dropped."""
        sequence = self._sequence(seq_id)
        start = sequence.verify_start + 1
        sequence.rows.keep_path(start, path)
        if sequence.drafted:
            self._counts.note_accept(len(path))
        sequence.drafted = []

    @property
    def spent_ms(self) -> tuple[float, float]:
        """Milliseconds in features and encoder, and in drafting, since the session was made."""
        return self._counts.process_s * 1000.0, self._counts.draft_s * 1000.0

    def stats(self) -> SessionStats:
        """Counts and times since the session was made."""
        return self._counts.snapshot()

    def _sequence(self, seq_id: int) -> DraftSequence:
        if not 0 <= seq_id < len(self._sequences):
            raise BadSeqIdError(
                f"sequence {seq_id} is out of range; this session has {len(self._sequences)}, "
                "counted from 0"
            )
        return self._sequences[seq_id]

    def _take_in(
        self, seq_id: int, sequence: DraftSequence, following: Sequence[int], *, n_quiet: int
    ) -> None:
        """Write waiting rows into the draft's KV cache, as (next token, state) pairs: as many as
        there are tokens in `following`.

        llama.cpp's eagle3 graph outputs every row of a batch, in order: the first `n_quiet` rows
        go in batches without outputs, the rest in one with all of them.
        """
        rows = sequence.rows
        self._forget(seq_id, sequence.taken)
        for first, last in [*chunks(n_quiet, self._draft.n_ubatch), (n_quiet, len(following))]:
            if first == last:
                continue
            position = sequence.taken + first
            started = time.perf_counter()
            features = self._config.norms.of_features(rows.features[first:last])
            states = self._encoder.states(seq_id, features, position)
            self._counts.process_s += time.perf_counter() - started
            self._batch.clear()
            self._batch.add_tokens(
                following[first:last], position, seq_id, output=first >= n_quiet, states=states
            )
            decode(self._draft, self._batch)
        sequence.taken += len(following)
        rows.remove(0, len(following))
        self._leave_window(seq_id, sequence)

    def _leave_window(self, seq_id: int, sequence: DraftSequence) -> None:
        """Drop what is further back than the draft looks, in steps: each costs a pass over the
        cells of the KV cache."""
        window = self._config.draft_window
        if window and sequence.taken - sequence.window_start >= window + _WINDOW_STEP:
            self._forget(seq_id, sequence.window_start, sequence.taken - window)
            sequence.window_start = sequence.taken - window

    def _extend(self, seq_id: int, sequence: DraftSequence, n_past: int) -> None:
        """Draft token after token from the seed's output on, each on the state before it."""
        row = len(self._batch) - 1
        drafted = sequence.drafted
        while len(drafted) < self.limits.n_max:
            if drafted:
                state = self._config.norms.of_states(self._draft.state(row))
                self._batch.clear()
                position = n_past - 1 + len(drafted)
                self._batch.add_tokens(drafted[-1:], position, seq_id, output=True, states=state)
                decode(self._draft, self._batch)
                row = 0
            token, probability = self._likeliest.of(self._draft.logits(row), row)
            if not self.limits.keep([*sequence.probabilities, probability]):
                return
            drafted.append(token)
            sequence.probabilities.append(probability)

    def _grow(self, sequence: DraftSequence, n_past: int) -> None:
        """Draft a tree from the seed's output on."""
        assert self._branches is not None
        norms = self._config.norms
        grower = TreeGrower(self._draft, self._branches, self._batch, self._likeliest, norms)
        nodes = grower.grow(self.limits, n_past, len(self._batch) - 1)
        sequence.drafted = [node.id for node in nodes]
        sequence.probabilities = [node.path[-1] for node in nodes]
        sequence.parents = parents_of(nodes)

    def _forget(self, seq_id: int, start: int, end: int = -1) -> None:
        if self._branches is not None:
            self._branches.forget(start, end)
        else:
            self._draft.forget(seq_id, start, end)
