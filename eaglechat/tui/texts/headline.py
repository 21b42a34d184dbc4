"""The headline in words: is this faster than plain decoding, by how much, and how is that known?"""

from __future__ import annotations

import time

from eaglechat.chat.headline import Headline
from eaglechat.chat.recording import Plain
from eaglechat.tui.texts.wording import ago

NOT_MEASURED = "plain not measured yet"


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
    if headline.plain is None or headline.speed_up is None or headline.verdict == "same":
        return ""
    return f"{tilde(headline.plain)}{headline.speed_up:.{1 if headline.speed_up < 10 else 0}f}x"


def per_second(rate: float) -> str:
    """Tokens per second, with three digits."""
    return f"{rate:.1f}" if rate < 100 else f"{rate:,.0f}"


def speed(headline: Headline) -> str:
    """The reply's own speed; empty while it is not known."""
    rate = headline.tokens_per_second
    return "" if rate is None else f"{per_second(rate)} tok/s"


def tilde(plain: Plain) -> str:
    """Marks a plain speed that was measured at another time."""
    return "~" if plain.source in ("before", "load") else ""


def plain_in_short(plain: Plain) -> str:
    """The plain speed and its error."""
    of, error = plain.speed.tokens_per_second, plain.speed.error
    return f"plain {tilde(plain)}{per_second(of)} ±{per_second(error)}"


def origin(plain: Plain | None, now: float | None = None) -> str:
    """Where the plain speed is from."""
    if plain is None:
        return "not measured yet"
    if plain.source == "before":
        return f"measured {ago(plain.at, now or time.time())}"
    return {
        "reply": "measured in plain rounds of this reply",
        "auto": "as auto knows it from plain rounds",
        "load": "timed when the pair was loaded",
    }[plain.source]
