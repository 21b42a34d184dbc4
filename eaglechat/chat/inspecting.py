"""Inside a round: for each of its tokens, what was drafted there, and what the target sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from eaglechat.chat.recording import Recording, Terms
from eaglechat.wire.protocol import TOP_DEFAULT
from eaglechat.wire.records import (
    LAST_TOKEN,
    DraftToken,
    FinishReason,
    Likely,
    Origin,
    Round,
    Token,
)

Fate = Literal["accepted", "rejected", "sampled", ""]


@dataclass(frozen=True)
class CandidateToken:
    """A candidate for one position. None: not known, or does not apply."""

    text: str | None
    draft: float | None
    """Its probability according to the draft."""
    target: float | None
    """Its probability according to the target."""
    chance: float | None
    """Probability of being sampled, after filters and temperature."""
    fate: Fate


@dataclass(frozen=True)
class Position:
    """One emitted token of a round, and the candidates for its position."""

    token: Token
    candidates: tuple[CandidateToken, ...]
    """The likeliest first, if the engine recorded the target's probabilities."""

    @property
    def rejected(self) -> CandidateToken | None:
        """The first candidate that was drafted and rejected."""
        return next((one for one in self.candidates if one.fate == "rejected"), None)


@dataclass(frozen=True)
class Inside:
    """A round, position by position."""

    positions: tuple[Position, ...]
    untested: tuple[DraftToken, ...]
    """Drafted tokens behind a rejected one, which were not verified."""


def recorded_terms(reply: Recording) -> Terms:
    """What to request to get the same reply again, with the target's candidates recorded; a reply
    that was stopped ends at the same length."""
    terms, end = msgspec.structs.replace(reply.terms, top=TOP_DEFAULT), reply.end
    if end is None:
        return terms
    was_stopped = end.finish_reason is FinishReason.CANCELLED and end.tokens > 0
    return msgspec.structs.replace(
        terms,
        sampling=msgspec.structs.replace(terms.sampling, seed=end.seed),
        max_tokens=end.tokens if was_stopped else terms.max_tokens,
    )


def look_inside(round_: Round) -> Inside:
    """Follow the tokens of a round through its draft, from the root of the tree."""
    positions, tested, at = [], set[int](), LAST_TOKEN
    for number, token in enumerate(round_.tokens):
        children = round_.children(at)
        taken = _taken(round_, token, children)
        tested.update(children)
        likely = round_.likely[number] if number < len(round_.likely) else ()
        drafted = {i: round_.drafted[i] for i in children}
        positions.append(Position(token, tuple(_candidates(token, drafted, taken, likely))))
        if taken is None:
            break
        at = taken
    untested = (one for i, one in enumerate(round_.drafted) if i not in tested)
    return Inside(tuple(positions), tuple(untested))


def _taken(round_: Round, token: Token, children: list[int]) -> int | None:
    """Index of the drafted token that the target sampled. One without an id is of a chain."""
    if token.origin is not Origin.ACCEPTED:
        return None
    return next((i for i in children if round_.drafted[i].id in (token.id, None)), None)


def _candidates(
    token: Token, drafted: dict[int, DraftToken], taken: int | None, likely: tuple[Likely, ...]
) -> list[CandidateToken]:
    left = dict(drafted)
    rows = []
    for one in likely:
        index = next((i for i, draft in left.items() if draft.id == one.id), None)
        draft = left.pop(index) if index is not None else None
        fate = _fate(index, taken, is_sampled=one.id == token.id)
        rows.append(_row(one.text, draft, fate, one))
    rows += [_row(draft.text, draft, _fate(i, taken), None) for i, draft in left.items()]
    if not any(row.fate in ("accepted", "sampled") for row in rows):
        rows.insert(0, _row(token.text, None, "sampled", None))
    return rows


def _row(
    text: str | None, draft: DraftToken | None, fate: Fate, likely: Likely | None
) -> CandidateToken:
    return CandidateToken(
        text=text,
        draft=draft.probability if draft else None,
        target=likely.probability if likely else None,
        chance=likely.chance if likely else None,
        fate=fate,
    )


def _fate(index: int | None, taken: int | None, *, is_sampled: bool = False) -> Fate:
    if index is None:
        return "sampled" if is_sampled else ""
    return "accepted" if index == taken else "rejected"
