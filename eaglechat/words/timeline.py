"""The entries that the transcript shows of a chat, in order: its notices in words, what a reply is
doing, and the note below it. A command in braces, such as `{chat.stop}`, stands for its key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from eaglechat.chat import refusals
from eaglechat.chat.recording import Recording
from eaglechat.chat.session import ChatSession, Running, Severity
from eaglechat.chat.turns import Question, Reply, TurnId
from eaglechat.chat.writing.question import shown
from eaglechat.hub.local.pairs import Pair
from eaglechat.links.crashes import without
from eaglechat.wire.protocol import Capabilities, Loading, PairInfo
from eaglechat.wire.records import FinishReason, Part, Prefill
from eaglechat.wire.worker import Died
from eaglechat.words import wording
from eaglechat.words.headline import headline_of
from eaglechat.words.statistics import ENDINGS, of_part
from eaglechat.words.wording import plural, tokens_per_second

Kind = Severity | Literal["question", "reply", "thought", "window"]


@dataclass(frozen=True)
class Entry:
    """One entry of the transcript. `key` identifies it as long as the chat is open."""

    key: str
    kind: Kind
    text: str = ""
    recording: Recording | None = None
    """Of a reply, and of its reasoning."""
    note: str | None = None
    """The line below a recording; None while it is being written."""
    turn: TurnId | None = None
    """The turn that the entry shows, whole or in part."""
    place: tuple[int, int] | None = None
    """Its number among its siblings, from 1, and their count; only in the first entry of a turn
    that has siblings."""

    def below(self) -> str | None:
        """The note. What needs every round, which may be on disk, is made here, when the entry is
        drawn: the note of reasoning, and a reply's speed-up."""
        if self.recording is None or self.note is None:
            return self.note
        if self.kind == "thought":
            part = self.recording.by_part.get(Part.REASONING)
            if part is None:
                return "thought"
            took = f"thought for {part.ms / 1000:.0f} s", plural(part.tokens, "token")
            return ", ".join(filter(None, (*took, of_part(part))))
        headline = headline_of(self.recording)
        is_told = headline.verdict is not None or headline.state == "repeats"
        return f"{headline.in_short()} · {self.note}" if is_told else self.note


def entries(session: ChatSession) -> Iterator[Entry]:
    yield from _notices(session, None)
    for turn in session.turns.path:
        if turn.id == session.chat.first_question and turn.parent is not None:
            yield Entry(f"window {turn.id}", "window")
        if isinstance(turn, Question):
            place = session.turns.place(turn.id)
            yield Entry(f"turn {turn.id}", "question", shown(turn.parts), turn=turn.id, place=place)
        else:
            yield from entries_of(session, turn)
            if (stopped := turn.recording.speculation_stopped) is not None:
                yield Entry(f"off {turn.id}", "warning", refusals.off(stopped))
        yield from _notices(session, turn.id)


def entries_of(session: ChatSession, turn: Reply) -> Iterator[Entry]:
    """The entries of a reply: its reasoning, and its answer once that has begun."""
    recording = turn.recording
    is_over = session.running is None or session.running.turn is not turn
    id, place = turn.id, session.turns.place(turn.id)
    if recording.has_reasoning:
        is_thought = is_over or recording.is_answering
        note = "" if is_thought else None
        yield Entry(
            f"thought {id}", "thought", recording=recording, note=note, turn=id, place=place
        )
        place = None
    if recording.is_answering or is_over or not recording.has_reasoning:
        note = end_note(recording, session.n_ctx) if is_over else None
        yield Entry(f"turn {id}", "reply", recording=recording, note=note, turn=id, place=place)


def _notices(session: ChatSession, after: int | None) -> Iterator[Entry]:
    for number, notice in enumerate(session.notices):
        if notice.after != after:
            continue
        match notice.news:
            case PairInfo() as info:
                text = _greeting(info, session.pair, session.can)
            case Died():
                stopped = wording.engine_stopped(notice.news)
                text = f"{stopped} Your chat is saved. {{chat.load_again}} loads the models again."
            case said:
                text = wording.sentence(said) if notice.kind == "error" else said
        yield Entry(f"notice {number}", notice.kind, text)


def _greeting(info: PairInfo, pair: Pair, can: Capabilities) -> str:
    """The first lines of a new chat: the loaded pair, and what its draft does."""
    where = ", ".join(info.devices) or "the CPU"
    without_it = f", {without(info.left_out)}" if info.left_out else ""
    loaded = f"Loaded in {info.load_ms / 1000:.1f} s on {where}{without_it}."
    if info.server:
        loaded = f"Connected to {info.server}."
    if info.untemplated:
        loaded = f"{loaded} {wording.sentence(info.untemplated)}"
    if info.speculation_off:
        return f"{loaded} {refusals.off(info.speculation_off)}"
    if info.server:
        return loaded
    if info.drafter is None:
        why = f" ({'; '.join(info.undrafted.values())})" if info.undrafted else ""
        return (
            f"{loaded} There is no draft{why}. Where the text repeats itself, n-grams guess what "
            f"followed before, and the target checks the guesses all at once. {pair.note}"
        ).rstrip()
    last, length = pair.note, pair.n_draft_max
    if can.own and pair.source == "built-in" and isinstance(length, int) and length:
        last = (
            f"{pair.note} It drafts {plural(length, 'token')} per round; {{chat.auto}} "
            "lets measurement choose the length."
        ).lstrip()
    guess = "the draft guesses" if info.drafter.file else "the model's own MTP heads guess"
    if len(info.drafters) > 1:
        names = " or ".join(wording.drafter(one.kind) for one in info.drafters)
        guess = f"{names} guess"
    return (
        f"{loaded} In every round {guess} a few tokens and the target checks them all at "
        f"once. In replies, the guesses it accepted have a colour of their own. {last}"
    ).rstrip()


# About a reply


def progress(running: Running) -> str:
    recording = running.turn.recording
    if len(recording.rounds) > recording.n_before:
        return "writing…"
    return before_writing(running.loading, running.prefill)


def before_writing(loading: Loading | None, prefill: Prefill | None) -> str:
    if prefill is None and loading is not None:
        if loading.stage == "server":
            return "waiting for the server"
        return f"loading the {loading.stage} {loading.fraction:.0%}"
    if prefill is None or not prefill.total:
        # Most servers do not report the progress of prefill.
        return "reading the prompt"
    return f"reading the prompt {prefill.done / prefill.total:.0%}"


def end_note(recording: Recording, n_ctx: int) -> str:
    """The line below a reply that is over: why it ended, its length and its speed."""
    end = recording.end
    if end is None:
        return "cut off here"
    speed = plural(end.tokens, "token")
    if end.tokens_per_second > 0:
        speed += f", {tokens_per_second(end.tokens_per_second)}"
    reason = end.finish_reason
    if reason not in ENDINGS:
        return speed
    details = speed
    if reason is FinishReason.CONTEXT and recording.terms.engine:
        details = f"{speed}, and no more fits into its {n_ctx:,} tokens"
    elif reason is FinishReason.CONTEXT:
        details = f"this turn alone fills its {n_ctx:,} tokens (engine.n_ctx) · {speed}"
    elif reason is FinishReason.LENGTH and recording.terms.max_tokens:
        details = f"generation.max_tokens · {speed}"
    return f"{ENDINGS[reason]} · {details}"
