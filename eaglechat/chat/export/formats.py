"""The formats a chat can be exported in, and the file it goes to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from eaglechat.chat.export.looks import Look, shipped
from eaglechat.chat.export.markdown import markdown
from eaglechat.chat.export.page import page
from eaglechat.chat.export.reading import ExportedChat
from eaglechat.chat.export.tree import tree
from eaglechat.paths import write_atomically

Format = Literal["markdown", "json", "html"]
SUFFIXES: dict[Format, str] = {"markdown": ".md", "json": ".json", "html": ".html"}
_LONGEST_NAME = 60
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)")


def render(chat: ExportedChat, format: Format, looks: Sequence[Look] = ()) -> bytes:
    """The chat in a format; without looks a page follows its reader's system, light or dark."""
    if format == "json":
        text = tree(chat)
    elif format == "html":
        text = page(chat, looks or (shipped("eagle-light"), shipped("eagle-dark")))
    else:
        text = markdown(chat)
    return text.encode("utf-8", "replace")


def file_name(title: str, format: Format) -> str:
    """A name for the file that every system takes."""
    words = re.sub(r"[^\w\- ]+", " ", title).split()
    name = "-".join(words)[:_LONGEST_NAME].strip("-_") or "chat"
    return ("chat-" if _RESERVED.fullmatch(name) else "") + name + SUFFIXES[format]


def free_file(folder: Path, title: str, format: Format) -> Path:
    """A file that is not there yet, named after the chat."""
    file = folder / file_name(title, format)
    number = 2
    while file.exists():
        file = folder / f"{Path(file_name(title, format)).stem}-{number}{SUFFIXES[format]}"
        number += 1
    return file


def write(file: Path, chat: ExportedChat, format: Format, looks: Sequence[Look] = ()) -> None:
    """Export a chat to a file, which is replaced if it is there. Raises OSError."""
    write_atomically(file, render(chat, format, looks))
