"""EAGLE-3 drafting over llama.cpp: hidden states of the target in, draft tokens out.

The algorithm is llama.cpp's `common_speculative_impl_draft_eagle3` (common/speculative.cpp) after
EAGLE-3 (arXiv 2503.01840). The draft's encoder fuses the inputs of three target layers, the
features, into one state g[P] for each position P. The draft's decoder reads the pair (token[P+1],
g[P]) at position P, so the row of the last position waits until its next token is known. Behind it,
the decoder goes on with its own pre-norm states.

Only the time differs from llama.cpp: `see` keeps the features, and `propose` takes in those of the
accepted rows together with the first step. Rejected rows never reach the draft, and a round that
drafts nothing costs it nothing.

EAGLE-3.1's two norms are computed here because llama.cpp's eagle3 graph does not have them.
`fc_norm`: the input of each target layer is normed before the encoder. The converter has multiplied
the norm's weights into `fc.weight`, so only the scaling is left. `norm_output`: a state that the
draft feeds back to itself passes the output norm first; the encoder's states do not. Source: vLLM
pull request 42764.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eaglechat.engine.drafters.base import (
    MOST_WAITING,
    Drafter,
    Likeliest,
    Opening,
    ProcessError,
    decode,
)
from eaglechat.engine.drafters.proposal import Drafting, Guess, Limits, Proposal
from eaglechat.engine.llama.bindings import Floats
from eaglechat.engine.llama.objects import TRUNK, Batch, Context, shifted
from eaglechat.gguf.header import GGUFError, GGUFHeader, read_tensor
from eaglechat.gguf.pairing import eagle_of
from eaglechat.gguf.preflight import DRAFT_WINDOW, EXTRACT_LAYERS, NORM_OUTPUT, NORMS_FEATURES
from eaglechat.wire.errors import ModelLoadError
from eaglechat.wire.records import LAST_TOKEN, N_DRAFT_MAX_LIMIT, ms_since

_OUTPUT_ROWS = N_DRAFT_MAX_LIMIT + 1
"""Up to this many waiting rows, as many as a verified draft leaves, are taken in by the same decode
as the first step."""

_FEWEST_KNOWN = MOST_WAITING
"""With fewer of the latest positions in its KV cache, a draft guesses next to nothing."""

_SEEN_AGAIN = 256
"""Positions that the target decodes again for a draft whose window has moved past them: more would
be a long wait on a slow machine."""

_UBATCH = 128
"""The draft's logits buffer has this many rows."""

_WINDOW_STEP = 64
"""Positions that leave the draft's window at once: each removal is a pass over all cells of the KV
cache."""


_EPS = "eagle3.attention.layer_norm_rms_epsilon"


@dataclass(frozen=True, eq=False)
class Norms:
    """The norms of a draft; by default none, as in EAGLE-3."""

    eps: float = 1e-6
    features: bool = False
    output: Floats | None = None
    """Weights [n_embd] of the output norm, if states that are fed back pass it."""

    def of_features(self, features: Floats) -> Floats:
        """Features [rows, 3 * n_embd], normed for the encoder."""
        if not self.features:
            return features
        layers = features.reshape(len(features), EXTRACT_LAYERS, -1)
        return self._scaled(layers).reshape(features.shape)

    def of_states(self, states: Floats) -> Floats:
        """The draft's own states [rows, n_embd], normed to be fed back."""
        return states if self.output is None else self._scaled(states) * self.output

    def _scaled(self, values: Floats) -> Floats:
        """`values` with a root mean square of 1 along the last dimension."""
        mean_square = np.mean(np.square(values), axis=-1, keepdims=True)
        scaled: Floats = values / np.sqrt(mean_square + np.float32(self.eps))
        return scaled


@dataclass(eq=False)
class _Node:
    """A token of a tree that is being grown; the root is the last token of the text."""

    guess: Guess
    path: tuple[float, ...] = ()
    """How sure the draft is of each token on the path, this one last."""
    chance: float = 1.0
    """Their product."""
    parent: _Node | None = None
    state: Floats | None = None
    """The draft's state [1, n_embd] behind the parent, which it reads together with this token."""
    branch: int = TRUNK
    """The draft's sequence that holds this token, once it is decoded."""


class Eagle3Drafter(Drafter):
    """Drafts for one sequence of a target context. A row has the features of a position, and waits
    until the token after it is known. Positions older than the window have been dropped from the
    draft's KV cache.
    """

    def __init__(
        self,
        target: Context,
        draft: Context,
        *,
        window: int = 0,
        norms: Norms | None = None,
        seq_id: int | None = None,
        name: str = "eagle3",
    ) -> None:
        """`window` is the number of latest positions that the draft's KV cache keeps; 0 keeps all.

        With a `seq_id` other drafters may use the other sequences of the same contexts. Without one
        the contexts are all this drafter's: it grows trees, a sequence for each path, and ends the
        draft's graphs at its output head.
        """
        self.name = name
        super().__init__(target, draft, EXTRACT_LAYERS * target.model.n_embd, seq_id)
        self._window, self._norms, self._seq_id = window, norms or Norms(), seq_id or 0
        if draft.head is not None:
            # An earlier drafter of the same context may have ended its graphs there.
            draft.head.is_last = False
        self._likeliest = Likeliest(draft.head if seq_id is None else None)
        self._window_start = 0
        """The first of the `_taken` positions that is still in the KV cache."""
        self._encoder_batch = Batch(draft)
        draft.export_states()
        self.set_export(True)

    def close(self) -> None:
        super().close()
        self._encoder_batch.close()

    @property
    def longest(self) -> int:
        return 0 if self._is_blind(self.known) else N_DRAFT_MAX_LIMIT

    @property
    def grows_trees(self) -> bool:
        """Both contexts need a sequence for each path."""
        return min(self._target.n_seq, self._kv.most) >= N_DRAFT_MAX_LIMIT

    # --- what the target holds ---

    def resume(self, tokens: Sequence[int]) -> int:
        kept = min(len(tokens), self.known)
        if kept <= self._taken:
            # The last row taken in was paired with a token that may have changed.
            kept = max(0, kept - 1)
        # A recurrent target would have to decode everything again.
        if self._is_blind(kept) and self._target.n_rollback is None:
            kept = max(0, kept - min(_SEEN_AGAIN, self._window))
        self._rewind(kept)
        return kept

    def _is_blind(self, length: int) -> bool:
        """Whether, of the first `length` positions, the draft holds too few to guess what
        follows."""
        enough = min(length, _FEWEST_KNOWN, self._window or _FEWEST_KNOWN)
        return length - self._window_start < enough

    def _rewind(self, length: int) -> None:
        """Forget the positions from `length` on. The token at `length` has to stay the same: the
        row before it, if it was taken in, is paired with it."""
        super()._rewind(length)
        self._window_start = min(self._window_start, length)

    def mark(self) -> object:
        """The row of the last known position, which is paired with whatever token follows."""
        return self._rows.tokens[-1], self._rows.features[-1:].copy()

    def restore(self, length: int, mark: object) -> None:
        """Have the row of position `length` - 1 wait again, if it has been taken in since."""
        assert isinstance(mark, tuple)
        if self._taken >= length - 1:
            token, features = mark
            self._rewind(length - 1)
            self._rows.add([token], [features], 0)

    def shift(self, start: int, end: int) -> None:
        """The row before `start` is paired with the token at `start`, so the token at `end` should
        be the same."""
        super().shift(start, end)
        self._window_start = shifted(self._window_start, start, end)

    # --- a round ---

    def take_in(self) -> None:
        """Write all waiting rows but the last, whose next token is not known, into the draft's KV
        cache."""
        following = self._rows.tokens[1:]
        if following:
            self._take_in(following, n_quiet=len(following))

    def _draft(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        if not len(self._rows):
            raise ProcessError("a draft was made here before; the target has to decode on first")
        following = [*self._rows.tokens[1:], id_last]
        n_quiet = 0 if len(following) <= _OUTPUT_ROWS else len(following) - 1
        self._take_in(following, n_quiet=n_quiet)
        if limits.is_tree and self.grows_trees:
            return self._tree(limits, n_past)
        return limits.chain(self._drafting(n_past), self.name)

    def _take_in(self, following: Sequence[int], *, n_quiet: int) -> None:
        """Write as many waiting rows into the draft's KV cache as there are tokens in `following`,
        as pairs (next token, state).

        llama.cpp's eagle3 graph outputs all rows of a batch or none: the first `n_quiet` rows go in
        batches without outputs, the others in one batch that outputs all its rows.
        """
        self._kv.forget(self._taken)
        size = self.draft.n_ubatch
        quiet = [(first, min(first + size, n_quiet)) for first in range(0, n_quiet, size)]
        for first, last in [*quiet, (n_quiet, len(following))]:
            if first == last:
                continue
            position = self._taken + first
            self._move_window(position, position + last - first)
            started = time.perf_counter()
            states = self._encode(self._rows.features[first:last], position)
            self.process_ms += ms_since(started)
            self._batch.clear()
            self._batch.add_tokens(
                following[first:last],
                position,
                self._seq_id,
                output=first >= n_quiet,
                states=states,
            )
            decode(self.draft, self._batch)
        self._taken += len(following)
        self._rows.remove(0, len(following))

    def _move_window(self, position: int, end: int) -> None:
        """Let the oldest positions go before those from `position` to `end` - 1 are decoded, so
        that not even the first token drafted behind a long prompt sees all of it."""
        if self._window and end - self._window_start >= self._window + _WINDOW_STEP:
            start = min(end - self._window, position)
            self._kv.forget(self._window_start, start)
            self._window_start = start

    def _encode(self, features: Floats, position: int) -> Floats:
        """The states g [rows, n_embd] of features [rows, 3 * n_embd]; valid until the draft next
        runs. Raises ProcessError."""
        self._encoder_batch.clear()
        # The encoder reads no positions, yet llama.cpp wants those that follow the KV cache.
        features = self._norms.of_features(features)
        self._encoder_batch.add_features(features, position, self._seq_id)
        status = self.draft.encode(self._encoder_batch)
        if status != 0:
            raise ProcessError(f"the draft's encoder failed (llama.cpp status {status})")
        return self.draft.states(len(features))

    def _drafting(self, position: int) -> Drafting:
        """Place after place behind the last row of the batch just decoded; the pair of the first
        one stands at `position`."""
        row = len(self._batch) - 1
        while True:
            token = yield self._likely(row)
            state = self._norms.of_states(self.draft.state(row))
            self._batch.clear()
            self._batch.add_tokens([token], position, self._seq_id, output=True, states=state)
            decode(self.draft, self._batch)
            row, position = 0, position + 1

    def _likely(self, row: int) -> list[tuple[int, float]]:
        return self._likeliest.top_k(self.draft.logits(row), row)

    # --- trees ---

    def _tree(self, limits: Limits, n_past: int) -> Proposal:
        """A dynamic tree behind the last row of the batch just decoded, as EAGLE-2 (arXiv
        2406.16858) grows it; likeliest tokens first, so parents come before their children.

        The chance that the target accepts a token is estimated as the product of how sure the draft
        is of the tokens along its path. Level by level, those tokens of the level that are among
        the `n_max` likeliest so far are decoded in one batch, which gives their children. The
        `n_max` likeliest of all levels are the tree. A level costs one decode of the draft, as a
        step of a chain does.
        """
        level, nodes = [_Node(Guess(LAST_TOKEN, 1.0, 1.0))], list[_Node]()
        # More tokens are decoded than end up in the tree, so the context may run out first.
        free, room = list(range(1, self._kv.most)), self.draft.n_ctx - n_past
        row, position = len(self._batch) - 1, n_past
        while True:
            rows = range(row, row + len(level))
            states = self._norms.of_states(np.concatenate([self.draft.state(one) for one in rows]))
            frontier = [
                _Node(
                    Guess(id, share, share),
                    (*node.path, share),
                    node.chance * share,
                    node,
                    states[place : place + 1],
                )
                for place, node in enumerate(level)
                for id, share in self._likely(row + place)[: limits.n_max]
                if share >= limits.p_min and share > 0.0
            ]
            nodes = _worth_verifying([*nodes, *frontier], limits)
            # What is no likelier than the last of a full tree has no children in it.
            least = nodes[-1].chance if len(nodes) >= limits.n_max else 0.0
            likely = [node for node in frontier if node in nodes and node.chance > least]
            level = self._placed(likely, free, room, n_past)
            if not level:
                break
            room -= len(level)
            self._batch.clear()
            for node in level:
                self._batch.add_tokens(
                    [node.guess.id], position, node.branch, output=True, states=node.state
                )
            decode(self.draft, self._batch)
            row, position = 0, position + 1
        places = {id(node): place for place, node in enumerate(nodes)}
        parents = [places.get(id(node.parent), LAST_TOKEN) for node in nodes]
        return Proposal([node.guess for node in nodes], parents, self.name)

    def _placed(
        self, nodes: Sequence[_Node], free: list[int], room: int, n_past: int
    ) -> list[_Node]:
        """As many of the nodes as there are sequences for: a parent's first child has that of its
        parent, the others a free one."""
        taken: set[int] = set()
        placed = list[_Node]()
        for node in nodes:
            assert node.parent is not None
            parent = node.branch = node.parent.branch
            if len(placed) == room or (parent in taken and not free):
                continue
            if parent in taken:
                node.branch = free.pop(0)
                self._kv.grow([node.branch], n_past)
                self._kv.fork(parent, node.branch, n_past, n_past + len(node.path) - 1)
            taken.add(parent)
            placed.append(node)
        return placed


def _worth_verifying(nodes: Sequence[_Node], limits: Limits) -> list[_Node]:
    """The nodes that are worth verifying, likeliest first."""
    best = sorted(nodes, key=lambda node: -node.chance)[: limits.n_max]
    for place, node in enumerate(best):
        if not limits.pays(node.path, place):
            return best[:place]
    return best


def open_drafter(opening: Opening) -> Eagle3Drafter:
    """Raises ModelLoadError."""
    target = opening.target
    draft = opening.context(n_ubatch=_UBATCH, n_seq=target.n_seq, other=target)
    header, name = opening.header, eagle_of(opening.header)
    window = draft_window(header, opening.options.draft_window)
    return Eagle3Drafter(target, draft, window=window, norms=norms_of(header), name=name)


def draft_window(header: GGUFHeader, wanted: int) -> int:
    """How many of the latest positions a draft keeps: as many as wanted, but at most as many as in
    its training; 0 is all of them."""
    trained = max(header.number(DRAFT_WINDOW), 0)
    return min(wanted or trained, trained) if trained else wanted


def norms_of(draft: GGUFHeader) -> Norms:
    """The norms that a draft's header names. Raises ModelLoadError."""
    output = None
    if draft.get(NORM_OUTPUT):
        named = (tensor for tensor in draft.tensors if tensor.name == "output_norm.weight")
        tensor = next(named, None)
        if tensor is None or tensor.type != "F32" or tensor.shape != (draft.n_embd,):
            raise ModelLoadError(
                f"the draft {draft.path} norms what it feeds back ({NORM_OUTPUT}), but has no "
                f"output_norm.weight of {draft.n_embd} values in F32; convert it again"
            )
        try:
            output = np.frombuffer(read_tensor(draft, tensor), "<f4").astype(np.float32)
        except (OSError, GGUFError) as error:
            raise ModelLoadError(f"the draft cannot be read: {error}") from error
    eps = draft.get(_EPS)
    return Norms(
        eps=eps if isinstance(eps, float) else Norms.eps,
        features=bool(draft.get(NORMS_FEATURES)),
        output=output,
    )
