"""How each kind of token looks, from the theme; and the legend that explains it."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from eaglechat.tui.themes import TOKEN_KINDS


class TokenStyled(Widget):
    """A widget with a component class `token--<kind>` for each kind of token."""

    COMPONENT_CLASSES = {f"token--{kind}" for kind in TOKEN_KINDS}
    DEFAULT_CSS = "\n".join(
        f"TokenStyled > .token--{kind} {{ color: $token-{kind}; text-style: $token-{kind}-style; }}"
        for kind in TOKEN_KINDS
    )


class Legend(TokenStyled):
    """One line that names the kinds of tokens, each in its own style."""

    DEFAULT_CSS = """
    Legend {
        width: auto;
        padding: 0 1;
        height: 1;
        color: $text-muted;
    }
    """

    def render(self) -> Text:
        return Text(" · ").join(
            Text(kind, self.get_component_rich_style(f"token--{kind}", partial=True))
            for kind in TOKEN_KINDS
        )
