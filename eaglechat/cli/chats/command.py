"""List the chats on this machine, or find words in them."""

from __future__ import annotations

import argparse
import datetime
import json
import re
from collections.abc import Sequence
from typing import Any

from eaglechat import paths
from eaglechat.chat.history.folder import ChatFolder, Hit
from eaglechat.chat.history.listing import ChatSummary
from eaglechat.cli.progress import Progress
from eaglechat.cli.status import OK, complain
from eaglechat.words.failures import unreadable

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--find",
        metavar="WORDS",
        help='only chats whose title has these words, and passages that have them; "a phrase"',
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    folder = ChatFolder(paths.chats_dir())
    chats = [*folder.listed()][-1]
    found: list[Hit] = []
    if args.find is not None:
        wanted = args.find.casefold().replace('"', " ").split()
        chats = [chat for chat in chats if all(word in chat.title.casefold() for word in wanted)]
        _read(folder)
        found = folder.find(args.find) or []
    if args.json:
        document = {"chats": [*map(_chat, chats)]}
        if args.find is not None:
            document["passages"] = [*map(_passage, found)]
        print(json.dumps(document, indent=2))
    else:
        _print(chats, found)
        if not chats and not found:
            complain("nothing found" if args.find else f"no chats in {folder.directory} yet")
    return OK


def _read(folder: ChatFolder) -> None:
    """Read the chats, with a bar if it takes a while."""
    bars = Progress(vanish=True)
    try:
        for progress in folder.read():
            if progress.total > 1:
                bars.show("Reading the chats", progress.done, progress.total)
    finally:
        bars.close()


def _print(chats: Sequence[ChatSummary], found: Sequence[Hit]) -> None:
    for chat in chats:
        pinned = "* " if chat.pinned else "  "
        print(f"{pinned}{chat.file.stem}  {_when(chat):%Y-%m-%d %H:%M}  {_plain(_title(chat))}")
    for hit in found:
        thought = "reasoning: " if hit.is_thought else ""
        print(f"  {hit.chat.file.stem}  {_plain(_title(hit.chat))}")
        print(f"      {thought}{_plain(hit.excerpt.text)}")


def _title(chat: ChatSummary) -> str:
    problem = _problem(chat)
    return f"cannot be read: {problem}" if problem else chat.title or "(empty)"


def _problem(chat: ChatSummary) -> str | None:
    return unreadable(chat.problem) if chat.problem else None


def _plain(text: str) -> str:
    """A text that does nothing to the terminal."""
    return _UNSAFE.sub("\ufffd", text)


def _when(chat: ChatSummary) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(chat.used).astimezone()


def _chat(chat: ChatSummary) -> dict[str, Any]:
    header = chat.header
    return {
        "name": chat.file.stem,
        "file": str(chat.file),
        "title": chat.title,
        "pinned": chat.pinned,
        "pair": header.pair if header else None,
        "created": header.created if header else None,
        "used": _when(chat).isoformat(timespec="seconds"),
        "messages": chat.messages,
        "size_bytes": chat.stamp[0],
        "problem": _problem(chat),
    }


def _passage(hit: Hit) -> dict[str, Any]:
    return {
        "chat": hit.chat.file.stem,
        "title": hit.chat.title,
        "turn": hit.turn,
        "reasoning": hit.is_thought,
        "text": hit.excerpt.text,
        "marks": hit.excerpt.marks,
    }
