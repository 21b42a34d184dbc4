"""The headline in words: is this faster than plain decoding, and by how much?"""

from __future__ import annotations

from typing import Any

from eaglechat.chat.headline import Headline
from eaglechat.words.gain import figure
from eaglechat.words.wording import about_times, tokens_per_second

_SILENT = {
    "none": "",
    "few": "",
    "plain": "plain decoding",
    "measuring": "measuring plain",
    "not measured": "plain not measured",
    "repeats": "repeats itself: no verdict",
}
"""What is said where there is no gain to tell."""


def in_short(headline: Headline) -> str:
    """The headline in a few words; empty while there is nothing to say."""
    if headline.gain is None:
        return _SILENT[headline.state]
    plain, verdict = _plain(headline), headline.verdict
    if verdict == "same":
        return f"same as {plain}"
    if verdict == "unclear":
        return f"can't tell yet: {figure(headline.gain.speed_up, headline.gain.error)}"
    said = f"{times(headline)} {plain}{_slower(headline)}"
    return ", ".join(filter(None, (said, of_most(headline))))


def times(headline: Headline) -> str:
    """The speed-up as a number; empty unless it is faster or slower."""
    if headline.gain is None or headline.verdict not in ("faster", "slower"):
        return ""
    return figure(headline.gain.speed_up, headline.gain.error).split()[0]


def of_most(headline: Headline) -> str:
    """`of 2.3x at most here`; empty if that is not known, and beside a gain that it says nothing
    of."""
    gain, most = headline.gain, headline.most
    if gain is None or most is None or headline.verdict != "faster" or most <= gain.speed_up:
        return ""
    return f"of {about_times(most)} at most here"


def beside_times(headline: Headline) -> str:
    """What stands beside that number where it is drawn large."""
    if headline.gain is None or not times(headline):
        return in_short(headline)
    error = figure(headline.gain.speed_up, headline.gain.error).split()[1]
    return f"{_plain(headline)} {error}{_slower(headline)}"


def speed(headline: Headline) -> str:
    """The reply's own speed; empty while it is not known."""
    rate = headline.tokens_per_second
    return "" if rate is None else tokens_per_second(rate)


def plain_speed(headline: Headline) -> str:
    """The speed of plain decoding beside which a reply that drafts stands; empty if not known."""
    rate = headline.plain_per_second
    return "" if rate is None or headline.state == "plain" else tokens_per_second(rate)


def in_json(headline: Headline) -> dict[str, Any]:
    """The object `against_plain` of `run --json` and of exported chats."""
    gain = headline.gain
    return {
        "verdict": headline.verdict or headline.state,
        "speed_up": gain.speed_up if gain else None,
        "error": gain.error if gain else None,
        "plain_tokens_per_second": headline.plain_per_second,
    }


def _plain(headline: Headline) -> str:
    return f"plain {headline.of}".rstrip()


def _slower(headline: Headline) -> str:
    return ", slower" if headline.verdict == "slower" else ""
