"""Inside a round: what stood in each of its places, what was drafted there, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eaglechat.wire.records import DraftToken, Likely, Origin, Round, Token
from eaglechat.wire.trees import LAST_TOKEN

Fate = Literal["accepted", "rejected", "sampled", ""]


@dataclass(frozen=True)
class InPlay:
    """A token that might have come in a place. None is what is not known, or does not apply."""

    text: str | None
    draft: float | None
    """Its probability according to the draft."""
    target: float | None
    """Its probability according to the target."""
    chance: float | None
    """Of being sampled, after filters and temperature."""
    fate: Fate
    drafter: str = ""


@dataclass(frozen=True)
class Place:
    """A place of a reply that a round filled."""

    token: Token
    in_play: tuple[InPlay, ...]
    """The likeliest first where the target's choices are recorded."""

    @property
    def rejected(self) -> InPlay | None:
        """The first that was drafted here and not sampled."""
        return next((one for one in self.in_play if one.fate == "rejected"), None)


@dataclass(frozen=True)
class Inside:
    """A round, place by place."""

    places: tuple[Place, ...]
    untested: tuple[DraftToken, ...]
    """Drafted tokens that the target was never asked about."""


def look_inside(round_: Round) -> Inside:
    """Follow the tokens of a round through what was drafted, from the root of its tree."""
    places, tested, at = [], set[int](), LAST_TOKEN
    for number, token in enumerate(round_.tokens):
        children = round_.children(at)
        taken = _taken(round_, token, children)
        tested.update(children)
        likely = round_.likely[number] if number < len(round_.likely) else ()
        drafted = {i: round_.drafted[i] for i in children}
        places.append(Place(token, tuple(_in_play(token, drafted, taken, likely))))
        if taken is None:
            break
        at = taken
    untested = (one for i, one in enumerate(round_.drafted) if i not in tested)
    return Inside(tuple(places), tuple(untested))


def _taken(round_: Round, token: Token, children: list[int]) -> int | None:
    """Which of the drafted tokens the target sampled. One whose id is not reported is a chain's."""
    if token.origin is not Origin.ACCEPTED:
        return None
    return next((i for i in children if round_.drafted[i].id in (token.id, None)), None)


def _in_play(
    token: Token, drafted: dict[int, DraftToken], taken: int | None, likely: tuple[Likely, ...]
) -> list[InPlay]:
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


def _row(text: str | None, draft: DraftToken | None, fate: Fate, likely: Likely | None) -> InPlay:
    return InPlay(
        text=text,
        draft=draft.probability if draft else None,
        target=likely.probability if likely else None,
        chance=likely.chance if likely else None,
        fate=fate,
        drafter=draft.drafter if draft else "",
    )


def _fate(index: int | None, taken: int | None, *, is_sampled: bool = False) -> Fate:
    if index is None:
        return "sampled" if is_sampled else ""
    return "accepted" if index == taken else "rejected"
