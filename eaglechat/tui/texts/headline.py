"""The headline in words: is this faster than plain decoding, by how much, and how is that known?"""

from __future__ import annotations

import time

from eaglechat.chat.headline import Headline
from eaglechat.chat.recording import Plain
from eaglechat.tui.texts.wording import plural

NOT_MEASURED = "plain not measured yet"
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def in_short(headline: Headline) -> str:
    """The headline in a few words; empty while there is nothing to say."""
    if headline.verdict == "same":
        wide = f" ±{headline.error:.1f}" if headline.error >= 0.1 else ""
        return f"same as plain{wide}"
    if headline.speed_up is not None:
        return f"{times(headline)} plain{', slower' if headline.verdict == 'slower' else ''}"
    if headline.is_plain:
        return "plain decoding"
    if headline.speed is None:
        return ""
    return NOT_MEASURED


def times(headline: Headline) -> str:
    """The speed-up as a number, with a tilde if plain decoding was measured at another time; empty
    if there is none to tell."""
    if headline.speed_up is None or headline.verdict == "same":
        return ""
    rough = "~" if headline.is_rough else ""
    return f"{rough}{headline.speed_up:.{1 if headline.speed_up < 10 else 0}f}x"


def per_second(rate: float) -> str:
    """Tokens per second, with three digits."""
    return f"{rate:.1f}" if rate < 100 else f"{rate:,.0f}"


def plain_in_short(plain: Plain) -> str:
    """The plain speed and its error; a tilde marks one that is not of the same reply."""
    mark = "" if plain.source in ("reply", "auto") else "~"
    speed = plain.speed
    return f"plain {mark}{per_second(speed.tokens_per_second)} ±{per_second(speed.error)}"


def origin(plain: Plain | None, now: float | None = None) -> str:
    """Where the plain speed is from, in a sentence."""
    if plain is None:
        return "Plain decoding of this pair was not measured yet."
    if plain.source == "reply":
        return "Plain decoding is measured: rounds of this reply without a draft."
    if plain.source == "auto":
        return "Plain decoding as auto knows it from rounds without a draft, here and now."
    if plain.source == "load":
        return (
            "Plain decoding as a pass was timed when the pair was loaded. A reply without a draft "
            "measures it better."
        )
    return f"Plain decoding as measured {_ago((now or time.time()) - plain.at)}."


def _ago(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{plural(int(seconds // size), unit)} ago"
    return "just now"
