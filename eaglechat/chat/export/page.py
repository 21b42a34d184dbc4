"""A chat as one HTML file that shows what speculation did: every token in the colour of where it
came from, rejected ones on demand. It asks nothing of the network and runs no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from eaglechat.chat.conversation.turns import Reply
from eaglechat.chat.export.looks import Look, style_sheet
from eaglechat.chat.export.reading import ExportedChat, numbers
from eaglechat.chat.recording import Recording
from eaglechat.wire.records import Origin, Part, Round

_LEGEND = (
    (Origin.ACCEPTED.value, "drafted, and accepted by the target"),
    (Origin.CORRECTION.value, "the target's own token in place of a rejected one"),
    (Origin.BONUS.value, "the target's extra token, after a fully accepted draft"),
    (Origin.PLAIN.value, "decoded without a draft"),
    ("rejected", "drafted, and rejected by the target"),
)
_SEEN_WHITESPACE = str.maketrans({"\n": "↵", "\t": "⇥"})
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
{look}</style>
</head>
<body>
"""


def page(chat: ExportedChat, looks: Sequence[Look]) -> str:
    """The page, in one look, or in a light and a dark one."""
    head = _HEAD.format(title=_escaped(chat.title), look=style_sheet(looks))
    return head + "".join(_body(chat)) + "</main>\n</body>\n</html>\n"


def _body(chat: ExportedChat) -> Iterator[str]:
    header = chat.header
    yield f"<h1>{_escaped(chat.title)}</h1>\n"
    about = f"{header.created[:16].replace('T', ' ')}, {header.pair}"
    yield f'<p class="about">{_escaped(about)}</p>\n<ul class="about">\n'
    for kind, meaning in _LEGEND:
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
    yield _heading(recording.terms.pair or chat.header.pair, chat.place_of(reply))
    if chat.with_reasoning and reply.reasoning:
        yield f"<details><summary>Reasoning</summary>{_text(recording, Part.REASONING)}</details>\n"
    yield _text(recording, Part.ANSWER)
    if said := numbers(recording):
        yield f'<p class="numbers">{_escaped(said)}</p>\n'
    for comparison in chat.turns.comparisons(reply.id):
        plain = numbers(comparison.recording)
        yield f'<p class="numbers">Without speculation: {_escaped(plain)}</p>\n'


def _heading(who: str, place: str) -> str:
    return f"<h2>{_escaped(who)}{f' ({place})' if place else ''}</h2>\n"


def _text(recording: Recording, part: Part) -> str:
    """What was written in a part, token by token where they are known."""
    whole = recording.reasoning if part is Part.REASONING else recording.text
    shown = "".join(token for round_ in recording.rounds for token in _tokens(round_, part))
    written = "".join(t.text for r in recording.rounds for t in r.tokens if t.part is part)
    return f'<div class="text">{shown}{_escaped(whole[len(written) :])}</div>\n'


def _tokens(round_: Round, part: Part) -> Iterator[str]:
    """A round's tokens of a part, the rejected one in front of what the target said instead."""
    rejected = round_.rejected
    for token in round_.tokens:
        if token.part is not part:
            rejected = None if token.origin is Origin.CORRECTION else rejected
        else:
            if token.origin is Origin.CORRECTION and rejected is not None and rejected.text:
                seen = _escaped(rejected.text.translate(_SEEN_WHITESPACE))
                yield f'<span class="rejected">{seen}</span>'
            if token.text:
                yield f'<span class="{token.origin.value}">{_escaped(token.text)}</span>'


def _escaped(text: str) -> str:
    """A text that is only text in a page; what UTF-8 cannot write becomes a question mark."""
    return escape(text).replace("\0", "\ufffd").encode("utf-8", "replace").decode()
