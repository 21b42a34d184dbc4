"""The theme's style for each kind of token, and the legend that explains the styles."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.content import Content

from eaglechat.tui.themes import REJECTED, TOKEN_KINDS

NGRAM_KIND = "n-gram"
"""The kind of accepted tokens that n-grams drafted: drawn as accepted and underlined."""
GUESSED = "guessed"
"""The kind of text that a drafter guessed, in the live view: in the colour of accepted tokens."""


def token_look(app: App[Any], kind: str) -> str:
    if kind == NGRAM_KIND:
        return "bold underline $token-accepted"
    if kind == GUESSED:
        return f"{'dim ' if app.no_color else ''}$token-accepted"
    style = app.theme_variables[f"token-{kind}-style"]
    return f"{'' if style == 'none' else style} $token-{kind}"


def legend(app: App[Any], no_origins: str | None, *, are_rejected_known: bool) -> Content:
    """The kinds of tokens in one line, each in its own style; or why the origins of tokens are
    unknown. `are_rejected_known` is whether the engine reports the rejected ones."""
    if no_origins:
        return Content(f"origins {no_origins}")
    accepted, *others = TOKEN_KINDS
    return Content(" · ").join(
        Content(f"{kind}: not reported")
        if kind == REJECTED and not are_rejected_known
        else Content.styled(kind, token_look(app, kind))
        for kind in (accepted, NGRAM_KIND, *others)
    )
