"""The theme's style for each kind of token, and the legend that explains the styles."""

from __future__ import annotations

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from eaglechat.tui.themes import REJECTED, TOKEN_KINDS

NGRAM_KIND = "n-gram"
"""The kind of accepted tokens that n-grams drafted: drawn as accepted and underlined."""
GUESSED = "guessed"
"""The kind of text that a drafter guessed, in the live view: in the colour of accepted tokens."""
TOKEN_CLASSES = {f"token--{kind}" for kind in (*TOKEN_KINDS, NGRAM_KIND, GUESSED)}
"""The component classes of a widget that draws tokens."""


def token_css(widget: str) -> str:
    """The styles of TOKEN_CLASSES in widgets of this type."""
    own = "\n".join(
        f"{widget} > .token--{kind} {{ color: $token-{kind}; text-style: $token-{kind}-style; }}"
        for kind in TOKEN_KINDS
    )
    return f"""{own}
    {widget} > .token--{NGRAM_KIND} {{ color: $token-accepted; text-style: bold underline; }}
    {widget} > .token--{GUESSED} {{ color: $token-accepted; text-style: none; }}
    {widget}:nocolor > .token--{GUESSED} {{ text-style: dim; }}
    """


class Legend(Widget):
    """One line that names the kinds of tokens, each in its own style."""

    COMPONENT_CLASSES = TOKEN_CLASSES
    DEFAULT_CSS = f"""
    Legend {{
        width: auto;
        padding: 0 1;
        height: 1;
        color: $text-muted;
    }}
    {token_css("Legend")}
    """

    are_rejected_known: reactive[bool] = reactive(True, layout=True)
    """Whether the engine reports the rejected tokens."""
    no_origins: reactive[str] = reactive("", layout=True)
    """Why the origins of tokens are unknown; empty if they are known."""

    def render(self) -> Text:
        if self.no_origins:
            return Text(self.no_origins)
        accepted, *others = TOKEN_KINDS
        return Text(" · ").join(self._named(kind) for kind in (accepted, NGRAM_KIND, *others))

    def _named(self, kind: str) -> Text:
        if kind == REJECTED and not self.are_rejected_known:
            return Text(f"{kind}: not reported")
        return Text(kind, self.get_component_rich_style(f"token--{kind}", partial=True))
