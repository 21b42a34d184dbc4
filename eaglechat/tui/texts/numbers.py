"""The numbers that the speculation panel and the status line show, taken from the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eaglechat.chat.controls import DRAFTER, P_MIN, SHAPE, Controls, not_followed
from eaglechat.chat.conversation.session import ChatSession
from eaglechat.chat.refusals import speculation_off
from eaglechat.tui.texts import wording
from eaglechat.tui.texts.refusals import reason_of
from eaglechat.wire.protocol import AUTO, Reasoning, RecommendedSampling, Sampling
from eaglechat.wire.records import AutoDraft, Part, Round, summed
from eaglechat.wire.stats import ROLLING_ROUNDS, Measured, PartStats, SpeculationStats, stats_of

_MOST_ROUNDS = 512
"""The most rounds that the panel draws."""
_OF_A_DRAFTER = {SHAPE.name, P_MIN.name}
"""The controls that n-grams do not follow."""


@dataclass(frozen=True)
class Numbers:
    """The numbers at one moment. “The reply on show” is the one being written, or else the last
    one. None means not measured yet."""

    reply: SpeculationStats
    measured: Measured
    """Acceptance over the latest rounds of the chat; times of the reply on show."""
    rounds: tuple[Round, ...]
    """The latest rounds of the reply on show, oldest first."""
    times: str
    """Mean milliseconds per round for drafting and for verifying, over the latest rounds."""
    n_past: int
    n_ctx: int
    prefill: str
    off: str | None
    """Why nothing is drafted; None if something is."""
    controls: Controls
    reasoning: Reasoning
    """What can be set about the target's reasoning."""
    by_part: Mapping[Part, PartStats]
    """The reasoning and the answer of the reply on show; empty if it has no reasoning."""
    unreported: str | None
    """That the engine does not report the origins of tokens; None if it does."""
    is_provisional: bool
    """Whether the origins are derived until the engine reports them at the end of the reply."""
    engine: str
    """The engine that wrote the reply on show, or will write the first one; empty for eaglechat's
    own."""
    without_effect: frozenset[str]
    """The controls that the engine ignores, or that are only of a drafter where the pair has
    none."""
    only_ngrams: bool
    """Whether the pair has no drafter."""
    drafts_as_asked: bool
    """Whether the engine follows the controls of drafting."""
    recommended: RecommendedSampling | None
    """The sampling that the target's file recommends."""
    own_sampling: str
    """In words: the sampling settings without a control that are as recommended."""
    drafters: tuple[str, ...]
    """The choices of the drafter that the pair has."""
    auto: AutoDraft | None
    """The latest choice of the automatic draft length; None while that is not in use."""

    @property
    def room(self) -> str:
        """The tokens in the context, and its size if that is known."""
        if self.rounds and not (self.n_past or self.rounds[-1].n_past):
            return "not known"
        if self.n_ctx:
            return f"{self.n_past:,} of {self.n_ctx:,}"
        return f"{self.n_past:,}" if self.n_past else "not known"


def numbers_of(session: ChatSession) -> Numbers:
    """The numbers of a session at this moment."""
    shown, controls = session.shown, session.controls
    rounds = tuple(shown.rounds[-_MOST_ROUNDS:]) if shown else ()
    latest = rounds[-ROLLING_ROUNDS:]
    rolling = stats_of(session.latest_rounds)
    only_ngrams = session.info is not None and not (session.info.drafters or session.info.server)
    off = speculation_off(session.info, controls, shown.speculation_stopped if shown else None)
    return Numbers(
        reply=shown.stats if shown else SpeculationStats(),
        measured=replace(shown.measured if shown else Measured(), stats=rolling),
        rounds=rounds,
        times=wording.not_reported(session.hello, "times") or _times(latest),
        n_past=session.n_past,
        n_ctx=session.n_ctx,
        prefill=_prefill(session),
        off=reason_of(off) if off else None,
        controls=controls,
        reasoning=session.reasoning,
        by_part=shown.by_part if shown and shown.has_reasoning else {},
        unreported=wording.not_reported(session.hello, "origins"),
        is_provisional=bool(rounds) and rounds[-1].provisional,
        engine=(shown.terms if shown else session.terms).engine,
        without_effect=not_followed(session.hello) | (_OF_A_DRAFTER if only_ngrams else set()),
        only_ngrams=only_ngrams,
        drafts_as_asked=session.hello is None or session.hello.can.draft_length,
        recommended=session.recommended,
        own_sampling=_own_sampling(session.recommended, session.terms.sampling),
        drafters=_drafters(session),
        auto=rounds[-1].auto if rounds and controls.n_draft_max == AUTO else None,
    )


def _drafters(session: ChatSession) -> tuple[str, ...]:
    """Those of the pair, and the one that is chosen."""
    kinds = [drafter.kind for drafter in session.info.drafters] if session.info else []
    chosen = session.controls.drafter
    return tuple(word for word in DRAFTER.words if word in (AUTO, *kinds, "ngram", "none", chosen))


def _times(rounds: Sequence[Round]) -> str:
    # Both means are over rounds that drafted: plain rounds, which the automatic draft length mixes
    # in, would make verifying look cheaper.
    rounds = [round_ for round_ in rounds if round_.drafted] or rounds
    draft_ms = _mean([round_.timings.draft_ms for round_ in rounds if round_.drafted])
    verify_ms = _mean([round_.timings.verify_ms for round_ in rounds])
    return f"{wording.one_decimal(draft_ms)} / {wording.one_decimal(verify_ms)} ms"


def _mean(times: list[float | None]) -> float | None:
    """The mean; None if there are no times or one of them is not reported."""
    total = summed(times)
    return total / len(times) if times and total is not None else None


def _prefill(session: ChatSession) -> str:
    if session.shown is None:
        return "-"
    if (end := session.shown.end) is not None:
        times = end.timings
        counts = f"{times.prefill_tokens:,} read, {times.reused_tokens:,} cached"
        return f"{counts}, {times.prefill_ms:,.0f} ms"
    if session.running is None:
        return "-"
    prefill = session.running.prefill
    if prefill is None:
        return "starting"
    return f"{prefill.done:,} of {prefill.total:,}, {prefill.reused:,} cached"


def _own_sampling(recommended: RecommendedSampling | None, in_force: Sampling) -> str:
    """The sampling settings without a control that have the value the model's file recommends."""
    keys = ("top_k", "top_p", "min_p", "repeat_penalty")
    own = [
        f"{key} {getattr(in_force, key):g}"
        for key in keys
        if recommended and getattr(recommended, key) == getattr(in_force, key)
    ]
    return f"The model's: {', '.join(own)}" if own else ""
