"""Export a chat as Markdown, JSON or a page that shows what speculation did."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from eaglechat.chat.store import ChatStore
from eaglechat.cli.chats import chat_store
from eaglechat.cli.status import OK, CommandError
from eaglechat.paths import write_atomically
from eaglechat.words import wording
from eaglechat.words.export import render

_FORMATS = ("markdown", "json", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "chat",
        metavar="CHAT",
        help="its name in `eaglechat chats`, or the beginning of it; its title; or last, the "
        "one used last",
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default="markdown",
        help="markdown: to read; json: every branch with its rounds; html: the colours of the "
        "tokens (default: %(default)s)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write to this file instead of standard output",
    )
    parser.add_argument("--reasoning", action="store_true", help="include the reasoning")


def run(args: argparse.Namespace) -> int:
    store = chat_store()
    name = _name_of(args.chat, store)
    try:
        content = render(store.read(name), args.format, with_reasoning=args.reasoning)
    except OSError as error:
        raise CommandError(f"{args.chat} cannot be read: {wording.why(error)}") from error
    if args.output is None:
        sys.stdout.flush()
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as stream:
            stream.write(content)
        return OK
    try:
        write_atomically(args.output, content)
    except OSError as error:
        why = error.strerror or error
        raise CommandError(f"{args.output} cannot be written: {why}") from error
    return OK


def _name_of(name: str, store: ChatStore) -> str:
    """The name of the chat that was meant. Raises CommandError."""
    chats = store.listed()
    if name == "last":
        fitting = [max(chats, key=lambda chat: chat.used)] if chats else []
    else:
        fitting = [chat for chat in chats if chat.title.casefold() == name.casefold()]
        fitting = fitting or [chat for chat in chats if chat.name.startswith(name)]
    if not fitting:
        raise CommandError(f"there is no chat {name!r}; `eaglechat chats` lists them")
    if len(fitting) > 1:
        names = ", ".join(chat.name for chat in fitting[:5])
        raise CommandError(f"{name!r} may be {len(fitting)} chats; give the name of one: {names}")
    return fitting[0].name
