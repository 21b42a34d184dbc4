"""Everything the engine reported about one reply: its rounds and its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from eaglechat.chat.packing import unpack
from eaglechat.wire.protocol import AS_IT_IS, Chat, Message, Sampling, Speculation, Thinking
from eaglechat.wire.records import (
    FinishReason,
    Origin,
    Part,
    ReplyEnd,
    ReplyTimings,
    Round,
    RoundTimings,
    Token,
    text_in,
)
from eaglechat.wire.stats import (
    ROLLING_ROUNDS,
    Measured,
    PartsFold,
    PartStats,
    SpeculationStats,
    measured,
)
from eaglechat.wire.stretch import Stretch


class TurnPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a question, as sent to the model."""

    text: str
    source: Literal["typed", "paste", "file"] = "typed"
    name: str = ""
    """Name of the file."""


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a reply is requested with, besides the messages."""

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
    """Name of the engine; empty for eaglechat's own."""

    def to_chat(self, messages: Sequence[Message], begun: tuple[int, ...] = ()) -> Chat:
        """The request for a reply to these messages. `begun` are the first tokens of a reply that
        is continued."""
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


@dataclass(frozen=True)
class PackedRounds:
    """The rounds of a reply as the store has them. They are unpacked on demand: that takes longer
    than all the rest of reading a chat."""

    said: str
    """The answer that they wrote. Both texts are empty if nobody could write the end of the
    reply."""
    thought: str
    n_past: int
    """Tokens in the context after the last round; 0 if unknown."""
    pieces: tuple[bytes, ...]

    @property
    def has_text(self) -> bool:
        return bool(self.said or self.thought)

    def text(self, part: Part) -> str:
        """The text of one part of the reply."""
        if not self.has_text:
            return text_in(self.rounds(), part)
        return self.thought if part is Part.REASONING else self.said

    def rounds(self) -> list[Round]:
        """All rounds, unpacked. If they are damaged, one round of which only the text is known."""
        try:
            return [round_ for piece in self.pieces for round_ in unpack(piece)]
        except ValueError:
            return [text_alone(self.said, self.thought)]


def text_alone(answer: str, reasoning: str) -> Round:
    """A round of which only the text is known."""
    texts = ((reasoning, Part.REASONING), (answer, Part.ANSWER))
    tokens = (Token(None, text, Origin.UNKNOWN, part=part) for text, part in texts if text)
    return Round(0, 0, (), 0, 0, tuple(tokens), 0, RoundTimings(0.0, 0.0, 0.0, 0.0, 0.0))


class Recording:
    """One reply, from its request to its end.

    Rounds from disk are unpacked when `rounds` is first read.
    """

    def __init__(self, terms: Terms, packed: PackedRounds | None = None) -> None:
        self.terms = terms
        self.changed: set[str] = set()
        """Names of controls that were changed while it was written."""
        self.speculation_stopped: str | None = None
        """Why the engine switched speculation off, if it did."""
        self.end: ReplyEnd | None = None
        """None while it is written, and if it was cut off by a crash."""
        self.is_settled = False
        """Its rounds were replaced by final ones."""
        self.n_before = 0
        """Its rounds when it was continued last; 0 if it never was."""
        self._ended: tuple[ReplyEnd | None, SpeculationStats | None] = None, None
        """Its end and the engine's statistics at that time."""
        self.packed = packed
        """Its rounds, until they are first read."""
        self._rounds: list[Round] = []
        self._counted = SpeculationStats()
        self._stats: SpeculationStats | None = None
        self._parts, self._written = PartsFold(), set[Part]()
        self._stretch = Stretch()

    def go_on(self) -> None:
        """It is continued behind its last token: the rounds, their indices and the end that come
        now are of the rest."""
        self._ended, self.n_before = (self.end, self._stats), len(self.rounds)
        self.end = self._stats = None

    def stand_still(self) -> None:
        """Nothing more comes. If nothing came since it was continued, it is as it was before."""
        if self.end is None and len(self.rounds) == self.n_before:
            self.end, self._stats = self._ended

    def add(self, round_: Round) -> None:
        """Add the next round."""
        if self.n_before:
            round_ = replace(round_, index=self.n_before + round_.index)
        self._append(round_)

    def _append(self, round_: Round) -> None:
        self._rounds.append(round_)
        self._counted = self._counted.plus(round_)
        self._parts.add(round_)
        self._stretch.add(round_)
        self._written |= {token.part for token in round_.tokens if token.part and token.text}

    def settle(self, rounds: Iterable[Round]) -> None:
        """Replace the rounds since it began, or was continued, by these."""
        self.is_settled = True
        before = self.rounds[: self.n_before]
        self._rounds, self._counted = [], SpeculationStats()
        self._parts, self._written, self._stretch = PartsFold(), set(), Stretch()
        for round_ in before:
            self._append(round_)
        for round_ in rounds:
            self.add(round_)

    def finish(self, end: ReplyEnd, stats: SpeculationStats | None) -> None:
        """Set the end and the engine's statistics of all rounds; None: count them from the
        rounds."""
        if self.n_before:
            end, stats = (
                _joined(self._ended[0] or _cut_off(self.rounds[: self.n_before]), end),
                None,
            )
        self.end, self._stats = end, stats

    @property
    def rounds(self) -> Sequence[Round]:
        """Every round so far."""
        if self.packed is not None:
            packed, self.packed = self.packed, None
            for round_ in packed.rounds():
                self._append(round_)
        return self._rounds

    @property
    def ids(self) -> tuple[int, ...] | None:
        """Ids of all tokens in the context after the prompt; None if the engine did not report
        one."""
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
        """The reasoning before the answer."""
        return self._text(Part.REASONING)

    @property
    def has_reasoning(self) -> bool:
        """Whether there is reasoning before the answer."""
        return Part.REASONING in self._written or bool(self.packed and self.reasoning)

    @property
    def is_answering(self) -> bool:
        """Whether the answer has begun."""
        return Part.ANSWER in self._written or bool(self.packed and self.text)

    @property
    def is_textless(self) -> bool:
        """Whether only its rounds are known: the program that wrote it was killed."""
        return self.end is None and self.packed is not None and not self.packed.has_text

    @property
    def stretch(self) -> Stretch:
        """The rounds since the draft length was last set by hand."""
        return self._stretch if self.rounds else Stretch()

    @property
    def by_part(self) -> dict[Part, PartStats]:
        """The statistics of each part of the reply that has tokens."""
        return self._parts.stats() if self.rounds else {}

    def written(self, part: Part) -> str:
        """The text the rounds wrote in a part."""
        return self.packed.text(part) if self.packed else text_in(self._rounds, part)

    def _text(self, part: Part) -> str:
        is_tails = self.end is not None and (self.end.tail_part or Part.ANSWER) is part
        return self.written(part) + (self.end.tail if self.end and is_tails else "")

    @property
    def stats(self) -> SpeculationStats:
        """The engine's at the end; until then, counted from the rounds so far."""
        if self._stats is not None or not self.rounds:
            return self._stats or SpeculationStats()
        return self._counted

    @property
    def measured(self) -> Measured:
        """Times of the whole reply once it has ended, of its latest rounds while it runs. The
        counts of acceptance are always those of the whole reply."""
        if self.end is not None:
            return Measured(self.stats, self.end.tokens, self.end.timings)
        return replace(measured(self.rounds[-ROLLING_ROUNDS:]), stats=self.stats)

    @property
    def n_past(self) -> int:
        """Tokens in the context after it, 0 if unknown."""
        if self.packed is not None and self.packed.n_past:
            in_rounds = self.packed.n_past
        else:
            in_rounds = self.rounds[-1].n_past if self.rounds else 0
        # Most servers report the length of the prompt only at the end of the reply.
        return in_rounds or (self.end.n_past if self.end else 0)

    @property
    def speculated(self) -> bool:
        """Whether at least one draft was verified."""
        return self.stats.verify_steps > 0


def _joined(before: ReplyEnd, after: ReplyEnd) -> ReplyEnd:
    """The end of a reply that was continued: tokens and times are sums."""
    timings: dict[str, Any] = {
        name: _sum(getattr(before.timings, name), getattr(after.timings, name))
        for name in ReplyTimings.__struct_fields__
    }
    return replace(after, tokens=before.tokens + after.tokens, timings=ReplyTimings(**timings))


def _sum(one: float | None, other: float | None) -> float | None:
    """None if one of them is not reported. Counts stay integers."""
    return None if one is None or other is None else one + other


def _cut_off(rounds: Sequence[Round]) -> ReplyEnd:
    """The end of a reply that was cut off after these rounds."""
    so_far = measured(rounds)
    assert so_far.timings is not None
    return ReplyEnd(FinishReason.CANCELLED, 0, so_far.tokens, "", so_far.timings)
