"""What is said of a control that was turned, where the screen does not show it."""

from __future__ import annotations

from eaglechat.chat.controls import (
    EFFORT,
    P_MIN,
    SHAPE,
    THINKING,
    Control,
    Controls,
)
from eaglechat.words.wording import NAMES

_LABELS = {
    "n_draft_max": "length",
    "enabled": "speculation",
    "ngram": "n-grams",
    "temperature": "temp",
}


def label(control: Control) -> str:
    """Its name on the screen."""
    return _LABELS.get(control.name, control.name)


def in_force(control: Control, controls: Controls, since: str) -> str:
    """“From the next {since} on: temp 0.80.” `since` is “round” or “reply”."""
    word = control.word(getattr(controls, control.name))
    return f"From the next {since} on: {label(control)} {NAMES.get(word, word)}."


def without_effect(control: Control, *, only_ngrams: bool) -> str:
    """Why it makes no difference what a control is."""
    why = "this engine ignores it"
    if control in (THINKING, EFFORT):
        why = "the model's chat template has no switch for it"
    elif only_ngrams and control in (SHAPE, P_MIN):
        why = "only n-grams draft"
    return f"{label(control)} has no effect: {why}."
