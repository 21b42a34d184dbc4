"""Files of chats for tests: logs that complain into a list, and lines as version 1 wrote them."""

from __future__ import annotations

import json
from pathlib import Path

from eaglechat.chat.history.log import ChatLog, new_log, resumed_log
from eaglechat.chat.history.reading import SavedChat
from eaglechat.hub.local.pair import Pair

PAIR = Pair("pair", Path("/t.gguf"), Path("/d.gguf"), "files")


class Complaints(list[str]):
    """What a log could not write."""

    def __call__(self, sentence: str) -> None:
        self.append(sentence)


def fresh(directory: Path, complaints: Complaints | None = None) -> ChatLog:
    return new_log(directory, PAIR, complaints if complaints is not None else Complaints())


def resumed(chat: SavedChat, complaints: Complaints | None = None) -> ChatLog:
    return resumed_log(chat, complaints if complaints is not None else Complaints())


def write_first_version(file: Path, *lines: dict[str, object]) -> Path:
    """A chat as version 1 wrote it: messages, pieces of a reply, what was taken back."""
    header = {
        "type": "chat",
        "created": "2026-11-21T10:00:00+00:00",
        "pair": "pair",
        "target": "/t.gguf",
        "draft": "/d.gguf",
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (header, *lines))
    file.write_text(text, encoding="utf-8")
    return file


def message(role: str, content: str, **more: object) -> dict[str, object]:
    return {"type": "message", "role": role, "content": content, **more}


def partial(text: str) -> dict[str, object]:
    return {"type": "partial", "text": text}
