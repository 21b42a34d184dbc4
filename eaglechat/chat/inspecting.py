"""Inside a round: for each of its tokens, what was drafted there, and what the target sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eaglechat.wire.records import LAST_TOKEN, DraftToken, Likely, Round, Token

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


Position = tuple[Token, list[CandidateToken]]
"""An emitted token, and the candidates for its position: the likeliest first, if the engine
recorded the target's probabilities."""


def look_inside(round_: Round) -> tuple[list[Position], list[DraftToken]]:
    """Follow the tokens of a round through its draft, from the root of the tree; and the drafted
    tokens behind a rejected one, which were not verified."""
    positions, tested, path = list[Position](), set[int](), round_.path
    for number, (token, at) in enumerate(zip(round_.tokens, (LAST_TOKEN, *path), strict=False)):
        children = {i: round_.drafted[i] for i in round_.children(at)}
        tested.update(children)
        taken = path[number] if number < len(path) else None
        likely = round_.likely[number] if number < len(round_.likely) else ()
        positions.append((token, _candidates(token, children, taken, likely)))
    return positions, [one for i, one in enumerate(round_.drafted) if i not in tested]


def _candidates(
    token: Token, drafted: dict[int, DraftToken], taken: int | None, likely: tuple[Likely, ...]
) -> list[CandidateToken]:
    """`taken` is the index of the drafted token that the target sampled, if it did."""
    fates: dict[int, Fate] = {i: "accepted" if i == taken else "rejected" for i in drafted}
    rows, left = [], dict(drafted)
    for one in likely:
        i = next((i for i, draft in left.items() if draft.id == one.id), None)
        probability = None if i is None else left.pop(i).probability
        fate: Fate = "sampled" if one.id == token.id else ""
        fate = fate if i is None else fates[i]
        rows.append(CandidateToken(one.text, probability, one.probability, one.chance, fate))
    for i, draft in left.items():
        rows.append(CandidateToken(draft.text, draft.probability, None, None, fates[i]))
    if not any(row.fate in ("accepted", "sampled") for row in rows):
        rows.insert(0, CandidateToken(token.text, None, None, None, "sampled"))
    return rows
