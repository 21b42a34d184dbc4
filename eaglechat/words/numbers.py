"""The numbers that the panel and the status line show, taken from the session, and what is said of
a control where the screen does not show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eaglechat.chat.controls import (
    DRAFTER,
    EFFORT,
    P_MIN,
    SHAPE,
    THINKING,
    Control,
    Controls,
    not_followed,
)
from eaglechat.chat.measured import RoundMeans
from eaglechat.chat.recording import Recording
from eaglechat.chat.refusals import speculation_off
from eaglechat.chat.session import ChatSession
from eaglechat.wire.protocol import AUTO, Recommended
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, AutoDraft, Round
from eaglechat.wire.stats import SpeculationStats
from eaglechat.words import wording
from eaglechat.words.headline import Headline, headline_of

_MOST_ROUNDS = 512
"""The most rounds that the panel draws."""
_OF_A_DRAFTER = (SHAPE.name, P_MIN.name)
"""The controls that n-grams do not follow."""
_LABELS = {
    "n_draft_max": "length",
    "enabled": "speculation",
    "ngram": "n-grams",
    "temperature": "temp",
}


@dataclass(frozen=True)
class Numbers:
    """The numbers at one moment. “The reply on show” is the one being written, or else the last
    one. None means not measured yet."""

    headline: Headline
    reply: SpeculationStats
    """Counts over the whole reply on show."""
    stretch: SpeculationStats
    """Counts over the rounds of the headline: those of this reply since its draft length was last
    set by hand."""
    means: RoundMeans | None
    """Of the same rounds."""
    rounds: tuple[Round, ...]
    """The latest rounds of the reply on show, oldest first."""
    room: str
    """The tokens in the context, and its size if that is known."""
    off: str | None
    """Why nothing is drafted; None if something is."""
    controls: Controls
    unreported: str | None
    """“not reported by X”, or None if the engine reports the origins of tokens."""
    engine: str
    """The engine that wrote the reply on show, or will write the first one; empty for eaglechat's
    own."""
    without_effect: Mapping[str, str]
    """Why it makes no difference what a control is, by the names of those of which this is so."""
    only_ngrams: bool
    """Whether the pair has no drafter."""
    drafts_as_asked: bool
    """Whether the engine follows the controls of drafting."""
    recommended: Recommended
    """The sampling that the target's file recommends."""
    drafters: tuple[str, ...]
    """The choices of the drafter that the pair has."""
    longest: int
    """The most tokens that what drafts can draft in a round."""
    auto: AutoDraft | None
    """The latest choice of the automatic draft length; None while that is not in use."""


def numbers_of(session: ChatSession) -> Numbers:
    shown, controls = session.shown or Recording(session.terms), session.controls
    rounds = tuple(shown.rounds[-_MOST_ROUNDS:])
    n_past, n_ctx, room = session.n_past, session.n_ctx, "not known"
    if n_past or (n_ctx and not (rounds and not rounds[-1].n_past)):
        room = f"{n_past:,} / {n_ctx:,}" if n_ctx else f"{n_past:,}"
    # Another pair may have written it.
    info = session.info if shown.terms.pair == session.pair.name else None
    drafters = session.info.drafters if session.info else ()
    kinds = (AUTO, *(one.kind for one in drafters), "ngram", "none", controls.drafter)
    usable = (one.longest for one in drafters if controls.drafter in (AUTO, one.kind))
    only_ngrams = session.info is not None and not (session.info.drafters or session.info.server)
    return Numbers(
        headline=headline_of(shown, info, is_over=session.running is None),
        reply=shown.stats,
        stretch=shown.stretch.stats,
        means=shown.stretch.means,
        rounds=rounds,
        room=room,
        off=speculation_off(session.info, controls, shown.speculation_stopped),
        controls=controls,
        unreported=wording.not_reported(session.hello, "origins"),
        engine=shown.terms.engine,
        without_effect=_without_effect(session, only_ngrams=only_ngrams),
        only_ngrams=only_ngrams,
        drafts_as_asked=session.can.draft_length,
        recommended=session.recommended,
        drafters=tuple(word for word in DRAFTER.words if word in kinds),
        longest=max(usable, default=N_DRAFT_MAX_LIMIT),
        auto=rounds[-1].auto if rounds and controls.n_draft_max == AUTO else None,
    )


# Controls in words


def label(control: Control) -> str:
    return _LABELS.get(control.name, control.name)


def in_force(control: Control, controls: Controls, since: str) -> str:
    """“From the next {since} on: temp 0.80.” `since` is “round” or “reply”."""
    word = control.word(getattr(controls, control.name))
    return f"From the next {since} on: {label(control)} {wording.NAMES.get(word, word)}."


def _without_effect(session: ChatSession, *, only_ngrams: bool) -> dict[str, str]:
    reasoning = session.reasoning
    ignored = dict.fromkeys(not_followed(session.can), "this engine ignores it")
    of_a_drafter = dict.fromkeys(_OF_A_DRAFTER if only_ngrams else (), "only n-grams draft")
    switches = {THINKING.name: reasoning.on_off, EFFORT.name: reasoning.efforts}
    no_switch = "the model's chat template has no switch for it"
    unswitched = {name: no_switch for name, has_one in switches.items() if not has_one}
    return {**of_a_drafter, **ignored, **unswitched}
