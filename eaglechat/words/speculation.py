"""What is measured of a reply beside the headline, in lines: the dialog of the context has it."""

from __future__ import annotations

from collections.abc import Iterator

from eaglechat.chat.session import ChatSession
from eaglechat.wire.stats import SpeculationStats
from eaglechat.words import headline, wording
from eaglechat.words.numbers import Numbers
from eaglechat.words.statistics import of_whole_reply

_NAME = 14


def in_words(session: ChatSession, numbers: Numbers) -> str:
    """The reply on show: its speed, its acceptance, its times; empty without a reply."""
    lines = "\n".join(f"{name:<{_NAME}}{said}" for name, said in _said(session, numbers) if said)
    return f"This reply\n{lines}" if lines else ""


def _said(session: ChatSession, numbers: Numbers) -> Iterator[tuple[str, str]]:
    shown = session.shown
    if shown is None or not shown.rounds:
        return
    known = numbers.headline
    said = f"{headline.times(known)} {headline.beside_times(known)}".strip()
    yield "speed", ", ".join(filter(None, (said, headline.of_most(known), headline.speed(known))))
    if plain := headline.plain_speed(known):
        yield "plain", f"{plain}, measured in plain rounds of this reply"
    yield "kept", numbers.unreported or _kept(numbers.reply)
    if numbers.reply.tested and not numbers.unreported:
        length = wording.two_decimals(numbers.reply.mean_accepted_length)
        yield "a round", f"{length} tokens, plain rounds not counted"
    for part, stats in shown.by_part.items() if shown.has_reasoning else ():
        parts = [
            wording.tokens_per_second(stats.tokens_per_second or 0.0),
            f"kept {wording.percent(stats.stats.acceptance_rate)}",
            f"{wording.two_decimals(stats.stats.mean_accepted_length)} tokens a round",
        ]
        yield part.value, ", ".join(parts)
    times = session.running is None and shown.measured.timings
    if times:
        read = f"{times.prefill_tokens:,} tokens read, {times.reused_tokens:,} cached"
        yield "prompt", f"{read}, {times.prefill_ms:,.0f} ms"
    elif session.running is not None and (prefill := session.running.prefill) is not None:
        read = f"{prefill.done:,} of {prefill.total:,} tokens read"
        yield "prompt", f"{read}, {prefill.reused:,} cached"
    yield "draft times", wording.not_reported(session.hello, "own") or ""
    if numbers.auto is not None:
        yield "auto", wording.auto_choice(numbers.auto)
        yield "", wording.auto_ledger(numbers.auto)


def _kept(stats: SpeculationStats) -> str:
    if stats.is_of_whole_reply:
        return of_whole_reply(stats)
    if not stats.tested:
        return ""
    share = wording.percent(stats.acceptance_rate)
    return f"{share} ({stats.accepted:,} of {stats.tested:,} tested)"
