"""The records of the loop: what a round drafted, what the target accepted, and how long it took.

Everything that shows or counts speculation reads these records; nothing derives an origin, an
acceptance or a time from text. docs/protocol.md explains each field. What an engine does not report
is None.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

N_DRAFT_MAX_LIMIT = 16
"""The longest draft a round may ask for; contexts are sized for it once."""

NGRAM = "ngram"
"""Names the drafter that looks up n-grams; others are the draft's."""

DraftShape = Literal["chain", "tree"]

LAST_TOKEN = -1
"""The parent index of drafted tokens that follow the last emitted token directly."""


def children(parents: Sequence[int], parent: int) -> list[int]:
    """Indices of the drafted tokens whose parent is `parent`."""
    return [index for index, before in enumerate(parents) if before == parent]


def depths(parents: Sequence[int]) -> list[int]:
    """The depth of each token in its tree, from 1. A parent stands before its children."""
    found: list[int] = []
    for parent in parents:
        found.append(1 if parent == LAST_TOKEN else found[parent] + 1)
    return found


class Origin(str, enum.Enum):
    ACCEPTED = "accepted"
    """Drafted, and confirmed by the target."""
    CORRECTION = "correction"
    """The target's own token after it rejected a drafted one."""
    BONUS = "bonus"
    """The target's extra token after it accepted the whole draft."""
    PLAIN = "plain"
    """No draft in this round: ordinary decoding."""
    UNKNOWN = "unknown"
    """The engine does not say."""


class Part(str, enum.Enum):
    REASONING = "reasoning"
    """The model thinking before it answers."""
    ANSWER = "answer"


class FinishReason(str, enum.Enum):
    STOP = "stop"
    LENGTH = "length"
    CONTEXT = "context"
    CANCELLED = "cancelled"


class DraftToken(msgspec.Struct, frozen=True):
    """A token that a drafter proposed, with the drafter's own probability."""

    id: int | None
    text: str | None
    probability: float | None
    parent: int = LAST_TOKEN
    drafter: str = ""


class Token(msgspec.Struct, frozen=True):
    """An emitted token.

    `text` is what became certain with this token: empty while a character or a possible stop
    string is incomplete, and for tokens that are not written (end of generation).
    """

    id: int | None
    text: str
    origin: Origin
    drafter: str | None = None
    part: Part | None = Part.ANSWER


class Likely(msgspec.Struct, frozen=True):
    """A token as the target saw it when it chose the next one."""

    id: int
    text: str
    probability: float
    chance: float


class RoundTimings(msgspec.Struct, frozen=True):
    """Measurements of one round, in milliseconds.

    `total_ms` is wall time from the end of the round before, or from the end of prefill, so it has
    the rest of the round too and what the engine does between rounds. A new field comes last and
    has the default None: chats on disk do not have it. `ReplyTimings` has a field of the same name,
    the sum over the reply.
    """

    draft_ms: float | None
    verify_ms: float | None
    process_ms: float | None
    sample_ms: float | None
    total_ms: float


def summed(times: Iterable[float | None]) -> float | None:
    """The sum of measurements; None if one of them is not reported. Counts stay whole."""
    total: float = 0
    for ms in times:
        if ms is None:
            return None
        total += ms
    return total


def sums(times: Sequence[RoundTimings]) -> dict[str, float | None]:
    """The times of these rounds by field, summed, without the total; None if a round does not
    report one."""
    names = (name for name in RoundTimings.__struct_fields__ if name != "total_ms")
    return {name: summed(getattr(one, name) for one in times) for name in names}


def ms_since(started: float) -> float:
    """Milliseconds since `started`, a value of `time.perf_counter()`."""
    return (time.perf_counter() - started) * 1000.0


def per_second(tokens: int, ms: float) -> float | None:
    """Tokens per second, or None if no time has passed."""
    return tokens * 1000.0 / ms if ms > 0 else None


class AutoReason(str, enum.Enum):
    BEST = "best"
    """The largest expected tokens per second."""
    EXPLORING = "exploring"
    """It may be better than what is known to be best; one round will tell."""
    PLAIN_CHECK = "plain check"
    """A plain round, to know what plain decoding takes here and now."""
    LEDGER = "ledger"
    """Shorter than the best, or plain: this reply has lost what it may against plain decoding."""
    LOOKED_UP = "looked up"
    """n-grams found tokens that are expected to be faster than a draft."""


class AutoDraft(msgspec.Struct, frozen=True):
    """What the automatic draft length knew when it chose `n` for a round."""

    n: int
    reason: AutoReason
    tokens_per_second: tuple[float, ...]
    """Of the chosen length, in the chosen shape; of the others, in the faster shape."""
    lost_ms: float
    allowed_ms: float
    shape: DraftShape = "chain"

    @property
    def length(self) -> int | None:
        """The chosen draft length; None if n-grams proposed tokens instead of the draft."""
        return None if self.reason is AutoReason.LOOKED_UP else self.n


class Round(msgspec.Struct, frozen=True, tag="round"):
    """One pass of the loop: draft, verify, accept.

    The draft is a chain or a tree. `n_tested` counts the positions at which the target tested
    drafted tokens: the accepted ones, and the first at which it rejected every drafted token.
    Tokens drafted behind that position were never tested.
    """

    index: int
    n_draft_max: int
    drafted: tuple[DraftToken, ...]
    n_tested: int
    n_accepted: int
    tokens: tuple[Token, ...]
    n_past: int
    timings: RoundTimings
    auto: AutoDraft | None = None
    given: tuple[int, ...] = ()
    likely: tuple[tuple[Likely, ...], ...] = ()
    is_plain_check: bool = False

    @property
    def length_by_hand(self) -> int | None:
        """The draft length that was set by hand; None if auto chose it."""
        return None if self.auto is not None else self.n_draft_max

    @property
    def is_plain(self) -> bool:
        """Whether it decoded plainly: no draft was to be made. One that came to nothing took
        time."""
        is_meant = self.is_plain_check or self.n_draft_max == 0
        origins = {token.origin for token in self.tokens}
        return is_meant and origins == {Origin.PLAIN}

    @property
    def plain_ms(self) -> float | None:
        """Milliseconds that plain decoding takes for a round that decoded plainly: its time without
        what it did for later drafts. None for other rounds."""
        times = self.timings
        return times.total_ms - (times.process_ms or 0.0) if self.is_plain else None

    @property
    def path(self) -> tuple[int, ...]:
        """Indices in `drafted` of the accepted tokens, each the child of the one before it."""
        path: list[int] = []
        for token in self.tokens[: self.n_accepted]:
            tested = self.children(path[-1] if path else LAST_TOKEN)
            same = [index for index in tested if self.drafted[index].id == token.id]
            path += same[:1] or [len(path)]
        return tuple(path)

    def children(self, parent: int) -> list[int]:
        """Indices of the drafted tokens that follow the one at `parent`, the likeliest first; -1 is
        the last token emitted before this round."""
        return children([token.parent for token in self.drafted], parent)

    @property
    def rejected(self) -> DraftToken | None:
        """The drafted token that the target rejected, or None; of siblings, the likeliest one."""
        if self.n_tested <= self.n_accepted:
            return None
        path = self.path
        tested = self.children(path[-1] if path else LAST_TOKEN)
        return self.drafted[tested[0]] if tested else None

    def tokens_and_rejected(self, part: Part) -> Iterator[Token | DraftToken]:
        """The tokens of one part of the reply, with the rejected draft token before the token that
        the target chose instead; at the end of the round if the target chose none. A rejected
        token belongs to the part of its correction, or else to the part of the round. It is left
        out if the engine does not report its text."""
        rejected = self.rejected
        if rejected is not None and rejected.text is None:
            rejected = None
        for token in self.tokens:
            if rejected is not None and token.origin is Origin.CORRECTION:
                if token.part is part:
                    yield rejected
                rejected = None
            if token.part is part:
                yield token
        if rejected is not None and self.part is part:
            yield rejected

    @property
    def depth(self) -> int:
        """Length of the longest drafted path, in tokens."""
        return max(depths([token.parent for token in self.drafted]), default=0)

    @property
    def is_tree(self) -> bool:
        """Whether a drafted token had siblings."""
        return any(token.parent != index - 1 for index, token in enumerate(self.drafted))

    @property
    def drafter(self) -> str | None:
        """The drafter of this round; None if nothing was drafted, or it is not reported."""
        return (self.drafted[0].drafter or None) if self.drafted else None

    @property
    def part(self) -> Part | None:
        """The part of the reply to which its first token belongs, markers aside."""
        return next((token.part for token in self.tokens if token.part is not None), None)

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


class Prefill(msgspec.Struct, frozen=True, tag="prefill"):
    """Progress through a prompt, in tokens. `reused` tokens were in the KV cache already."""

    done: int
    total: int
    reused: int


class Window(msgspec.Struct, frozen=True, tag="window"):
    """Which part of the conversation is in the context from here on: its oldest turns have left.
    Told before a reply's prefill, and whenever that changes.

    A turn is a user's message and what follows it up to the next one. The system prompt is in no
    turn, and stays.
    """

    first_turn: int
    tokens_left: int | None
    kv_kept: bool


class SpeculationOff(msgspec.Struct, frozen=True, tag="speculation_off"):
    """Speculation stopped by itself in the middle of a reply; the reply goes on without it."""

    reason: str


class ReplyTimings(msgspec.Struct, frozen=True):
    """Times of a whole reply in ms. Generation excludes prefill. Every field is a sum; of a reply
    that was continued, the prompt's are those of its beginning. A new field comes last and has the
    default None: chats on disk do not have it."""

    prefill_ms: float
    prefill_tokens: int
    reused_tokens: int
    generation_ms: float
    draft_ms: float | None = None
    verify_ms: float | None = None
    process_ms: float | None = None
    sample_ms: float | None = None


class ReplyEnd(msgspec.Struct, frozen=True):
    """How a reply ended. `tail` was held back (an incomplete character, a possible stop string) and
    is emitted because nothing follows."""

    finish_reason: FinishReason
    seed: int
    tokens: int
    tail: str
    timings: ReplyTimings
    tail_part: Part | None = None

    @property
    def n_past(self) -> int:
        """Tokens of prompt and reply; 0 if the prompt's were not counted."""
        prompt = self.timings.prefill_tokens + self.timings.reused_tokens
        return prompt + self.tokens if prompt else 0

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens over generation time; 0 if nothing was generated."""
        return per_second(self.tokens, self.timings.generation_ms) or 0.0
