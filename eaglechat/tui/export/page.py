"""A chat as one HTML file: every token has the colour of its origin, and a checkbox shows the
rejected ones. The file loads nothing from the network and runs no script."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import escape
from typing import Any

from eaglechat import paths
from eaglechat.chat.recording import Recording
from eaglechat.chat.turns import Reply
from eaglechat.tui.export.chat import ExportedChat, numbers
from eaglechat.wire.records import DraftToken, Part, Round
from eaglechat.words.wording import KINDS_OF_TOKENS, VISIBLE_WHITESPACE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_STYLES = {
    "bold": "font-weight: bold",
    "italic": "font-style: italic",
    "underline": "text-decoration: underline",
    "overline": "text-decoration: overline",
    "strike": "text-decoration: line-through",
    "dim": "opacity: 0.75",
}
"""The CSS for each style flag of a theme's tokens."""

_HEAD = """<!DOCTYPE html>
<html lang="und">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ margin: 0 auto; max-width: 50rem; padding: 1rem }}
body {{ font-family: sans-serif; line-height: 1.5 }}
.text {{ white-space: pre-wrap; overflow-wrap: anywhere; font-family: ui-monospace, monospace }}
.you {{ padding: 0.5rem 1rem }}
.numbers, .about {{ font-size: 0.85rem; opacity: 0.85 }}
.text .rejected {{ display: none }}
#rejected:checked ~ main .rejected {{ display: inline }}
{colours}</style>
</head>
<body>
"""


def page(chat: ExportedChat) -> str:
    """The page. It is light or dark as the reader's system asks."""
    colours = _rules("eagle-light")
    colours += f"@media (prefers-color-scheme: dark) {{\n{_rules('eagle-dark')}}}\n"
    head = _HEAD.format(title=_escaped(chat.title), colours=colours)
    return head + "".join(_body(chat)) + "</main>\n</body>\n</html>\n"


def _rules(theme: str) -> str:
    """The style rules for the colours of a shipped theme."""
    raw: dict[str, Any] = tomllib.loads(
        (paths.builtin_themes_dir() / f"{theme}.toml").read_text("utf-8")
    )
    rules = f"body {{ background: {raw['background']}; color: {raw['foreground']} }}\n"
    rules += f".you {{ background: {raw['surface']} }}\n"
    rules += f"h1, h2, summary {{ color: {raw['primary']} }}\n"
    for kind, token in raw["tokens"].items():
        styles = [f"color: {token['colour']}", *(_STYLES[flag] for flag in token["style"])]
        rules += f".{kind} {{ {'; '.join(styles)} }}\n"
    return rules


def _body(chat: ExportedChat) -> Iterator[str]:
    yield f"<h1>{_escaped(chat.title)}</h1>\n"
    yield f'<p class="about">{_escaped(chat.about)}</p>\n<ul class="about">\n'
    for kind, meaning in KINDS_OF_TOKENS:
        yield f'<li><span class="{kind}">{kind}</span>: {meaning}</li>\n'
    yield '</ul>\n<input type="checkbox" id="rejected">'
    yield '<label for="rejected"> show rejected tokens</label>\n<main>\n'
    for question, reply in chat.exchanges:
        yield _heading("You", chat.place_of(question))
        yield f'<div class="text you">{_escaped(question.text)}</div>\n'
        if reply is not None:
            yield from _answer(chat, reply)


def _answer(chat: ExportedChat, reply: Reply) -> Iterator[str]:
    recording = reply.recording
    yield _heading(chat.writer_of(reply), chat.place_of(reply))
    if chat.with_reasoning and reply.reasoning:
        yield f"<details><summary>Reasoning</summary>{_text(recording, Part.REASONING)}</details>\n"
    yield _text(recording, Part.ANSWER)
    if said := numbers(recording):
        yield f'<p class="numbers">{_escaped(said)}</p>\n'


def _heading(who: str, place: str) -> str:
    return f"<h2>{_escaped(who)}{f' ({place})' if place else ''}</h2>\n"


def _text(recording: Recording, part: Part) -> str:
    """The text of a part, token by token as far as the tokens are known."""
    whole = recording.reasoning if part is Part.REASONING else recording.text
    shown = "".join(token for round_ in recording.rounds for token in _tokens(round_, part))
    written = "".join(t.text for r in recording.rounds for t in r.tokens if t.part is part)
    return f'<div class="text">{shown}{_escaped(whole[len(written) :])}</div>\n'


def _tokens(round_: Round, part: Part) -> Iterator[str]:
    """The tokens that a round has in a part, each as a `span` whose class is its kind."""
    for token in round_.tokens_and_rejected(part):
        if not token.text:
            continue
        if isinstance(token, DraftToken):
            text, kind = token.text.translate(VISIBLE_WHITESPACE), "rejected"
        else:
            text, kind = token.text, token.origin.value
        yield f'<span class="{kind}">{_escaped(text)}</span>'


def _escaped(text: str) -> str:
    """A text escaped for HTML. Characters that UTF-8 cannot encode become question marks."""
    return escape(text).replace("\0", "\ufffd").encode("utf-8", "replace").decode()
