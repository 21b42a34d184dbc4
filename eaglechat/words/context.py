"""How full the context is, in words."""

from __future__ import annotations

from eaglechat.chat.writing.context_use import ContextUse
from eaglechat.words.wording import fitting

_LONGEST_TITLE = 40
"""In cells: a turn then fits on one line of 80 columns, with its number and length."""


def warning(use: ContextUse) -> str:
    """The warning to show before a question is sent: it leaves little room for its reply, or it is
    the first to push turns out of the context. Empty if neither is so."""
    if not use.n_ctx or use.room >= use.wanted:
        return ""
    if use.unsent + use.wanted > use.n_ctx:
        return (
            f"About {use.unsent:,} tokens in a context of {use.n_ctx:,}: "
            "this question leaves little or no room for its reply."
        )
    if use.leaves is None or not all(turn.is_in for turn in use.turns):
        return ""
    return (
        f"The context is nearly full ({use.used:,} of {use.n_ctx:,} tokens): this question "
        f"pushes the oldest turns out, “{_short(use.leaves.title)}” first."
    )


def in_words(use: ContextUse) -> str:
    """How full the context is, and one line for each turn."""
    if not use.n_ctx:
        return "No models are loaded, so there is no context."
    lines = [
        f"{use.used:,} of {use.n_ctx:,} tokens are used; {use.room:,} are left for the next reply.",
    ]
    if use.unsent:
        lines.append(f"This includes about {use.unsent:,} tokens that you have typed.")
    if use.leaves is not None:
        title = _short(use.leaves.title)
        lines.append(f"Once fewer than {use.wanted:,} are left, “{title}” is the first to leave.")
    lines.append("")
    for number, turn in enumerate(use.turns, 1):
        about = "" if turn.is_measured else "~"
        gone = "" if turn.is_in else "  (has left)"
        length = about + format(turn.tokens, ",")
        lines.append(f"{number:>3}  {length:>7}  {_short(turn.title)}{gone}")
    return "\n".join(lines)


def _short(title: str) -> str:
    return fitting(title, _LONGEST_TITLE)
