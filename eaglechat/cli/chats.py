"""List the chats on this machine, or find words in them."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

from eaglechat import paths
from eaglechat.chat.older import take_over
from eaglechat.chat.store import ChatStore, ChatSummary, Hit
from eaglechat.cli.progress import Progress
from eaglechat.cli.status import OK, complain
from eaglechat.words.neutral import neutralise_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--find",
        metavar="WORDS",
        help='only chats whose title has these words, and passages that have them; "a phrase"',
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    store = chat_store()
    chats = store.listed()
    found: list[Hit] = []
    if args.find is not None:
        wanted = args.find.casefold().replace('"', " ").split()
        chats = [chat for chat in chats if all(word in chat.title.casefold() for word in wanted)]
        found = store.find(args.find)
    if args.json:
        document = {"chats": [*map(_chat, chats)]}
        if args.find is not None:
            document["passages"] = [*map(_passage, found)]
        print(json.dumps(document, indent=2))
    else:
        _print(chats, found)
        if not chats and not found:
            complain("nothing found" if args.find else f"no chats in {store.file} yet")
    return OK


def chat_store() -> ChatStore:
    """The user's chats, with those of earlier versions."""
    store = ChatStore(paths.chats_file(), complain)
    try:
        with closing(Progress(vanish=True)) as bars:
            take_over(store, partial(bars.show, "Taking over chats"))
    except OSError as error:
        complain(f"chats of an earlier version cannot be taken over: {error}")
    return store


def _print(chats: Sequence[ChatSummary], found: Sequence[Hit]) -> None:
    for chat in chats:
        pinned = "* " if chat.pinned else "  "
        print(f"{pinned}{chat.name}  {_when(chat):%Y-%m-%d %H:%M}  {neutralise_line(chat.title)}")
    for hit in found:
        thought = "reasoning: " if hit.is_thought else ""
        print(f"  {hit.chat.name}  {neutralise_line(hit.chat.title)}")
        print(f"      {thought}{neutralise_line(hit.text)}")


def _when(chat: ChatSummary) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(chat.used).astimezone()


def _chat(chat: ChatSummary) -> dict[str, Any]:
    return {
        "name": chat.name,
        "title": chat.title,
        "pinned": chat.pinned,
        "pair": chat.header.pair,
        "created": chat.header.created,
        "used": _when(chat).isoformat(timespec="seconds"),
        "messages": chat.messages,
    }


def _passage(hit: Hit) -> dict[str, Any]:
    return {
        "chat": hit.chat.name,
        "title": hit.chat.title,
        "turn": hit.turn,
        "reasoning": hit.is_thought,
        "text": hit.text,
        "marks": hit.marks,
    }
