"""What the dialog of the context says: which turns of a chat are in the context, which leaves next,
how much is left for a reply; and what is measured of the reply on show, beside the headline.

The length of a turn comes from the lengths of the KV cache that the engine reported after each
reply; where it reported none, it is estimated from the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile, zip_longest

from eaglechat.chat.recording import TurnPart
from eaglechat.chat.session import ChatSession
from eaglechat.chat.turns import Question, Reply, TurnId
from eaglechat.chat.writing.question import shown, text_of, tokens_about
from eaglechat.words import numbers, wording
from eaglechat.words.statistics import of_part, summary

_LONGEST_TITLE = 40
"""In cells: a turn then fits on one line of 80 columns, with its number and length."""
_NAME = 14
_ROOM = 8
"""The engine drops turns if less than 1/8 of the context would be left for the reply."""


@dataclass(frozen=True)
class TurnLength:
    """A question with its reply. `tokens` is an estimate unless `is_measured`."""

    title: str
    tokens: int
    is_measured: bool
    is_in: bool
    """Whether it is in the context."""


@dataclass(frozen=True)
class ContextUse:
    """The context when the next question is asked. All lengths are in tokens."""

    n_ctx: int
    used: int
    unsent: int
    """Of the text in the prompt, estimated."""
    wanted: int
    """Turns leave if less than this is left for the reply."""
    turns: tuple[TurnLength, ...]

    @property
    def room(self) -> int:
        """What is left for the next reply if no turn leaves."""
        return max(0, self.n_ctx - self.used - self.unsent)

    @property
    def leaves(self) -> TurnLength | None:
        """The turn that leaves the context first."""
        return next((turn for turn in self.turns if turn.is_in), None)


def context_use(
    session: ChatSession, unsent: Sequence[TurnPart], edited: TurnId | None = None
) -> ContextUse:
    """The context if `unsent` is asked at the end of the chat, or as another version of
    `edited`."""
    path = list(takewhile(lambda turn: turn.id != edited, session.turns.path))
    turns, first = list[TurnLength](), session.chat.first_question
    is_in, after = first is None, 0
    for question, reply in zip_longest(path[::2], path[1::2]):
        assert isinstance(question, Question)
        # Tokens in the context; 0 if unknown.
        before, after = after, reply.recording.n_past if isinstance(reply, Reply) else 0
        text = question.text + (reply.text if reply is not None else "")
        is_measured = after > before > 0 or (after > 0 and not turns)
        length = after - before if is_measured else tokens_about(text)
        title = wording.fitting(" ".join(shown(question.parts).split()), _LONGEST_TITLE)
        is_in = is_in or question.id == first
        turns.append(TurnLength(title, length, is_measured, is_in))
    # Not the present length of the cache: it may hold another version, or deleted turns.
    used = after or sum(turn.tokens for turn in turns if turn.is_in)
    limit = session.settings.generation.max_tokens or session.n_ctx
    return ContextUse(
        n_ctx=session.n_ctx,
        # The chat may be from a larger context, of which this one holds the end.
        used=min(used, session.n_ctx) if session.n_ctx else used,
        unsent=tokens_about(text_of(unsent)),
        wanted=min(limit, session.n_ctx // _ROOM),
        turns=tuple(turns),
    )


# In words


def warning(use: ContextUse) -> str:
    """The warning to show before a question is sent: it leaves little room for its reply, or it is
    the first to push turns out of the context. Empty if neither is so."""
    if not use.n_ctx or use.room >= use.wanted:
        return ""
    if use.unsent + use.wanted > use.n_ctx:
        return (
            f"About {use.unsent:,} tokens in a context of {use.n_ctx:,}: "
            "this question leaves little or no room for its reply."
        )
    if use.leaves is None or not all(turn.is_in for turn in use.turns):
        return ""
    return (
        f"The context is nearly full ({use.used:,} of {use.n_ctx:,} tokens): this question "
        f"pushes the oldest turns out, “{use.leaves.title}” first."
    )


def in_words(use: ContextUse) -> str:
    """How full the context is, and one line for each turn."""
    if not use.n_ctx:
        return "No models are loaded, so there is no context."
    lines = [
        f"{use.used:,} of {use.n_ctx:,} tokens are used; {use.room:,} are left for the next reply.",
    ]
    if use.unsent:
        lines.append(f"This includes about {use.unsent:,} tokens that you have typed.")
    if use.leaves is not None:
        first = f"“{use.leaves.title}” is the first to leave"
        lines.append(f"Once fewer than {use.wanted:,} are left, {first}.")
    lines.append("")
    for number, turn in enumerate(use.turns, 1):
        about = "" if turn.is_measured else "~"
        gone = "" if turn.is_in else "  (has left)"
        length = about + format(turn.tokens, ",")
        lines.append(f"{number:>3}  {length:>7}  {turn.title}{gone}")
    return "\n".join(lines)


# The reply on show


def of_reply(session: ChatSession) -> str:
    """The reply on show: its speed, its acceptance, its times; empty without a reply."""
    lines = "\n".join(f"{name:<{_NAME}}{said}" for name, said in _said(session) if said)
    return f"This reply\n{lines}" if lines else ""


def _said(session: ChatSession) -> Iterator[tuple[str, str]]:
    shown = session.shown
    if shown is None or not shown.rounds:
        return
    known, unreported = numbers.headline(session), numbers.unreported(session)
    said = f"{known.times()} {known.beside_times()}".strip()
    yield "speed", ", ".join(filter(None, (said, known.of_most(), known.speed())))
    if plain := known.plain_speed():
        yield "plain", f"{plain}, measured in plain rounds of this reply"
    drafts = [unreported] if unreported else summary(shown.measured, is_over=False)
    yield from zip(("drafts", ""), drafts, strict=False)
    for name, part in shown.by_part.items() if shown.has_reasoning else ():
        yield name.value, of_part(part)
    times = session.running is None and shown.measured.timings
    if times:
        read = f"{times.prefill_tokens:,} tokens read, {times.reused_tokens:,} cached"
        yield "prompt", f"{read}, {times.prefill_ms:,.0f} ms"
    yield "draft times", wording.not_reported(session.hello, "own") or ""
    if (auto := numbers.auto(session)) is not None:
        choice, ledger = wording.auto_in_words(auto)
        yield "auto", choice
        yield "", ledger
