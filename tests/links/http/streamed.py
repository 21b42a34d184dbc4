"""A reply of a kind of server, from the chunks of its stream."""

from __future__ import annotations

from typing import Any

from eaglechat.links.http.chunks import Chunk
from eaglechat.links.http.openai import OpenAIServer
from eaglechat.links.http.reply import Reply
from eaglechat.wire import protocol as p
from eaglechat.wire.records import Round, Token
from tests.links.engines import chat


class Streamed:
    """What a client is told of it."""

    def __init__(self, kind: OpenAIServer) -> None:
        self.events: list[p.AnyEvent] = []
        self.reply = Reply(kind, chat(), self.events.append)
        self.text = ""
        """What was sent."""

    def send(self, *chunks: dict[str, Any]) -> Streamed:
        for one in chunks:
            chunk = Chunk(one)
            self.text += "".join(text for _, text in chunk.pieces)
            self.reply.take(chunk)
        return self

    def end(self) -> p.Done:
        self.reply.flush()
        return self.reply.done(1, 0, is_cancelled=False)

    @property
    def rounds(self) -> list[Round]:
        steps = [event.step for event in self.events if isinstance(event, p.Progress)]
        return [step for step in steps if isinstance(step, Round)]

    @property
    def tokens(self) -> list[Token]:
        return [token for round_ in self.rounds for token in round_.tokens]


def said(text: str, **more: Any) -> dict[str, Any]:
    """A chunk with a text."""
    return {"choices": [{"delta": {"content": text}}], **more}
