"""Prompt lookup: the last few tokens are looked up in the text before them, and what followed there
is proposed.

It needs no model. Where a reply repeats its context (edits, code, quotations), it guesses many
tokens in a row. Source: Saxena's prompt lookup decoding, as in transformers'
PromptLookupCandidateGenerator.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from eaglechat.engine.drafters.base import Limits, Proposal, Spent
from eaglechat.engine.llama.objects import Batch
from eaglechat.wire.errors import DrafterError
from eaglechat.wire.records import NGRAM

_SHORTEST, _LONGEST = 2, 12
"""Tokens of the shortest match that counts, and of the longest that is looked for."""
_MOST_PLACES = 64
"""Of the places where the last tokens occur, only this many, the latest, are compared."""


class NgramDrafter:
    """Proposes chains from the prompt and the reply so far."""

    name = NGRAM

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._n_in_batch = 0
        self._places: dict[tuple[int, ...], list[int]] = {}
        """For each run of `_SHORTEST` tokens, the positions behind its occurrences, ascending."""
        self._indexed = 0
        """How many of the tokens are in `_places`."""
        self._draft_s = 0.0

    @property
    def known(self) -> int:
        return len(self._tokens)

    @property
    def spent(self) -> Spent:
        return Spent(draft_ms=self._draft_s * 1000.0)

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
        known = min(len(tokens), len(self._tokens))
        self._forget(known if self._tokens[:known] == list(tokens[:known]) else 0)
        self._tokens += tokens[len(self._tokens) :]
        return len(tokens)

    def shift(self, start: int, end: int) -> None:
        rest = self._tokens[end:]
        self._forget(start)
        self._tokens += rest

    def see(self, batch: Batch) -> None:
        if batch.positions[0] != len(self._tokens):
            raise DrafterError(
                f"the n-gram drafter saw {len(self._tokens)} tokens, "
                f"the batch goes on at {batch.positions[0]}"
            )
        self._tokens += batch.tokens
        self._n_in_batch = len(batch)

    def accept(self, path: Sequence[int]) -> None:
        start = len(self._tokens) - self._n_in_batch
        last, *proposed = self._tokens[start:]
        self._forget(start)
        self._tokens += [last, *(proposed[index] for index in path)]

    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        started = time.perf_counter()
        if n_past != len(self._tokens):
            raise DrafterError(
                f"the n-gram drafter saw {len(self._tokens)} tokens, "
                f"drafting after position {n_past} needs {n_past}"
            )
        for place in range(max(self._indexed, _SHORTEST - 1) + 1, len(self._tokens) + 1):
            run = tuple(self._tokens[place - _SHORTEST : place])
            self._places.setdefault(run, []).append(place)
        self._indexed = len(self._tokens)
        end = [*self._tokens[1 - _LONGEST :], id_last]
        length, places = self._longest_match(end)
        ids, probabilities = self._follow(places, length, id_last, limits)
        self._draft_s += time.perf_counter() - started
        return Proposal.chain(ids, probabilities, self.name)

    def _longest_match(self, end: Sequence[int]) -> tuple[int, list[int]]:
        """The number of tokens at the end of `end` that occur before, as many as possible, and the
        positions behind their occurrences."""
        places = self._places.get(tuple(end[-_SHORTEST:]), [])[-_MOST_PLACES:]
        length = _SHORTEST
        while places and length < len(end):
            longer = [
                place
                for place in places
                if place > length and self._tokens[place - length - 1] == end[-length - 1]
            ]
            if not longer:
                break
            places, length = longer, length + 1
        return length, places

    def _follow(
        self, places: list[int], length: int, id_last: int, limits: Limits
    ) -> tuple[list[int], list[float]]:
        """The tokens that followed at the latest of `places`, with their probabilities. A
        proposal that reaches the end of the text goes on with its own tokens.

        A token's probability is the share of the places where the same token follows. The divisor
        has 1 / (tokens matched so far) of a place more, so a single place is never certain.
        """
        ids: list[int] = []
        probabilities: list[float] = []
        while places and len(ids) < limits.n_max:
            following = [self._at(place + len(ids), id_last, ids) for place in places]
            agreeing = [
                place
                for place, token in zip(places, following, strict=True)
                if token == following[-1]
            ]
            share = len(agreeing) / (len(places) + 1.0 / (length + len(ids)))
            if not limits.keep([*probabilities, share]):
                break
            ids.append(following[-1])
            probabilities.append(share)
            places = agreeing
        return ids, probabilities

    def _at(self, position: int, id_last: int, ids: Sequence[int]) -> int:
        """The token at a position of the text followed by `id_last` and the proposal `ids`."""
        beyond = position - len(self._tokens)
        return self._tokens[position] if beyond < 0 else id_last if beyond == 0 else ids[beyond - 1]

    def _forget(self, length: int) -> None:
        """Forget the tokens from `length` on."""
        for place in range(self._indexed, max(length, _SHORTEST - 1), -1):
            run = tuple(self._tokens[place - _SHORTEST : place])
            self._places[run].pop()
            if not self._places[run]:
                del self._places[run]
        self._indexed = min(self._indexed, length)
        del self._tokens[length:]
