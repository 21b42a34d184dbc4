"""Places in the open chat: whatever is typed, as it stands in questions and answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from eaglechat.chat.conversation.turns import Question, Turn, TurnId
from eaglechat.chat.search.query import folded
from eaglechat.chat.writing.parts import shown


@dataclass(frozen=True)
class Spot:
    """A place in the text of a turn: where it begins and ends."""

    turn: TurnId
    span: tuple[int, int]
    in_reasoning: bool = False


def spots(path: Sequence[Turn], typed: str, known: dict[str, str] | None = None) -> list[Spot]:
    """Every place, in the order in which a chat is read; case and accents do not matter.

    `known` keeps texts as they are compared, from one call to the next: making them takes longer
    than searching them.
    """
    known = {} if known is None else known
    wanted = folded(typed)
    if not wanted.strip():
        return []
    pattern = re.compile(re.escape(wanted))
    found = []
    for turn in path:
        said = shown(turn.parts) if isinstance(turn, Question) else turn.text
        for text, in_reasoning in ((turn.reasoning, True), (said, False)):
            if text not in known:
                known[text] = folded(text)
            places = pattern.finditer(known[text])
            found += [Spot(turn.id, place.span(), in_reasoning) for place in places]
    return found
