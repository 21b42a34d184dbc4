"""The theme's style for each kind of token, and the legend that explains the styles."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from eaglechat.tui.themes import REJECTED, TOKEN_KINDS

NGRAM_KIND = "n-gram"
"""The kind of accepted tokens that n-grams drafted: drawn as accepted and underlined."""
GUESSED = "guessed"
"""The kind of text that a drafter guessed, in the live view: in the colour of accepted tokens."""


def token_look(app: App[Any], kind: str) -> str:
    """The style of a kind of token in the theme of now."""
    if kind == NGRAM_KIND:
        return "bold underline $token-accepted"
    if kind == GUESSED:
        return f"{'dim ' if app.no_color else ''}$token-accepted"
    style = app.theme_variables[f"token-{kind}-style"]
    return f"{'' if style == 'none' else style} $token-{kind}"


class Legend(Widget):
    """One line that names the kinds of tokens, each in its own style."""

    DEFAULT_CSS = """
    Legend {
        width: auto;
        padding: 0 1;
        height: 1;
        color: $foreground-muted;
    }
    """

    are_rejected_known: reactive[bool] = reactive(True, layout=True)
    """Whether the engine reports the rejected tokens."""
    no_origins: reactive[str] = reactive("", layout=True)
    """Why the origins of tokens are unknown; empty if they are known."""

    def render(self) -> Content:
        if self.no_origins:
            return Content(self.no_origins)
        accepted, *others = TOKEN_KINDS
        return Content(" · ").join(self._named(kind) for kind in (accepted, NGRAM_KIND, *others))

    def _named(self, kind: str) -> Content:
        if kind == REJECTED and not self.are_rejected_known:
            return Content(f"{kind}: not reported")
        return Content.styled(kind, token_look(self.app, kind))
