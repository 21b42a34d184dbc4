"""A gain over plain decoding in words: the same ones wherever a speed-up is told."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from eaglechat import paths
from eaglechat.hub.local import passes
from eaglechat.wire.gain import MeasuredGain
from eaglechat.wire.protocol import AUTO
from eaglechat.words.wording import about_times, ago, times

if TYPE_CHECKING:
    from eaglechat.chat.compared import Score
    from eaglechat.hub.local.speeds import Gain
    from eaglechat.wire.protocol import PairInfo


def in_words(speed_up: float, error: float | None, how: str) -> str:
    """`1.4x ±0.1 as fast as plain with length 3`, `same as plain with length 3`. Without a verdict
    it says where it leans, if that is further from plain than half of the error: `leaning faster:
    1.2x ±0.3`, `can't tell: 1.0x ±0.3`."""
    said = f"{figure(speed_up, error)} as fast as plain {how}"
    verdict = MeasuredGain(speed_up, error).verdict
    if verdict == "same":
        return f"same as plain {how}"
    if verdict != "unclear":
        return said
    leans = error is not None and abs(speed_up - 1.0) > error / 2
    word = f"leaning {'faster' if speed_up > 1.0 else 'slower'}" if leans else "can't tell"
    return f"{word}: {said}"


def measured_here(gain: Gain, now: float) -> str:
    """The same, with the length, what measured it, at which temperature if that is known, and when;
    `now` is in seconds since 1970."""
    length = gain.n_draft_max
    how = "with auto" if length == AUTO else f"with length {length}"
    by = {"bench": "bench", "question": "Compare", "replies": f"mean of {gain.replies} replies"}
    said = in_words(gain.speed_up, gain.error, how)
    at = "" if gain.temperature is None else f" at temperature {gain.temperature:g}"
    return f"{said} ({by[gain.by]}{at}, {ago(gain.at, now)})"


def at_most(info: PairInfo, best: Score | None) -> str:
    """How much drafting can gain with a pair here, and what would raise that; empty if it was not
    timed, or if the `best` that was measured shows that it was timed on a busier machine."""
    most = info.most
    if most is None or (best is not None and best.gain.speed_up > most):
        return ""
    said = (
        f"At most {about_times(most)} as fast as plain here, with a draft that is always right and "
        "free"
    )
    if better := passes.better(info.target.path, passes.measured(paths.state_dir())):
        said += f"; the same model in {better.quantization}: {about_times(better.most)}"
    return f"{said}."


def figure(speed_up: float, error: float | None) -> str:
    """`1.4x ±0.1`: as many decimals as the error leaves, and the error rounded up."""
    if error is None:
        return times(speed_up)
    digits = 0 if error >= 5 else 1 if error >= 0.05 else 2
    rounded = max(ceil(error * 10**digits), 1) / 10**digits
    return f"{speed_up:.{digits}f}x ±{rounded:.{digits}f}"
