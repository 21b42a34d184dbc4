"""Everything the engine reported about one reply: its rounds and its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from eaglechat.chat.measured import Measured, Stretch, by_part, measured
from eaglechat.wire.protocol import AS_IT_IS, Chat, Message, Sampling, Speculation, Thinking
from eaglechat.wire.records import Origin, Part, ReplyEnd, Round, RoundTimings, Token
from eaglechat.wire.stats import SpeculationStats


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


def text_alone(answer: str, reasoning: str) -> Round:
    """A round of which only the text is known."""
    texts = ((reasoning, Part.REASONING), (answer, Part.ANSWER))
    tokens = (Token(None, text, Origin.UNKNOWN, part=part) for text, part in texts if text)
    return Round(0, 0, (), 0, 0, tuple(tokens), 0, RoundTimings(0.0, 0.0, 0.0, 0.0, 0.0))


_OF_THE_PROMPT = "prefill_ms", "prefill_tokens", "reused_tokens"


class Recording:
    """One reply, from its request to its end."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
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
        self._stats: SpeculationStats | None = None
        self._begin()

    def _begin(self) -> None:
        self._rounds: list[Round] = []
        self._read: Callable[[], list[Round]] | None = None
        self._texts: dict[Part, list[str]] = {part: [] for part in Part}
        self._counted, self._stretch = SpeculationStats(), Stretch()
        """Of the rounds that were counted so far."""

    def hold(self, answer: str, reasoning: str, read: Callable[[], list[Round]]) -> None:
        """It wrote these texts. `read` gives its rounds once they are needed: of all replies of a
        long chat, that takes longer than anything else in opening it."""
        self._texts = {Part.ANSWER: [answer], Part.REASONING: [reasoning]}
        self._read = read

    @property
    def rounds(self) -> list[Round]:
        """Every round so far."""
        if self._read is not None:
            rounds = self._read()
            self._begin()
            for round_ in rounds:
                self.add(round_)
        return self._rounds

    # While it is written

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
        rounds = self.rounds
        # The engine counts anew what comes after it was continued.
        rounds.append(replace(round_, index=len(rounds)))
        for token in round_.tokens:
            if token.part is not None:
                self._texts[token.part].append(token.text)

    def settle(self, rounds: Iterable[Round]) -> None:
        """Replace the rounds since it began, or was continued, by these."""
        self.is_settled = True
        before = self.rounds[: self.n_before]
        self._begin()
        for round_ in (*before, *rounds):
            self.add(round_)

    def finish(self, end: ReplyEnd, stats: SpeculationStats | None) -> None:
        """Set the end and the engine's statistics of all rounds; None: count them from the
        rounds."""
        if self.n_before:
            # It may have been cut off.
            before, whole = self._ended[0], measured(self.rounds)
            timings = whole.timings
            assert timings is not None
            if before is not None:
                read = {name: getattr(before.timings, name) for name in _OF_THE_PROMPT}
                timings = replace(timings, **read)
            end, stats = replace(end, tokens=whole.tokens, timings=timings), None
        self.end, self._stats = end, stats

    # What was written

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
        return self._text(Part.REASONING)

    @property
    def has_reasoning(self) -> bool:
        return any(self._texts[Part.REASONING])

    @property
    def is_answering(self) -> bool:
        return any(self._texts[Part.ANSWER])

    def written(self, part: Part) -> str:
        """The text the rounds wrote in a part."""
        return "".join(self._texts[part])

    def _text(self, part: Part) -> str:
        """With what the engine told at the end."""
        is_tails = self.end is not None and (self.end.tail_part or Part.ANSWER) is part
        return self.written(part) + (self.end.tail if self.end and is_tails else "")

    @property
    def n_past(self) -> int:
        """Tokens in the context after it, 0 if unknown."""
        # Where there is an end, rounds on disk are not read for it. Most servers report the length
        # of the prompt only there.
        rounds = self.rounds if self.end is None else self._rounds
        n_past = rounds[-1].n_past if rounds else 0
        return n_past or (self.end.n_past if self.end else 0)

    # What follows from it

    @property
    def stretch(self) -> Stretch:
        """The rounds since the draft length was last set by hand."""
        self._count()
        return self._stretch

    @property
    def by_part(self) -> dict[Part, Measured]:
        return by_part(self.rounds)

    @property
    def stats(self) -> SpeculationStats:
        """The engine's at the end; until then, counted from the rounds so far."""
        if self._stats is not None:
            return self._stats
        self._count()
        return self._counted

    def _count(self) -> None:
        """Count the new rounds. Those of a chat on disk are counted when they come into sight: for
        all of them, that takes longer than to read the chat."""
        for round_ in self.rounds[self._counted.rounds :]:
            self._counted = self._counted.plus(round_)
            self._stretch.add(round_)

    @property
    def measured(self) -> Measured:
        """Counts and times of the whole reply; of a reply without an end, those of its rounds."""
        if self.end is not None:
            return Measured(self.stats, self.end.tokens, self.end.timings)
        return measured(self.rounds)
