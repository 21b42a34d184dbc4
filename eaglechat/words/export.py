"""A chat as a file: as Markdown, as one HTML page, as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

import msgspec
from markdown_it import MarkdownIt
from msgspec.structs import replace

from eaglechat import paths
from eaglechat.chat.recording import Recording
from eaglechat.chat.saved_chat import SavedChat
from eaglechat.chat.turns import Question, Reply, Turn
from eaglechat.wire.records import DraftToken, Part, Round
from eaglechat.words.headline import headline_of
from eaglechat.words.statistics import ENDINGS, speculation_in_json, summary, timings_in_json
from eaglechat.words.wording import KINDS_OF_TOKENS, VISIBLE_WHITESPACE

Format = Literal["markdown", "json", "html"]
SUFFIXES: dict[Format, str] = {"markdown": ".md", "json": ".json", "html": ".html"}
VERSION = 1
"""Of the JSON format."""
_LONGEST_NAME = 60
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)")


def render(chat: SavedChat, format: Format, *, with_reasoning: bool = False) -> bytes:
    """A chat as the content of a file, with or without the reasoning before the answers."""
    as_text = {"markdown": markdown, "json": tree, "html": page}[format]
    return as_text(chat, with_reasoning).encode("utf-8", "replace")


def free_file(folder: Path, title: str, format: Format) -> Path:
    """A path in the folder at which no file exists yet, with a name made from the title that every
    operating system accepts."""
    words = re.sub(r"[^\w\- ]+", " ", title).split()
    name = "-".join(words)[:_LONGEST_NAME].strip("-_") or "chat"
    name = f"chat-{name}" if _RESERVED.fullmatch(name) else name
    endings = chain([""], (f"-{number}" for number in count(2)))
    files = (folder / f"{name}{ending}{SUFFIXES[format]}" for ending in endings)
    return next(file for file in files if not file.exists())


# What all formats say


def _about(chat: SavedChat) -> str:
    return f"{chat.header.created[:16].replace('T', ' ')}, {chat.header.pair}"


def _heading(chat: SavedChat, turn: Turn) -> tuple[str, str]:
    """Who wrote a turn, and its number among its siblings: ` (2 of 3)`, empty if it has none."""
    who = "You"
    if isinstance(turn, Reply):
        who = turn.recording.terms.pair or chat.header.pair
    place = chat.turns.place(turn.id)
    return who, f" ({place[0]} of {place[1]})" if place else ""


def _numbers(turn: Turn) -> str:
    """The numbers of a reply in one line; empty if only its text is known."""
    if isinstance(turn, Question):
        return ""
    end = turn.recording.end
    parts = summary(turn.recording.measured, is_over=end is not None)
    if end is not None and end.finish_reason in ENDINGS:
        parts.append(ENDINGS[end.finish_reason])
    return ", ".join(parts)


# Markdown


def markdown(chat: SavedChat, with_reasoning: bool = False) -> str:
    blocks = [f"# {chat.heading}", _about(chat)]
    for turn in chat.turns.path:
        who, place = _heading(chat, turn)
        blocks += ["---"] if isinstance(turn, Question) else []
        blocks.append(f"**{who}**{place}")
        if with_reasoning and turn.reasoning:
            thought = closed(turn.reasoning)
            blocks.append(f"<details><summary>Reasoning</summary>\n\n{thought}\n\n</details>")
        blocks.append(closed(turn.text))
        if said := _numbers(turn):
            blocks.append(f"*{said}*")
    return "\n\n".join(blocks) + "\n"


def closed(text: str) -> str:
    """The text with its last code block closed. An answer that was cut off leaves it open, and the
    rest of the file would become part of it."""
    text = text.strip()
    blocks = MarkdownIt().parse(text)
    if not blocks or blocks[-1].type != "fence":
        return text
    ended = f"{text}\n{blocks[-1].markup}"
    # Behind a block that is closed, its marks begin another one.
    return ended if len(MarkdownIt().parse(ended)) == len(blocks) else text


# HTML

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


def page(chat: SavedChat, with_reasoning: bool = False) -> str:
    """One HTML file, light or dark as the reader's system asks: every token has the colour of its
    origin, and a checkbox shows the rejected ones. It loads nothing from the network and runs no
    script."""
    colours = _rules("eagle-light")
    colours += f"@media (prefers-color-scheme: dark) {{\n{_rules('eagle-dark')}}}\n"
    head = _HEAD.format(title=_escaped(chat.heading), colours=colours)
    return head + "".join(_body(chat, with_reasoning)) + "</main>\n</body>\n</html>\n"


def _rules(theme: str) -> str:
    """The style rules for the colours of a shipped theme."""
    raw: dict[str, Any] = msgspec.toml.decode(
        (paths.builtin_themes_dir() / f"{theme}.toml").read_text("utf-8")
    )
    rules = f"body {{ background: {raw['background']}; color: {raw['foreground']} }}\n"
    rules += f".you {{ background: {raw['surface']} }}\n"
    rules += f"h1, h2, summary {{ color: {raw['primary']} }}\n"
    for kind, token in raw["tokens"].items():
        styles = [f"color: {token['colour']}", *(_STYLES[flag] for flag in token["style"])]
        rules += f".{kind} {{ {'; '.join(styles)} }}\n"
    return rules


def _body(chat: SavedChat, with_reasoning: bool) -> Iterator[str]:
    yield f"<h1>{_escaped(chat.heading)}</h1>\n"
    yield f'<p class="about">{_escaped(_about(chat))}</p>\n<ul class="about">\n'
    for kind, meaning in KINDS_OF_TOKENS:
        yield f'<li><span class="{kind}">{kind}</span>: {meaning}</li>\n'
    yield '</ul>\n<input type="checkbox" id="rejected">'
    yield '<label for="rejected"> show rejected tokens</label>\n<main>\n'
    for turn in chat.turns.path:
        yield f"<h2>{_escaped(''.join(_heading(chat, turn)))}</h2>\n"
        if isinstance(turn, Question):
            yield f'<div class="text you">{_escaped(turn.text)}</div>\n'
            continue
        if with_reasoning and turn.reasoning:
            thought = _text(turn.recording, Part.REASONING)
            yield f"<details><summary>Reasoning</summary>{thought}</details>\n"
        yield _text(turn.recording, Part.ANSWER)
        if said := _numbers(turn):
            yield f'<p class="numbers">{_escaped(said)}</p>\n'


def _text(recording: Recording, part: Part) -> str:
    """The text of a part, token by token as far as the tokens are known."""
    whole = recording.reasoning if part is Part.REASONING else recording.text
    shown = "".join(token for round_ in recording.rounds for token in _tokens(round_, part))
    tail = whole[len(recording.written(part)) :]
    return f'<div class="text">{shown}{_escaped(tail)}</div>\n'


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


# JSON


def tree(chat: SavedChat, with_reasoning: bool = False) -> str:
    """The JSON object that docs/chatting.md describes."""
    chosen = {turn.id for turn in chat.turns.path}
    header = chat.header
    turns = []
    for turn in chat.turns:
        about = {"id": turn.id, "parent": turn.parent, "role": turn.role}
        said: dict[str, Any] = {"text": turn.text}
        if isinstance(turn, Reply):
            said = _recorded(turn.recording, with_reasoning)
        turns.append({**about, "chosen": turn.id in chosen, **said})
    document = {
        "format": "eaglechat",
        "version": VERSION,
        "title": chat.heading,
        "created": header.created,
        "pair": header.pair,
        "target": header.target,
        "draft": header.draft,
        "turns": turns,
    }
    # A lone UTF-16 surrogate cannot be encoded; escaped, JSON allows it.
    return json.dumps(document, indent=2, ensure_ascii=True, default=msgspec.to_builtins) + "\n"


def _recorded(recording: Recording, with_reasoning: bool) -> dict[str, Any]:
    rounds = recording.rounds if with_reasoning else map(_answered, recording.rounds)
    thought = {"reasoning": recording.reasoning} if with_reasoning else {}
    end = recording.end
    if end is not None and not with_reasoning and end.tail_part is Part.REASONING:
        end = replace(end, tail="")
    return {
        "text": recording.text,
        **thought,
        "terms": recording.terms,
        "end": end,
        "stats": {**speculation_in_json(recording.stats), **timings_in_json(recording.measured)},
        "against_plain": headline_of(recording).in_json(),
        "rounds": [round_ for round_ in rounds if round_ is not None],
    }


def _answered(round_: Round) -> Round | None:
    """A round with only its tokens of the answer; None if it has none. If it has tokens of the
    reasoning too, its draft is left out, because that shows some of the reasoning."""
    tokens = tuple(token for token in round_.tokens if token.part is Part.ANSWER)
    if len(tokens) == len(round_.tokens):
        return round_
    return replace(round_, tokens=tokens, drafted=(), given=(), likely=()) if tokens else None
