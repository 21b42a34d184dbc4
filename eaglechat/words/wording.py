"""Sentences and numbers that several screens show."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from rich.cells import cell_len, set_cell_size

from eaglechat.wire.drafters import DRAFTERS
from eaglechat.wire.protocol import Hello, PairInfo
from eaglechat.wire.records import NGRAM, AutoDraft, AutoReason
from eaglechat.wire.worker import Died
from eaglechat.words.neutral import neutralise

_LOG_LINE = 160
VISIBLE_WHITESPACE = str.maketrans({"\n": "↵", "\t": "⇥"})
"""Makes newlines and tabs visible in a text that is shown on one line."""

NAMES: Mapping[str, str] = {**{kind: one.name for kind, one in DRAFTERS.items()}, NGRAM: "n-grams"}
"""The names of all that drafts."""

KINDS_OF_TOKENS = (
    ("accepted", "a guess of the draft that the target agreed with: a token for free"),
    ("rejected", "a guess the target disagreed with; the guesses after it are discarded"),
    ("correction", "the target's own token in place of a rejected guess"),
    ("bonus", "the target's extra token after a fully accepted draft"),
    ("plain", "a token decoded without a draft"),
)
"""What a token of each kind is."""

GLOSSARY = (
    ("target", "the model you chat with; every token of the reply is its choice"),
    ("draft", "a small model that guesses the target's next tokens"),
    ("round", "the draft guesses, the target verifies all guesses in one pass"),
    *KINDS_OF_TOKENS,
    ("n_draft_max", "the most tokens drafted per round; 0 decodes plainly"),
    ("p_min", "drafting stops at a token less probable than this"),
    ("prefill", "reading the prompt; what the KV cache holds is not read again"),
)
"""The words of the app, with their meanings."""


def visible(text: str) -> str:
    """A text for one line of the screen."""
    return neutralise(text).translate(VISIBLE_WHITESPACE)


def percent(share: float | None) -> str:
    """A share in whole percent; all is 100%, and no less."""
    if share is None:
        return "-"
    return f"{99 if 0.99 < share < 1.0 else round(100 * share)}%"


def tokens_per_second(rate: float | None) -> str:
    """A speed with three digits, and its unit; empty if it is not known."""
    if rate is None:
        return ""
    return f"{rate:.1f} tok/s" if rate < 99.95 else f"{rate:,.0f} tok/s"


def times(ratio: float) -> str:
    """`1.42x`"""
    return f"{ratio:.2f}x"


def about_times(ratio: float) -> str:
    """`1.4x`: a bound, or where there is no room for an error."""
    return f"{ratio:.1f}x"


def one_decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def two_decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def sentence(text: str) -> str:
    """A message of an engine as a sentence: with a full stop, and with a capital letter unless it
    begins with an address or a name."""
    if not text.startswith(("http", "llama.cpp", "llama-")):
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."


def pair_in_short(info: PairInfo | None, name: str) -> str:
    if info is None:
        return name
    if info.server:
        return f"{name} · {info.target.name}"
    drafts = [drafter(one.kind) for one in info.drafters]
    return f"{name} · {info.target.quantization}{' + '.join(['', *drafts]) or ', no draft'}"


def today() -> str:
    """`9 March 2026`."""
    now = datetime.date.today()
    return f"{now.day} {now:%B %Y}"


def ago(then: float, now: float) -> str:
    """How long before `now` something was, both in seconds since 1970; its date after a week."""
    minutes = max(0.0, now - then) / 60
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{int(minutes)} min ago"
    if minutes < 24 * 60:
        return f"{int(minutes / 60)} h ago"
    if minutes < 7 * 24 * 60:
        return f"{plural(int(minutes / 60 / 24), 'day')} ago"
    return datetime.datetime.fromtimestamp(then).strftime("%Y-%m-%d")


def why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def not_reported(hello: Hello | None, what: str) -> str | None:
    """What stands in place of a number that an engine does not report; None if it does, or if no
    engine runs. `what` is a field of `Capabilities`."""
    if hello is None or getattr(hello.can, what):
        return None
    return f"not reported by {hello.engine}"


def fitting(text: str, width: int) -> str:
    """A text cut to `width` cells, with an ellipsis at its end if it was cut."""
    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, max(0, width - 1)).rstrip()}…"


def drafter(name: str | None) -> str:
    return "draft" if name is None else NAMES.get(name, name)


def auto_in_words(auto: AutoDraft) -> tuple[str, str]:
    """What the automatic draft length chose and why; and how many milliseconds the reply is behind
    plain decoding, and how many it may be."""
    chosen = f"{auto.shape} of {auto.n}" if auto.n else "plain"
    if auto.reason is AutoReason.LOOKED_UP:
        chosen = f"{auto.n} from n-grams"
    whys = {
        AutoReason.BEST: "expected fastest",
        AutoReason.EXPLORING: "exploring",
        AutoReason.PLAIN_CHECK: "to measure it",
        AutoReason.LEDGER: "drafts lost time",
        AutoReason.LOOKED_UP: "faster than a draft",
    }
    lost = f"{max(auto.lost_ms, 0.0):,.0f} of {max(auto.allowed_ms, 0.0):,.0f} ms allowed"
    return f"{chosen}, {whys[auto.reason]}", f"{lost} behind plain decoding"


def engine_stopped(event: Died) -> str:
    """That the engine process has ended, below the last lines of its log: the reader sees the last
    line."""
    if event.exit_status is None:
        return sentence(event.why)
    lines = "\n".join(f"  {fitting(line, _LOG_LINE)}" for line in event.log_tail)
    log = f"The last lines of the engine's log:\n{lines}" if lines else "The engine's log is empty."
    return f"{log}\n{sentence(event.why)}"
