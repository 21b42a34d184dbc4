"""Prompt lookup: the last few tokens are looked up in the text before them, and what followed there
is proposed.

It needs no model, and keeps nothing between rounds. Where a reply repeats its context (edits, code,
quotations), it guesses many tokens in a row. Source: Saxena's prompt lookup decoding, as in
transformers' PromptLookupCandidateGenerator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eaglechat.engine.drafters.proposal import Drafting, Limits, Proposal
from eaglechat.wire.records import NGRAM

_SHORTEST, _LONGEST = 2, 12
"""Tokens of the shortest match that counts, and of the longest that is looked for."""
_MOST_PLACES = 64
"""Of the places where the last tokens occur, only this many, the latest, are compared."""


def look_up(tokens: Sequence[int], id_last: int, limits: Limits) -> Proposal:
    """A chain that may follow `tokens` and `id_last`: what followed the longest end of this text
    where it stood before, and of several such places at the latest. A chain that reaches the end of
    the text goes on with its own tokens.

    `tokens` is best an array of C ints, which is copied as a whole. A token's probability is the
    share of the places where the same token follows. The divisor has 1 / (tokens matched so far) of
    a place more, so a single place is never certain.
    """
    end = len(tokens) + 1
    if limits.n_max == 0 or end <= _SHORTEST:
        return Proposal()
    text = np.empty(end + limits.n_max, dtype=np.intc)
    text[: end - 1], text[end - 1] = tokens, id_last

    # Positions behind each place where the last tokens stand.
    is_same = (text[: end - 2] == text[end - 2]) & (text[1 : end - 1] == text[end - 1])
    places = np.flatnonzero(is_same)[-_MOST_PLACES:] + _SHORTEST
    length = _SHORTEST
    while len(places) and length < min(_LONGEST, end):
        longer = places[places > length]
        longer = longer[text[longer - length - 1] == text[end - length - 1]]
        if not len(longer):
            break
        places, length = longer, length + 1

    def following() -> Drafting:
        nonlocal places
        for n in range(limits.n_max if len(places) else 0):
            tokens = text[places + n]
            agreeing = places[tokens == tokens[-1]]
            text[end + n] = tokens[-1]
            yield [(int(tokens[-1]), len(agreeing) / (len(places) + 1.0 / (length + n)))]
            places = agreeing

    return limits.kept(limits.chain(following(), NGRAM))
