"""Export a chat as Markdown, JSON or a page that shows what speculation did."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from eaglechat import paths
from eaglechat.chat.history.folder import ChatFolder
from eaglechat.chat.history.lines import ChatFormatError
from eaglechat.chat.history.saved_chat import read_chat
from eaglechat.cli.status import OK, CommandError
from eaglechat.tui.export.chat import exported
from eaglechat.tui.export.formats import render, write
from eaglechat.words import failures

_FORMATS = ("markdown", "json", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "chat",
        metavar="CHAT",
        help="its name in `eaglechat chats`, or the beginning of it; its title; its file; or "
        "last, the one used last",
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
    try:
        chat = exported(read_chat(_file_of(args.chat)), with_reasoning=args.reasoning)
    except (OSError, ChatFormatError) as error:
        raise CommandError(f"{args.chat} cannot be read: {failures.why(error)}") from error
    if args.output is None:
        sys.stdout.flush()
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as stream:
            stream.write(render(chat, args.format))
        return OK
    try:
        write(args.output, chat, args.format)
    except OSError as error:
        why = error.strerror or error
        raise CommandError(f"{args.output} cannot be written: {why}") from error
    return OK


def _file_of(name: str) -> Path:
    """The file of a chat. Raises CommandError."""
    if Path(name).is_file():
        return Path(name)
    chats = [chat for chat in [*ChatFolder(paths.chats_dir()).listed()][-1] if not chat.problem]
    if name == "last":
        fitting = [max(chats, key=lambda chat: chat.used)] if chats else []
    else:
        fitting = [chat for chat in chats if chat.title.casefold() == name.casefold()]
        fitting = fitting or [chat for chat in chats if chat.file.stem.startswith(name)]
    if not fitting:
        raise CommandError(f"there is no chat {name!r}; `eaglechat chats` lists them")
    if len(fitting) > 1:
        names = ", ".join(chat.file.stem for chat in fitting[:5])
        raise CommandError(f"{name!r} may be {len(fitting)} chats; give the name of one: {names}")
    return fitting[0].file
