"""Rounds and ends of replies for tests, as an engine would report them."""

from __future__ import annotations

from msgspec.structs import replace

from eaglechat.chat.recording import Recording, Terms
from eaglechat.wire.protocol import Sampling, Speculation
from eaglechat.wire.records import (
    DraftToken,
    FinishReason,
    Origin,
    Part,
    ReplyEnd,
    ReplyTimings,
    Round,
    RoundTimings,
    Token,
)

SEED = 77
TERMS = Terms(sampling=Sampling(temperature=0.5), speculation=Speculation(n_draft_max=3))


def round_of(*ids: int, drafted: int = 2, ms: float = 10.0) -> Round:
    """A round that emitted these tokens, each with the text ` t<id>`."""
    origin = Origin.CORRECTION if drafted else Origin.PLAIN
    return Round(
        index=0,
        n_draft_max=drafted,
        drafted=tuple(DraftToken(0, "d", 0.5, place - 1) for place in range(drafted)),
        n_tested=min(len(ids), drafted),
        n_accepted=min(len(ids) - 1, drafted),
        tokens=tuple(Token(i, f" t{i}", origin) for i in ids),
        n_past=100,
        timings=RoundTimings(1.0, ms - 1.0, 0.0, 0.0, ms),
    )


def with_checks(ms: float, n_drafted: int = 2) -> list[Round]:
    """Drafted rounds of two tokens, `ms` long, with a plain check of two rounds, 10 ms each, behind
    every ninth."""
    rounds: list[Round] = []
    for place in range(110):
        is_check = place % 11 >= 9
        ids = (2 * place,) if is_check else (2 * place, 2 * place + 1)
        round_ = round_of(*ids, drafted=0 if is_check else n_drafted, ms=10.0 if is_check else ms)
        rounds.append(replace(round_, n_draft_max=n_drafted, is_plain_check=is_check))
    return rounds


def thinking(*words: str, part: Part | None = Part.REASONING) -> Round:
    """A plain round that wrote these words in a part of the reply."""
    tokens = tuple(Token(1, word, Origin.PLAIN, part=part) for word in words)
    return replace(round_of(1, drafted=0), tokens=tokens)


def answering(text: str) -> Recording:
    """A recording that wrote this answer in one round, and was cut off."""
    recording = Recording(TERMS)
    recording.add(thinking(text, part=Part.ANSWER))
    return recording


def end_of(tokens: int, ms: float, reason: FinishReason = FinishReason.STOP) -> ReplyEnd:
    return ReplyEnd(reason, SEED, tokens, "", ReplyTimings(5.0, 9, 0, ms, 0.0, 0.0, 0.0, 0.0))


def recorded(
    *rounds: Round,
    ms: float = 30.0,
    reason: FinishReason = FinishReason.STOP,
) -> Recording:
    """A recording that ended."""
    recording = Recording(TERMS)
    for round_ in rounds:
        recording.add(round_)
    tokens = sum(len(round_.tokens) for round_ in rounds)
    recording.finish(end_of(tokens, ms, reason), None)
    return recording


def plainly(*ids: int, ms: float, reason: FinishReason = FinishReason.STOP) -> Recording:
    """A recording of plain decoding."""
    return recorded(*(round_of(i, drafted=0) for i in ids), ms=ms, reason=reason)
