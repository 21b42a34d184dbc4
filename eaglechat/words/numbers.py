"""What the panel and the status line show of a session besides its headline, and what is said of a
control where the screen does not show it."""

from __future__ import annotations

from eaglechat.chat.controls import CONTROLS, not_followed
from eaglechat.chat.session import ChatSession
from eaglechat.wire.protocol import AUTO
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, AutoDraft
from eaglechat.words import wording
from eaglechat.words.headline import Headline, headline_of

_OF_A_DRAFTER = ("shape", "p_min")
"""The controls that n-grams do not follow."""
SWITCHED_OFF = "you switched it off"
"""Why nothing is drafted, as it stands behind a colon."""
_LABELS = {
    "n_draft_max": "length",
    "enabled": "speculation",
    "ngram": "n-grams",
    "temperature": "temp",
}


def headline(session: ChatSession) -> Headline:
    """Of the reply on show: the one being written, or else the last one."""
    shown = session.shown
    if shown is None:
        return Headline()
    # Another pair may have written it.
    info = session.info if shown.terms.pair == session.pair.name else None
    return headline_of(shown, info, is_over=session.running is None)


def room(session: ChatSession) -> str:
    """The tokens in the context, and its size if that is known."""
    n_past, n_ctx, shown = session.n_past, session.n_ctx, session.shown
    is_unknown = shown is not None and shown.rounds and not shown.rounds[-1].n_past
    if not n_past and (is_unknown or not n_ctx):
        return "not known"
    return f"{n_past:,} / {n_ctx:,}" if n_ctx else f"{n_past:,}"


def off(session: ChatSession) -> str | None:
    """Why nothing is drafted, as it stands behind a colon; None if something is."""
    pair, controls = session.info, session.controls
    if pair is not None and pair.speculation_off is not None:
        return pair.speculation_off
    if not controls.enabled:
        return SWITCHED_OFF
    if controls.n_draft_max == 0:
        return "n_draft_max is 0"
    if pair is not None and not pair.drafters and not controls.ngram:
        return "no draft is loaded, and n-grams are off"
    return session.shown.speculation_stopped if session.shown else None


def unreported(session: ChatSession) -> str | None:
    """“not reported by X”, or None if the engine reports the origins of tokens."""
    return wording.not_reported(session.hello, "origins")


def has_only_ngrams(session: ChatSession) -> bool:
    return session.info is not None and not (session.info.drafters or session.info.server)


def drafters(session: ChatSession) -> tuple[str, ...]:
    """The choices of the drafter that the pair has."""
    kinds = [one.kind for one in session.info.drafters] if session.info else []
    usable = (AUTO, *kinds, "ngram", "none", session.controls.drafter)
    return tuple(word for word in CONTROLS["drafter"].words if word in usable)


def longest(session: ChatSession) -> int:
    """The most tokens that what drafts can draft in a round."""
    known = session.info.drafters if session.info else ()
    usable = (one.longest for one in known if session.controls.drafter in (AUTO, one.kind))
    return max(usable, default=N_DRAFT_MAX_LIMIT)


def auto(session: ChatSession) -> AutoDraft | None:
    """The latest choice of the automatic draft length; None while that is not in use."""
    is_used = session.shown and session.controls.n_draft_max == AUTO and session.shown.rounds
    return session.shown.rounds[-1].auto if session.shown and is_used else None


def without_effect(session: ChatSession) -> dict[str, str]:
    """Why it makes no difference what a control is, by the names of those of which this is so."""
    reasoning = session.reasoning
    ignored = dict.fromkeys(not_followed(session.can), "this engine ignores it")
    of_a_drafter = _OF_A_DRAFTER if has_only_ngrams(session) else ()
    no_trees = session.info.chains_only if session.info else None
    switches = {"thinking": reasoning.on_off, "effort": reasoning.efforts}
    no_switch = "the model's chat template has no switch for it"
    unswitched = {name: no_switch for name, has_one in switches.items() if not has_one}
    known = {"shape": no_trees} if no_trees else {}
    known |= dict.fromkeys(of_a_drafter, "only n-grams draft")
    return {**known, **ignored, **unswitched}


def label(name: str) -> str:
    return _LABELS.get(name, name)
