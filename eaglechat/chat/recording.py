"""What the engine reported of one request: the rounds as they came, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from eaglechat.wire.protocol import AS_IT_IS, Chat, Message, Sampling, Speculation, Thinking
from eaglechat.wire.records import Part, ReplyEnd, Round
from eaglechat.wire.stats import PartsFold, PartStats, RollingStats, SpeculationStats, StatsFold


class TurnPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a turn, as it is sent."""

    text: str
    kind: Literal["text", "reasoning"] = "text"
    source: Literal["typed", "paste", "file"] = "typed"
    name: str = ""
    """Of a file."""


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a reply was asked with, beside the messages."""

    pair: str = ""
    target: str = ""
    draft: str | None = None
    system_prompt: str = ""
    sampling: Sampling = Sampling()
    speculation: Speculation = Speculation()
    thinking: Thinking = AS_IT_IS
    max_tokens: int | None = None
    top: int = 0
    engine: str = ""
    """Which engine wrote it, where that is not eaglechat's own."""

    def to_chat(self, messages: Sequence[Message], begun: tuple[int, ...] = ()) -> Chat:
        """The request for a reply to these messages, which may have begun with some tokens."""
        system = [Message(role="system", content=self.system_prompt)] if self.system_prompt else []
        return Chat(
            messages=(*system, *messages),
            sampling=self.sampling,
            speculation=self.speculation,
            thinking=self.thinking,
            max_tokens=self.max_tokens,
            top=self.top,
            begun=begun,
        )


class Kept(Protocol):
    """Rounds on disk that nobody has looked at yet."""

    def text(self, part: Part) -> str:
        """What was written in a part of the reply."""

    def rounds(self) -> list[Round]:
        """The rounds."""

    def n_past(self) -> int:
        """Tokens in the context behind the last round; 0 where that is not known. Cheaper than the
        rounds."""


class Recording:
    """One request from its sending to its end. Rounds read from disk are decoded when looked at."""

    def __init__(self, terms: Terms, kept: Kept | None = None) -> None:
        self.terms = terms
        self.changed: set[str] = set()
        """Controls that were turned while it ran."""
        self.speculation_stopped: str | None = None
        """Why speculation stopped by itself, if it did."""
        self.end: ReplyEnd | None = None
        """How it ended; None while it runs, and where it was cut off."""
        self.went_on = False
        """It was stopped once, and went on later: its terms are those of its beginning."""
        self.is_settled = False
        """Its rounds were provisional, and are no longer."""
        self._kept = kept
        self._rounds: list[Round] = []
        self._fold = StatsFold()
        self._stats: SpeculationStats | None = None
        self._parts, self._written = PartsFold(), set[Part]()
        self._speed = RollingStats()

    def add(self, round_: Round) -> None:
        """The next round."""
        self._rounds.append(round_)
        self._fold.add(round_)
        self._parts.add(round_)
        self._speed.add(round_)
        self._written |= {token.part for token in round_.tokens if token.part and token.text}

    def settle(self, rounds: Iterable[Round], n_before: int = 0) -> None:
        """All rounds as they were, in place of those behind the first `n_before`."""
        self.is_settled = True
        before = self.rounds[:n_before]
        self._rounds, self._fold = [], StatsFold()
        self._parts, self._written = PartsFold(), set()
        self._speed = RollingStats()
        for round_ in (*before, *rounds):
            self.add(round_)

    def finish(self, end: ReplyEnd, stats: SpeculationStats | None) -> None:
        """It ended, with these statistics of all its rounds; None has them counted."""
        self.end, self._stats = end, stats

    @property
    def rounds(self) -> Sequence[Round]:
        """Every round so far."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            for round_ in kept.rounds():
                self.add(round_)
        return self._rounds

    @property
    def ids(self) -> tuple[int, ...] | None:
        """Every token in the context behind the prompt; None where one is not known."""
        ids: list[int | None] = []
        for round_ in self.rounds:
            ids += [*round_.given, *(token.id for token in round_.tokens)]
        known = tuple(id for id in ids if id is not None and id >= 0)
        return known if len(known) == len(ids) else None

    @property
    def text(self) -> str:
        """The answer, without rejected tokens."""
        return self._text(Part.ANSWER)

    @property
    def reasoning(self) -> str:
        """What was thought before the answer."""
        return self._text(Part.REASONING)

    @property
    def has_reasoning(self) -> bool:
        """Whether anything was thought before the answer."""
        return Part.REASONING in self._written or bool(self._kept and self.reasoning)

    @property
    def is_answering(self) -> bool:
        """Whether the answer has begun."""
        return Part.ANSWER in self._written or bool(self._kept and self.text)

    @property
    def by_part(self) -> dict[Part, PartStats]:
        """The statistics of each part that it has."""
        return self._parts.stats() if self.rounds else {}

    @property
    def parts(self) -> tuple[TurnPart, ...]:
        thought = (TurnPart(self.reasoning, "reasoning"),) if self.reasoning else ()
        return (*thought, TurnPart(self.text))

    def written(self, part: Part) -> str:
        """What the rounds wrote in a part."""
        return self._kept.text(part) if self._kept else text_in(self._rounds, part)

    def _text(self, part: Part) -> str:
        is_tails = self.end is not None and (self.end.tail_part or Part.ANSWER) is part
        return self.written(part) + (self.end.tail if self.end and is_tails else "")

    @property
    def stats(self) -> SpeculationStats:
        """Those the engine reported at the end; until then, of the rounds so far."""
        if self._stats is not None or not self.rounds:
            return self._stats or SpeculationStats()
        return self._fold.stats()

    @property
    def tokens_per_second(self) -> float | None:
        """Of all of it when it has ended, of its latest rounds while it runs."""
        if self.end is not None:
            return self.end.tokens_per_second or None
        return self._speed.tokens_per_second if self.rounds else None

    @property
    def n_past(self) -> int:
        """Tokens in the context behind it; 0 where that is not known."""
        if self._kept is not None:
            in_rounds = self._kept.n_past()
        else:
            in_rounds = self._rounds[-1].n_past if self._rounds else 0
        # Most servers count the prompt when the reply has ended.
        return in_rounds or (self.end.n_past if self.end else 0)

    @property
    def speculated(self) -> bool:
        """A draft was verified at least once."""
        return self.stats.verify_steps > 0


def text_in(rounds: Iterable[Round], part: Part) -> str:
    """What rounds wrote in one part of their reply."""
    return "".join(token.text for round_ in rounds for token in round_.tokens if token.part is part)
