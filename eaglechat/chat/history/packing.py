"""Rounds on disk: compressed columns of numbers. The text the rounds wrote is stored beside them.

With the text, a token of a reply takes 34 to 48 bytes; rounds that msgspec encodes and zlib
compresses take 105 to 205.

Ids, texts, origins and counts are exact; times are rounded to 0.01 ms, probabilities to 1/250. The
speeds that the automatic draft length expects are kept only for the last round of a piece, which is
the one the panel shows at the end of a reply.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import NamedTuple

import msgspec

from eaglechat.wire.records import (
    AutoDraft,
    AutoReason,
    DraftToken,
    Likely,
    Origin,
    Part,
    Round,
    RoundTimings,
    Token,
    text_in,
)

_ORIGINS = tuple(Origin)
_REASONS = {reason.value: reason for reason in AutoReason}
_PARTS = (Part.ANSWER, Part.REASONING, None)
_TIMES = tuple(field.name for field in fields(RoundTimings) if field.name != "total_ms")
_TIME_STEPS = 100
_PROBABILITY_STEPS = 250
_LIKELY_STEPS = 10_000
_RAW_DEFLATE = -15
_UNREPORTED = -1
_UNREPORTED_PROBABILITY = 255


class _Columns(msgspec.Struct, array_like=True, kw_only=True):
    """Columns over rounds, over emitted tokens or over drafted tokens.

    New columns come last and have a default, so that older files can be read.
    """

    first: int
    n_past: int
    moved: list[int]
    """n_past minus that of the round before and the emitted tokens; not 0 if turns left the
    context."""
    n_draft_max: list[int]
    n_tokens: list[int]
    n_drafted: list[int]
    n_tested: list[int]
    n_accepted: list[int]
    times: list[int | None]
    """All fields of RoundTimings but the total, of the first round, then of the second, and so
    on."""
    other_times: list[int]
    """The total of each round minus these."""
    ids: list[int]
    lengths: list[int]
    origins: list[int]
    draft_ids: list[int | None]
    """None: the same as the token emitted at this position of the round; -1: not reported."""
    draft_lengths: list[int | None]
    """None: the text of the token emitted at this position; -1: not reported."""
    draft_text: str
    probabilities: bytes
    auto: list[tuple[str, int, int] | None]
    """Reason, milliseconds lost against plain decoding, and milliseconds that may be lost."""
    expected: list[float]
    plain_error: float
    parents: list[int]
    """Of drafted tokens, minus the parents of a chain: all 0 if the draft is a chain."""
    drafters: list[str]
    """Names; the empty one stands for the target."""
    drafted_by: list[int]
    emitted_by: list[int]
    parts: list[int]
    """Of emitted tokens, as index in `_PARTS`."""
    markers: str
    """The text of tokens that are in no part of the reply."""
    given: list[tuple[int, tuple[int, ...]]]
    """Index of the round, and the ids of `Round.given`."""
    likely: list[tuple[int, list[list[tuple[int, str, int, int]]]]] = []
    """Index of the round, and for each of its tokens the likeliest candidates: id, text,
    probability and chance."""
    unused: list[int] = []
    """Keeps the place of a column that older files have."""
    trees: list[int] = []
    """Indices of the rounds for which auto chose a tree."""
    names_of_times: tuple[str, ...] = ("draft_ms", "verify_ms", "process_ms", "sample_ms")
    """The fields of `RoundTimings` that `times` has; unknown ones are skipped."""
    plain_checks: list[int] = []
    """Indices of the rounds that were plain to measure plain decoding."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Columns)


def pack(rounds: Sequence[Round]) -> str:
    """Pack consecutive rounds of one reply, at least one. The answer and the reasoning they wrote
    are not included."""
    tokens = [token for round_ in rounds for token in round_.tokens]
    # Each drafted token with the one emitted at its position of the round.
    drafted = [
        (token, round_.tokens[place] if place < len(round_.tokens) else None)
        for round_ in rounds
        for place, token in enumerate(round_.drafted)
    ]
    times = [[_steps(getattr(r.timings, name)) for name in _TIMES] for r in rounds]
    last = rounds[-1].auto
    drafters = sorted({"", *(d.drafter for d, _ in drafted), *(t.drafter or "" for t in tokens)})
    columns = _Columns(
        first=rounds[0].index,
        n_past=rounds[0].n_past,
        moved=[b.n_past - a.n_past - len(b.tokens) for a, b in pairwise(rounds)],
        n_draft_max=[r.n_draft_max for r in rounds],
        n_tokens=[len(r.tokens) for r in rounds],
        n_drafted=[len(r.drafted) for r in rounds],
        n_tested=[r.n_tested for r in rounds],
        n_accepted=[r.n_accepted for r in rounds],
        times=[value for row in times for value in row],
        other_times=[
            round(r.timings.total_ms * _TIME_STEPS) - sum(n or 0 for n in row)
            for r, row in zip(rounds, times, strict=True)
        ],
        ids=[_UNREPORTED if token.id is None else token.id for token in tokens],
        lengths=[len(token.text) for token in tokens],
        origins=[_ORIGINS.index(token.origin) for token in tokens],
        draft_ids=[
            None if said and said.id == d.id else _UNREPORTED if d.id is None else d.id
            for d, said in drafted
        ],
        draft_lengths=[
            None if said and said.text == d.text else _UNREPORTED if d.text is None else len(d.text)
            for d, said in drafted
        ],
        draft_text="".join(d.text or "" for d, said in drafted if not said or said.text != d.text),
        probabilities=bytes(
            _UNREPORTED_PROBABILITY
            if d.probability is None
            else round(min(max(d.probability, 0.0), 1.0) * _PROBABILITY_STEPS)
            for d, _ in drafted
        ),
        auto=[
            (r.auto.reason.value, round(r.auto.lost_ms), round(r.auto.allowed_ms))
            if r.auto
            else None
            for r in rounds
        ],
        expected=list(last.tokens_per_second) if last else [],
        plain_error=last.plain_error if last else 0.0,
        parents=[d.parent - place + 1 for r in rounds for place, d in enumerate(r.drafted)],
        drafters=drafters,
        drafted_by=[drafters.index(d.drafter) for d, _ in drafted],
        emitted_by=[drafters.index(t.drafter or "") for t in tokens],
        parts=[_PARTS.index(t.part) for t in tokens],
        markers="".join(t.text for t in tokens if t.part is None),
        given=[(index, r.given) for index, r in enumerate(rounds) if r.given],
        likely=[
            (index, [[*map(_likely_cells, place)] for place in r.likely])
            for index, r in enumerate(rounds)
            if r.likely
        ],
        names_of_times=_TIMES,
        trees=[index for index, r in enumerate(rounds) if r.auto and r.auto.shape == "tree"],
        plain_checks=[index for index, r in enumerate(rounds) if r.is_plain_check],
    )
    deflate = zlib.compressobj(zlib.Z_BEST_COMPRESSION, zlib.DEFLATED, _RAW_DEFLATE)
    packed = deflate.compress(_encoder.encode(columns)) + deflate.flush()
    return base64.b64encode(packed).decode("ascii")


def _steps(ms: float | None) -> int | None:
    return None if ms is None else round(ms * _TIME_STEPS)


def _likely_cells(one: Likely) -> tuple[int, str, int, int]:
    probability, chance = round(one.probability * _LIKELY_STEPS), round(one.chance * _LIKELY_STEPS)
    return one.id, one.text, probability, chance


_MOST_BYTES = 64 * 2**20
"""Unpacked. A reply of 100,000 tokens takes 4 MB; a damaged megabyte could become a gigabyte."""


def _columns(data: str) -> _Columns:
    """Raises ValueError."""
    try:
        packed = base64.b64decode(data, validate=True)
        inflater = zlib.decompressobj(_RAW_DEFLATE)
        raw = inflater.decompress(packed, _MOST_BYTES)
        if not inflater.eof:
            raise EOFError
        return _decoder.decode(raw)
    except (EOFError, zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error


def unpack(data: str, answer: str, reasoning: str = "") -> list[Round]:
    """Unpack rounds that wrote this answer and this reasoning. Raises ValueError."""
    columns = _columns(data)
    try:
        rounds = list(_rounds(columns, (answer, reasoning, columns.markers)))
    except (StopIteration, IndexError, RuntimeError, TypeError) as error:
        raise ValueError(str(error)) from error
    if (text_in(rounds, Part.ANSWER), text_in(rounds, Part.REASONING)) != (answer, reasoning):
        raise ValueError(answer, reasoning)
    return rounds


def _rounds(columns: _Columns, texts: tuple[str, str, str]) -> Iterator[Round]:
    """`texts` are in the order of `_PARTS`."""
    written = [
        _cut(text, [n for n, p in zip(columns.lengths, columns.parts, strict=True) if p == part])
        for part, text in enumerate(texts)
    ]
    given, likely = dict(columns.given), dict(columns.likely)
    lengths = [length for length in columns.draft_lengths if length is not None and length >= 0]
    guesses = _cut(columns.draft_text, lengths)
    first_token = first_drafted = 0
    n_past = columns.n_past
    for index, n_tokens in enumerate(columns.n_tokens):
        n_drafted = columns.n_drafted[index]
        tokens = tuple(
            Token(
                id=None if columns.ids[place] == _UNREPORTED else columns.ids[place],
                text=next(written[columns.parts[place]]),
                origin=_ORIGINS[columns.origins[place]],
                drafter=columns.drafters[columns.emitted_by[place]] or None,
                part=_PARTS[columns.parts[place]],
            )
            for place in range(first_token, first_token + n_tokens)
        )
        if index:
            n_past += columns.moved[index - 1] + n_tokens
        yield Round(
            index=columns.first + index,
            n_draft_max=columns.n_draft_max[index],
            drafted=tuple(
                _drafted(columns, first_drafted + place, place, tokens, guesses)
                for place in range(n_drafted)
            ),
            n_tested=columns.n_tested[index],
            n_accepted=columns.n_accepted[index],
            tokens=tokens,
            n_past=n_past,
            timings=_timings(columns, index),
            auto=_auto(columns, index),
            given=given.get(index, ()),
            likely=tuple(
                tuple(
                    Likely(id, text, probability / _LIKELY_STEPS, chance / _LIKELY_STEPS)
                    for id, text, probability, chance in place
                )
                for place in likely.get(index, ())
            ),
            is_plain_check=index in columns.plain_checks,
        )
        first_token += n_tokens
        first_drafted += n_drafted


def _drafted(
    columns: _Columns, index: int, place: int, emitted: Sequence[Token], guesses: Iterator[str]
) -> DraftToken:
    """The drafted token at position `place` of a round that emitted these tokens."""
    id: int | None = columns.draft_ids[index]
    text: str | None = None
    length, probability = columns.draft_lengths[index], columns.probabilities[index]
    if length is None:
        text = emitted[place].text
    elif length != _UNREPORTED:
        text = next(guesses)
    return DraftToken(
        id=emitted[place].id if id is None else None if id == _UNREPORTED else id,
        text=text,
        probability=None
        if probability == _UNREPORTED_PROBABILITY
        else probability / _PROBABILITY_STEPS,
        parent=columns.parents[index] + place - 1,
        drafter=columns.drafters[columns.drafted_by[index]],
    )


def _timings(columns: _Columns, index: int) -> RoundTimings:
    names = columns.names_of_times
    steps = columns.times[len(names) * index : len(names) * (index + 1)]
    times = {
        name: None if n is None else n / _TIME_STEPS
        for name, n in zip(names, steps, strict=True)
        if name in _TIMES
    }
    total = (sum(n or 0 for n in steps) + columns.other_times[index]) / _TIME_STEPS
    return RoundTimings(**times, total_ms=total)


def _auto(columns: _Columns, index: int) -> AutoDraft | None:
    cells = columns.auto[index]
    reason = _REASONS.get(cells[0]) if cells else None
    if cells is None or reason is None:
        return None
    is_last = index == len(columns.auto) - 1
    return AutoDraft(
        n=columns.n_draft_max[index],
        reason=reason,
        tokens_per_second=tuple(columns.expected) if is_last else (),
        plain_error=columns.plain_error if is_last else 0.0,
        lost_ms=cells[1],
        allowed_ms=cells[2],
        shape="tree" if index in columns.trees else "chain",
    )


def _cut(text: str, lengths: Sequence[int]) -> Iterator[str]:
    """Cut a text into pieces of these lengths."""
    end = 0
    for length in lengths:
        start, end = end, end + length
        yield text[start:end]


class PackedPiece(NamedTuple):
    """Consecutive rounds of a reply: the text they wrote, and the rounds as `pack` made them."""

    answer: str
    reasoning: str
    data: str


class PackedRounds:
    """The rounds of a reply that was read from disk. They are unpacked on demand, because that
    takes longer than all the rest of reading a chat."""

    def __init__(self) -> None:
        self._pieces: list[PackedPiece] = []

    def add(self, piece: PackedPiece) -> None:
        """Add the next rounds."""
        self._pieces.append(piece)

    def settle(self, data: str) -> None:
        """All rounds so far in their final form, packed, in place of the pieces."""
        self._pieces = [PackedPiece(self.text(Part.ANSWER), self.text(Part.REASONING), data)]

    def text(self, part: Part) -> str:
        """The text of one part of the reply."""
        is_thought = part is Part.REASONING
        return "".join(one.reasoning if is_thought else one.answer for one in self._pieces)

    def rounds(self) -> list[Round]:
        """All rounds, unpacked. A piece whose rounds cannot be read is one round, of which only the
        text is known."""
        rounds: list[Round] = []
        for answer, reasoning, data in self._pieces:
            try:
                rounds += unpack(data, answer, reasoning)
            except ValueError:
                texts = ((reasoning, Part.REASONING), (answer, Part.ANSWER))
                tokens = (Token(None, t, Origin.UNKNOWN, part=part) for t, part in texts if t)
                timings = RoundTimings(0.0, 0.0, 0.0, 0.0, 0.0)
                rounds.append(Round(len(rounds), 0, (), 0, 0, tuple(tokens), 0, timings))
        return rounds

    def n_past(self) -> int:
        """Tokens in the context after the last round, 0 if unknown. Does not unpack the rounds."""
        if not self._pieces:
            return 0
        try:
            columns = _columns(self._pieces[-1].data)
        except ValueError:
            return 0
        return columns.n_past + sum(columns.moved) + sum(columns.n_tokens[1:])
