"""A chat as Markdown: the turns of the chosen path."""

from __future__ import annotations

import re
from collections.abc import Iterator

from eaglechat.chat.turns import Reply
from eaglechat.tui.export.chat import ExportedChat, numbers

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def markdown(chat: ExportedChat) -> str:
    return "\n\n".join(_blocks(chat)) + "\n"


def _blocks(chat: ExportedChat) -> Iterator[str]:
    yield f"# {chat.title}"
    yield chat.about
    for question, reply in chat.exchanges:
        yield "---"
        yield f"**You**{_place(chat.place_of(question))}"
        yield closed(question.text)
        if reply is not None:
            yield from _answer(chat, reply)


def _answer(chat: ExportedChat, reply: Reply) -> Iterator[str]:
    yield f"**{chat.writer_of(reply)}**{_place(chat.place_of(reply))}"
    if chat.with_reasoning and reply.reasoning:
        yield f"<details><summary>Reasoning</summary>\n\n{closed(reply.reasoning)}\n\n</details>"
    yield closed(reply.text)
    if said := numbers(reply.recording):
        yield f"*{said}*"


def _place(place: str) -> str:
    return f" ({place})" if place else ""


def closed(text: str) -> str:
    """The text with its last code block closed. An answer that was cut off leaves it open, and the
    rest of the file would become part of it."""
    fence = ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if found is None:
            continue
        if not fence:
            # Code in backticks within a line does not open a block.
            fence = found[1] if found[1][0] == "~" or "`" not in found[2] else ""
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return f"{text.strip()}\n{fence}" if fence else text.strip()
