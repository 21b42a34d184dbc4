"""What the speculative loop asks of a drafter that runs a model.

A drafter proposes tokens that may follow the last one; the target decides. A round is `propose`,
the target's decode of [last token, *proposal], `see` of that batch, and `accept` of what the target
chose. Before a reply, `resume` says what of the conversation the target has to decode again.

A kind of drafter is a file beside this one, which makes a `Drafter`, and a row in `pairing.py`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.noise import Noise
from eaglechat.gguf.header import GGUFHeader
from eaglechat.wire.errors import ProcessError
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.records import LAST_TOKEN, children, depths

MOST_WAITING = 32
"""Under an automatic length, a draft model takes in its waiting rows once there are more than this:
a trial of drafting pays for those that wait."""
DRAFT_TEMPERATURE = 0.5
"""A draft draws at this share of the target's temperature, where the target draws most of the same
tokens: a draft is less sure of its likeliest token than the target is."""
_LEAST = 1e-30
"""A probability that counts as more than none."""


class Guess(NamedTuple):
    """A token that may stand at a place."""

    id: int
    probability: float
    """The drafter's own, given the tokens before it."""
    sureness: float
    """The same with the noise that the target draws with, which says better whether the target
    draws this token. Equal at temperature 0."""


Drafting = Generator[Sequence[tuple[int, float]], int, None]
"""Gives a place's likeliest tokens with their probabilities, the likeliest first, and is sent the
one that the next place follows."""


@dataclass(frozen=True)
class Proposal:
    """A tree of tokens: parents come before their children, likelier siblings before the others.

    A chain is a tree without siblings; an empty proposal proposes nothing.
    """

    ids: Sequence[int] = ()
    probabilities: Sequence[float] = ()
    """The drafter's own, of each token given those before it."""
    parents: Sequence[int] = ()
    """For each token, the index of the one it follows; LAST_TOKEN for the first of a path."""
    drafter: str = ""
    """Name of the drafter, as the records of a round have it."""
    sureness: Sequence[float] = ()
    """For each token, see `Guess`."""

    @classmethod
    def of(
        cls, guesses: Sequence[Guess], drafter: str, parents: Sequence[int] | None = None
    ) -> Proposal:
        """Without `parents`, a chain."""
        if parents is None:
            parents = range(LAST_TOKEN, LAST_TOKEN + len(guesses))
        ids = [guess.id for guess in guesses]
        probabilities = [guess.probability for guess in guesses]
        return cls(ids, probabilities, parents, drafter, [guess.sureness for guess in guesses])

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, n: int) -> Proposal:
        return Proposal(
            self.ids[:n], self.probabilities[:n], self.parents[:n], self.drafter, self.sureness[:n]
        )

    @property
    def is_chain(self) -> bool:
        return all(parent == index - 1 for index, parent in enumerate(self.parents))

    @property
    def depths(self) -> list[int]:
        """For each token, the number of tokens on the path from the last token to it."""
        return depths(self.parents)

    def leaves(self) -> list[int]:
        """Indices of the tokens without children; each ends a path."""
        return [index for index in range(len(self)) if index not in self.parents]

    def path(self, index: int) -> list[int]:
        """Indices of the tokens from the first one down to the one at `index`."""
        path = []
        while index != LAST_TOKEN:
            path.append(index)
            index = self.parents[index]
        return path[::-1]

    def children(self, parent: int) -> list[int]:
        return children(self.parents, parent)


@dataclass(frozen=True)
class Limits:
    """How long a proposal may be, and how likely its tokens must be."""

    n_max: int
    n_min: int = 0
    """The loop drops a shorter proposal; a drafter need not look at this."""
    p_min: float = 0.0
    """A proposal ends before the first token to which the drafter gives less than this."""
    is_worth: Callable[[Sequence[float], int], bool] | None = None
    """Whether verifying one more token pays. Arguments: how sure the drafter is of each token on
    the path that ends with this one, and the number of tokens proposed beside it."""
    is_tree: bool = False
    """Whether tokens may have siblings, if the drafter can propose trees."""
    noise: Noise | None = None
    """What the target draws with; None at temperature 0."""

    def pays(self, sureness: Sequence[float], n_others: int) -> bool:
        """Whether verifying the last token of a path pays; arguments as for `is_worth`."""
        return self.is_worth is None or self.is_worth(sureness, n_others)

    def guesses(self, likeliest: Sequence[tuple[int, float]], n_before: int) -> list[Guess]:
        """The likeliest tokens of a place behind `n_before` drafted ones, each with its
        probability; the surest first."""
        if self.noise is None:
            return [Guess(id, share, share) for id, share in likeliest]
        ids, shares = zip(*likeliest, strict=True)
        noise = DRAFT_TEMPERATURE * self.noise.behind(n_before, ids)
        odds = np.exp(noise - noise.max()) * np.maximum(shares, _LEAST)
        guesses = map(Guess, ids, shares, (odds / odds.sum()).tolist())
        return sorted(guesses, key=lambda guess: -guess.sureness)

    def chain(self, drafting: Drafting, drafter: str) -> Proposal:
        """As many tokens as the limits keep. No further place is asked for than the first whose
        token is not kept."""
        kept: list[Guess] = []
        path: list[float] = []
        with suppress(StopIteration):
            likeliest = next(drafting)
            while True:
                guess = self.guesses(likeliest, len(kept))[0]
                path.append(guess.sureness)
                if guess.sureness < self.p_min or not self.pays(path, len(kept)):
                    break
                kept.append(guess)
                if len(kept) == self.n_max:
                    break
                likeliest = drafting.send(guess.id)
        return Proposal.of(kept, drafter)


@dataclass(frozen=True)
class Opening:
    """What a drafter is made of."""

    owned: ExitStack
    """Closes what is made, in the reverse order."""
    target: Context
    model: Model
    """The draft; the target's model if the drafter is in its file."""
    header: GGUFHeader
    """The header of that model's file."""
    options: LoadOptions
    n_threads: int

    def context(self, **options: Any) -> Context:
        """The drafter's own context, with these options besides those of the load. Raises
        ModelLoadError."""
        return self.owned.enter_context(
            Context(
                self.model,
                n_ctx=self.target.n_ctx,
                n_batch=self.options.n_batch,
                n_threads=self.n_threads,
                flash_attention=self.options.flash_attention,
                kv_type=self.options.draft_kv_type,
                **options,
            )
        )


class Spent(NamedTuple):
    """Milliseconds that a drafter has taken since it was made."""

    process_ms: float = 0.0
    """Reading what the target computed: for EAGLE-3, copying features and running the encoder."""
    draft_ms: float = 0.0
    """Everything else."""


class Drafter(ABC):
    """Proposes tokens for the one sequence of a target, with a context of its own.

    What it has seen of the target may wait, at no cost, until it drafts. Whatever it raises never
    ends a reply: the loop goes on without it.
    """

    name: str
    """As the records of a round have it."""
    in_one_pass = False
    """Whether one decode drafts all tokens, so that ending a draft early saves nothing."""

    def __init__(self, draft: Context) -> None:
        """The context stays the caller's."""
        self.draft = draft
        """The context that drafts."""
        self._batch = Batch(draft)
        self._process_s = self._draft_s = 0.0

    def close(self) -> None:
        """Call it before closing the contexts."""
        self._batch.close()

    @property
    @abstractmethod
    def known(self) -> int:
        """Positions from 0 on that it has seen. `propose` needs all the target holds."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Positions it has seen but not taken in, for which the next proposal pays."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """The most tokens it can propose now; 0 while it has seen too little of the text before
        the next token to guess it."""

    @property
    def grows_trees(self) -> bool:
        """Whether it can propose trees that the target's KV cache can hold."""
        return False

    @property
    def spent(self) -> Spent:
        return Spent(self._process_s * 1000.0, self._draft_s * 1000.0)

    # --- what the target holds ---

    @abstractmethod
    def resume(self, tokens: Sequence[int]) -> int:
        """Go on after `tokens`, which the target holds, and forget what was behind them.

        Returns how many of them the target can keep: it decodes the others again, for the drafter
        to see them.
        """

    @abstractmethod
    def shift(self, start: int, end: int) -> None:
        """Between two rounds, positions `start` to `end` - 1 have left the target's KV cache, and
        those from `end` on have moved down to `start`."""

    def set_export(self, enabled: bool) -> None:  # noqa: B027 - not every kind reads states
        """Have the target export what it reads in every decode, which slows it a little, or stop.
        What the target decodes without, this drafter has not seen."""

    def mark(self) -> object:
        """What `restore` needs, beside what this drafter holds, to go on from here later."""
        return ()

    def restore(self, length: int, mark: object) -> None:  # noqa: B027 - or needs marks
        """Get ready to go on after the first `length` positions, where `mark` was made. All of them
        are still known. `resume` follows."""

    # --- a round ---

    def see(self, batch: Batch, first: int = 0, last: int | None = None) -> None:
        """Take note of a batch that the target has just decoded, or of its rows `first` to `last` -
        1. Raises ProcessError if positions are missing before it, DecodeError."""
        started, spent = time.perf_counter(), self._process_s
        if batch.positions[first] != self.known:
            raise ProcessError(
                f"the draft saw {self.known} positions, the batch goes on at "
                f"{batch.positions[first]}"
            )
        self._see(batch, first, len(batch) if last is None else last)
        # Set, not added to: `take_in` may have counted its own time.
        self._process_s = spent + time.perf_counter() - started

    @abstractmethod
    def _see(self, batch: Batch, first: int, last: int) -> None: ...

    @abstractmethod
    def take_in(self) -> None:
        """Take in what waits now. Raises ProcessError, DecodeError."""

    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """What may follow token `id_last`, which stands at position `n_past`. Raises ProcessError
        if positions are missing or the draft fails to decode, DecodeError."""
        if limits.n_max == 0 or n_past == 0:
            return Proposal()
        if self.known != n_past:
            raise ProcessError(
                f"the draft saw {self.known} positions, drafting after position {n_past} needs "
                f"{n_past}"
            )
        started, process_before = time.perf_counter(), self._process_s
        proposal = self._draft(n_past, id_last, limits)
        in_process = self._process_s - process_before
        self._draft_s += time.perf_counter() - started - in_process
        return proposal

    @abstractmethod
    def _draft(self, n_past: int, id_last: int, limits: Limits) -> Proposal: ...

    @abstractmethod
    def accept(self, path: Sequence[int]) -> None:
        """The target chose the tokens at these indices of the proposal in the batch just seen,
        whoever made it; each is a child of the one before. Forget the others."""


def decode(draft: Context, batch: Batch) -> None:
    """Run a draft's decoder. Raises ProcessError."""
    status = draft.decode(batch)
    if status != 0:
        raise ProcessError(f"the draft failed to decode (llama.cpp status {status})")


def shifted(position: int, start: int, end: int) -> int:
    """Where a position is after those from `start` up to `end` have left."""
    return min(position, max(start, position - (end - start)))


def common_prefix(one: Sequence[int | None], other: Sequence[int | None]) -> int:
    """The length of the longest common prefix of two sequences."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))
