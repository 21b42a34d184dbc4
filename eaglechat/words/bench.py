"""The verdict of a bench in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from eaglechat.wire.bench_records import AS_STARTED
from eaglechat.words import wording
from eaglechat.words.gain import as_far_as_known, figure, in_words

if TYPE_CHECKING:
    from eaglechat.engine.bench.report import SettingResult
    from eaglechat.engine.bench.verdict import PromptGain, Verdict


def verdict_in_words(verdict: Verdict) -> str:
    """Whether drafting is worth it for this pair on this machine, and for which prompts. Within the
    error no gain is claimed."""
    gain, how = verdict.gain, f"with {_how(verdict.best)}"
    faster, slower = verdict.faster, verdict.slower
    but = f"; {_named(slower)} {'is' if len(slower) == 1 else 'are'} faster plain" if slower else ""
    said = in_words(gain.speed_up, gain.error, how)
    if gain.verdict == "faster":
        return f"Worth it: {said}{but}."
    over_all = wording.sentence(as_far_as_known(gain.speed_up, gain.error, how))
    if gain.verdict == "slower":
        over_all = f"Not worth it on this machine: {said}."
    elif gain.verdict == "same":
        over_all = f"No gain on this machine: {said}."
    if not faster:
        return over_all
    most = figure(faster[0].gain.speed_up, faster[0].gain.error)
    up_to = "up to " if len(faster) > 1 else ""
    return f"{over_all} Worth it for {_named(faster)}: {up_to}{most} as fast as plain{but}."


def _named(prompts: Sequence[PromptGain]) -> str:
    if len(prompts) > 2:
        return f"{len(prompts)} of the prompts"
    return " and ".join(one.prompt for one in prompts)


def _how(result: SettingResult) -> str:
    if result.setting == AS_STARTED:
        return "the server's own drafting"
    is_length = isinstance(result.n, int) and result.setting == str(result.n)
    return (
        f"{wording.plural(int(result.setting), 'token')} a round" if is_length else result.setting
    )
