"""What a chat is, without a screen: its messages, the reply being written, the last comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from eaglechat.wire.protocol import AUTO, Auto, Chat, Message, Sampling, Speculation
from eaglechat.wire.records import FinishReason, Prefill, ReplyEnd, Round, Token, Window
from eaglechat.wire.stats import RollingStats, SpeculationStats, StatsFold


@dataclass
class Run:
    """One Chat request from its sending to its end: the reply, or a comparison with it."""

    request: Chat
    is_comparison: bool = False
    prefill: Prefill | None = None
    window: Window | None = None
    tokens: list[Token] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    """Settings that were changed while it ran."""
    speculation_stopped: str | None = None
    end: ReplyEnd | None = None
    taken_back: str | None = None
    """The question, when nothing came of it and it was taken out of the conversation."""
    _fold: StatsFold = field(default_factory=StatsFold)
    _speed: RollingStats = field(default_factory=RollingStats)

    def add(self, round_: Round) -> None:
        self.rounds.append(round_)
        self.tokens.extend(round_.tokens)
        self._fold.add(round_)
        self._speed.add(round_)

    @property
    def stats(self) -> SpeculationStats:
        return self._fold.stats()

    @property
    def text(self) -> str:
        tail = self.end.tail if self.end else ""
        return "".join(token.text for token in self.tokens) + tail

    @property
    def tokens_per_second(self) -> float | None:
        """Of the whole reply when it has ended, of its latest rounds while it runs."""
        if self.end is not None:
            return self.end.tokens_per_second or None
        return self._speed.tokens_per_second

    @property
    def speculated(self) -> bool:
        """A draft was verified at least once."""
        return self.stats.verify_steps > 0


@dataclass(frozen=True)
class Fork:
    """Where two token sequences part: the index of the first token that differs, and the text of
    both there, or None where one had ended."""

    index: int
    speculative: str | None
    plain: str | None


@dataclass(frozen=True)
class Comparison:
    """The last reply against plain decoding of the same prompt, as measured."""

    speculative_tokens_per_second: float
    plain_tokens_per_second: float
    speculative_tokens: int
    plain_tokens: int
    fork: Fork | None
    changed: tuple[str, ...]
    plain_cancelled: bool

    @property
    def speed_up(self) -> float:
        """Speculative over plain tokens per second."""
        return self.speculative_tokens_per_second / self.plain_tokens_per_second


@dataclass(frozen=True)
class Controls:
    """What the user turns during a chat; a change applies from the next round on."""

    enabled: bool
    n_draft_max: int | Auto
    p_min: float
    temperature: float


class Conversation:
    """The messages of a chat and the state of its replies.

    A run is started with `ask` or `compare`, fed with `add_round`, and ended with `finish`,
    `fail` or `abandon`.
    """

    def __init__(self, messages: Sequence[Message] = (), first_turn: int = 0) -> None:
        self.messages: list[Message] = list(messages)
        self.first_turn = first_turn
        """The oldest turn in the context, counted from 0: those before it have left."""
        self.running: Run | None = None
        self.last_reply: Run | None = None
        self.comparison: Comparison | None = None
        self.rolling = RollingStats()
        """Over the latest rounds of replies; comparisons are not among them."""
        self.n_past = 0

    @property
    def shown(self) -> Run | None:
        """The run whose numbers are on show: the one in progress, else the last reply."""
        return self.running or self.last_reply

    def ask(
        self,
        text: str,
        *,
        sampling: Sampling,
        speculation: Speculation,
        system_prompt: str = "",
        max_tokens: int | None = None,
    ) -> Chat:
        """Add the user's message and start a reply to it."""
        self.messages.append(Message(role="user", content=text))
        system = [Message(role="system", content=system_prompt)] if system_prompt else []
        chat = Chat(
            messages=(*system, *self.messages),
            sampling=sampling,
            speculation=speculation,
            max_tokens=max_tokens,
        )
        self.running = Run(chat)
        self.comparison = None
        return chat

    def cannot_compare(self, off: str | None = None) -> str | None:
        """Why the last reply cannot be compared with plain decoding, or None if it can; `off` is
        why nothing would be drafted now."""
        reply = self.last_reply
        if self.running is not None:
            return "A reply is still being written."
        if reply is None or reply.end is None:
            return "There is no reply yet to compare with."
        if not reply.end.tokens:
            return "The last reply is empty: there is nothing to compare."
        if not reply.speculated:
            why = off or reply.speculation_stopped or _undrafted(reply.request.speculation)
            return f"The last reply was decoded plainly already: {why}."
        return None

    def compare(self) -> Chat:
        """Start the last reply again without speculation: same messages, sampling and seed.

        Only where `cannot_compare` has no objection.
        """
        reply = self.last_reply
        assert reply is not None
        assert reply.end is not None
        cancelled = reply.end.finish_reason is FinishReason.CANCELLED
        chat = Chat(
            messages=reply.request.messages,
            sampling=msgspec.structs.replace(reply.request.sampling, seed=reply.end.seed),
            speculation=Speculation(enabled=False, n_draft_max=0),
            max_tokens=reply.end.tokens if cancelled else reply.request.max_tokens,
            stop=reply.request.stop,
        )
        self.running = Run(chat, is_comparison=True)
        return chat

    def add_round(self, round_: Round) -> None:
        """A round of the running request."""
        run = self._must_run()
        run.add(round_)
        self.n_past = round_.n_past
        if not run.is_comparison:
            self.rolling.add(round_)

    def add_prefill(self, prefill: Prefill) -> None:
        """Progress of the running request's prompt."""
        run = self._must_run()
        if run.prefill is None and run.window is None and not run.is_comparison:
            self.first_turn = 0
        run.prefill = prefill
        self.n_past = prefill.done

    def add_window(self, window: Window) -> None:
        """Turns that are not in the context of the running request, or no longer."""
        run = self._must_run()
        run.window = window
        if not run.is_comparison:
            self.first_turn = window.first_turn

    def finish(self, end: ReplyEnd) -> Run:
        """The running request ended: a reply becomes a message, a comparison a result."""
        run = self._must_run()
        run.end = end
        if run.is_comparison:
            self.comparison = _compare(self.last_reply, run)
        return self._close(run, answered=end.finish_reason is not FinishReason.CANCELLED)

    def fail(self) -> Run:
        """The running request failed; what was written stays."""
        return self._close(self._must_run(), answered=False)

    def abandon(self) -> Run | None:
        """Nothing more will come: the engine died, or the chat is left. What was written stays."""
        self.n_past = 0
        return self._close(self.running, answered=False) if self.running else None

    def _close(self, run: Run, answered: bool) -> Run:
        self.running = None
        if run.is_comparison:
            return run
        if answered or run.text:
            self.last_reply = run
            self.messages.append(Message(role="assistant", content=run.text))
        else:
            # Two questions in a row break most chat templates.
            run.taken_back = self.messages.pop().content
        return run

    def _must_run(self) -> Run:
        assert self.running is not None, "no request is running"
        return self.running


def _compare(reply: Run | None, plain: Run) -> Comparison | None:
    assert reply is not None
    assert reply.end is not None
    assert plain.end is not None
    speculative_rate, plain_rate = reply.end.tokens_per_second, plain.end.tokens_per_second
    if not speculative_rate or not plain_rate:
        return None
    return Comparison(
        speculative_tokens_per_second=speculative_rate,
        plain_tokens_per_second=plain_rate,
        speculative_tokens=reply.end.tokens,
        plain_tokens=plain.end.tokens,
        fork=first_fork(reply, plain),
        changed=tuple(sorted(reply.changed)),
        plain_cancelled=plain.end.finish_reason is FinishReason.CANCELLED,
    )


def first_fork(reply: Run, plain: Run) -> Fork | None:
    """Where the tokens of two runs part, or None if they never do as far as both go.

    A run that was cut off (cancelled, out of length or context) says nothing about what would
    have come next, so its end is no fork.
    """
    for index, (one, other) in enumerate(zip(reply.tokens, plain.tokens, strict=False)):
        if one.id != other.id:
            return Fork(index, _shown(one), _shown(other))
    shared = min(len(reply.tokens), len(plain.tokens))
    shorter = reply if len(reply.tokens) == shared else plain
    ended = shorter.end is not None and shorter.end.finish_reason is FinishReason.STOP
    if len(reply.tokens) == len(plain.tokens) or not ended:
        return None
    rest = plain.tokens[shared] if shorter is reply else reply.tokens[shared]
    return Fork(
        shared,
        None if shorter is reply else _shown(rest),
        _shown(rest) if shorter is reply else None,
    )


def _undrafted(speculation: Speculation) -> str:
    """Why a reply was decoded plainly that a draft could go with, now at least."""
    if speculation.enabled and speculation.n_draft_max == AUTO:
        return "no draft was expected to pay. Set n_draft_max by hand to draft anyway"
    return "ask again to have it drafted"


def _shown(token: Token) -> str:
    return token.text or f"token {token.id}"
