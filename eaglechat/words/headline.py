"""Whether drafting is faster than plain decoding, and by how much, in words: the first thing that
the screen says of a reply.

It follows from the reply's own rounds since its draft length was last set by hand
(`chat/measured.py`): while it is written, afterwards, and when the chat is opened again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from eaglechat.chat.recording import Recording
from eaglechat.wire.gain import GainVerdict, MeasuredGain
from eaglechat.wire.protocol import PairInfo
from eaglechat.wire.records import per_second
from eaglechat.words.gain import figure
from eaglechat.words.wording import about_times, tokens_per_second

State = Literal["none", "plain", "few", "measuring", "not measured", "repeats", "told"]
_SILENT = {
    "none": "",
    "few": "",
    "plain": "plain decoding",
    "measuring": "measuring plain",
    "not measured": "plain not measured",
    "repeats": "repeats itself: no verdict",
}
"""What is said where there is no gain to tell."""


@dataclass(frozen=True)
class Headline:
    """A reply's speed against plain decoding."""

    state: State = "none"
    """none: there is no round yet; plain: nothing was to be drafted; few: too few rounds for a
    speed; measuring: too few plain rounds yet; not measured: the reply has, and will have, too few;
    repeats: the text repeats itself, which says nothing of the pair."""
    tokens_per_second: float | None = None
    """Of the rounds."""
    gain: MeasuredGain | None = None
    """None unless it is told."""
    plain_per_second: float | None = None
    """Tokens per second of plain decoding, where it was measured; a plain reply's own."""
    of: str = ""
    """The quantisation that decodes plainly; empty if it is not known."""
    most: float | None = None
    """The most that drafting can gain here, if that is known."""

    @property
    def verdict(self) -> GainVerdict | None:
        """None if there is none to tell."""
        return self.gain.verdict if self.gain else None

    def in_short(self) -> str:
        """The headline in a few words; empty while there is nothing to say."""
        if self.gain is None:
            return _SILENT[self.state]
        plain, verdict = self._plain(), self.verdict
        if verdict == "same":
            return f"same as {plain}"
        if verdict == "unclear":
            return f"can't tell yet: {figure(self.gain.speed_up, self.gain.error)}"
        said = f"{self.times()} {plain}{self._slower()}"
        return ", ".join(filter(None, (said, self.of_most())))

    def times(self) -> str:
        """The speed-up as a number; empty unless it is faster or slower."""
        if self.gain is None or self.verdict not in ("faster", "slower"):
            return ""
        return figure(self.gain.speed_up, self.gain.error).split()[0]

    def of_most(self) -> str:
        """`of 2.3x at most here`; empty if that is not known, and beside a gain that it says
        nothing of."""
        gain, most = self.gain, self.most
        if gain is None or most is None or self.verdict != "faster" or most <= gain.speed_up:
            return ""
        return f"of {about_times(most)} at most here"

    def beside_times(self) -> str:
        """What stands beside that number where it is drawn large."""
        if self.gain is None or not self.times():
            return self.in_short()
        error = figure(self.gain.speed_up, self.gain.error).split()[1]
        return f"{self._plain()} {error}{self._slower()}"

    def speed(self) -> str:
        """The reply's own speed; empty while it is not known."""
        return tokens_per_second(self.tokens_per_second)

    def plain_speed(self) -> str:
        """That of plain decoding beside which a reply that drafts stands; empty if not known."""
        return tokens_per_second(None if self.state == "plain" else self.plain_per_second)

    def in_json(self) -> dict[str, Any]:
        """The object `against_plain` of `run --json` and of exported chats."""
        gain = self.gain
        return {
            "verdict": self.verdict or self.state,
            "speed_up": gain.speed_up if gain else None,
            "error": gain.error if gain else None,
            "plain_tokens_per_second": self.plain_per_second,
        }

    def _plain(self) -> str:
        return f"plain {self.of}".rstrip()

    def _slower(self) -> str:
        return ", slower" if self.verdict == "slower" else ""


def headline_of(
    recording: Recording, info: PairInfo | None = None, *, is_over: bool = True
) -> Headline:
    """The headline of a reply; `info` is of the pair that wrote it, if that is loaded."""
    of, most = (info.target.quantization, info.most) if info else ("", None)
    headline = partial(Headline, of=of, most=most)
    stretch = recording.stretch
    rate, gain = stretch.tokens_per_second, stretch.against_plain.gain()
    if not stretch.stats.rounds:
        return headline()
    if stretch.is_plain:
        return headline("plain" if rate else "few", rate, None, rate)
    if rate is None:
        return headline("few", per_second(stretch.stats.tokens, stretch.ms) if is_over else None)
    plain = rate / gain.speed_up if gain else None
    if stretch.passages.repeat:
        return headline("repeats", rate, None, plain)
    if gain is not None:
        return headline("told", rate, gain, plain)
    is_own = not recording.terms.engine
    return headline("measuring" if is_own and not is_over else "not measured", rate)
