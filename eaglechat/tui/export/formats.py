"""The formats of an exported chat, and the file it is written to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from eaglechat.paths import write_atomically
from eaglechat.tui.export.chat import ExportedChat
from eaglechat.tui.export.json_tree import tree
from eaglechat.tui.export.markdown import markdown
from eaglechat.tui.export.page import page

Format = Literal["markdown", "json", "html"]
SUFFIXES: dict[Format, str] = {"markdown": ".md", "json": ".json", "html": ".html"}
_LONGEST_NAME = 60
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)")


def render(chat: ExportedChat, format: Format) -> bytes:
    if format == "json":
        text = tree(chat)
    elif format == "html":
        text = page(chat)
    else:
        text = markdown(chat)
    return text.encode("utf-8", "replace")


def file_name(title: str, format: Format) -> str:
    """A file name made from the title that every operating system accepts."""
    words = re.sub(r"[^\w\- ]+", " ", title).split()
    name = "-".join(words)[:_LONGEST_NAME].strip("-_") or "chat"
    return ("chat-" if _RESERVED.fullmatch(name) else "") + name + SUFFIXES[format]


def free_file(folder: Path, title: str, format: Format) -> Path:
    """A path in the folder, named after the chat, at which no file exists yet."""
    file = folder / file_name(title, format)
    number = 2
    while file.exists():
        file = folder / f"{Path(file_name(title, format)).stem}-{number}{SUFFIXES[format]}"
        number += 1
    return file


def write(file: Path, chat: ExportedChat, format: Format) -> None:
    """Export a chat to a file and replace the file if it exists. Raises OSError."""
    write_atomically(file, render(chat, format))
