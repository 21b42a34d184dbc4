"""Answers to requests about one conversation: a reply, round by round, or the prompt it reads."""

from __future__ import annotations

from collections.abc import Callable

from eaglechat.engine.generation.live import Live
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.wire.errors import PromptCancelledError
from eaglechat.wire.protocol import (
    AnyEvent,
    Chat,
    Done,
    PrefillProgress,
    Render,
    Rendered,
    RoundDone,
    SpeculationStopped,
    WindowMoved,
)
from eaglechat.wire.records import Prefill, ReplyEnd, Round, SpeculationOff, Window, unbegun
from eaglechat.wire.stats import StatsFold

ReplyRecord = Prefill | Window | Round | SpeculationOff | ReplyEnd


class ChatJob:
    """Answers one `chat` request on a loaded pair: a Done ends its events."""

    def __init__(
        self,
        request: Chat,
        live: Live,
        cancelled: Callable[[], bool],
        send: Callable[[AnyEvent], None],
    ) -> None:
        self._request = request
        self._live = live
        self._cancelled = cancelled
        self._send = send
        self._fold = StatsFold()

    def run(self, pair: LoadedPair) -> None:
        """Raises EngineError."""
        request, reply = self._request, list[int]()
        asked = (request.messages, request.thinking, self._cancelled)
        try:
            prompt = pair.prompter.prompt(*asked, begun=request.begun)
            turns = pair.prompter.turns(*asked, begun=request.begun)
            for record in pair.generator.reply(
                prompt,
                request.sampling,
                self._live,
                seed=request.sampling.draw_seed(),
                turns=turns,
                boundaries=turns.boundaries,
                max_tokens=request.max_tokens,
                stop=request.stop,
                parts=pair.prompter.parts(request.thinking, request.begun),
                top=request.top,
                cancelled=self._cancelled,
            ):
                if isinstance(record, Round):
                    reply += [*record.given, *(t.id for t in record.tokens if t.id is not None)]
                elif isinstance(record, ReplyEnd):
                    pair.prompter.note_reply(prompt, reply)
                self._tell(record)
        except PromptCancelledError:
            self._tell(unbegun(request.sampling.draw_seed()))

    def _tell(self, record: ReplyRecord) -> None:
        request_id = self._request.id
        if isinstance(record, Round):
            self._fold.add(record)
            self._send(RoundDone(id=request_id, round=record))
        elif isinstance(record, Prefill):
            self._send(PrefillProgress(id=request_id, prefill=record))
        elif isinstance(record, Window):
            self._send(WindowMoved(id=request_id, window=record))
        elif isinstance(record, ReplyEnd):
            self._send(Done(id=request_id, end=record, stats=self._fold.stats()))
        else:
            self._send(SpeculationStopped(id=request_id, off=record))


def rendered(request: Render, pair: LoadedPair, cancelled: Callable[[], bool]) -> Rendered:
    """Answers a `render` request with the prompt that a reply would read.

    Raises PromptError, PromptCancelledError.
    """
    prompter, asked = pair.prompter, (request.messages, request.thinking, cancelled)
    first_turn, tokens = pair.generator.would_read(
        prompter.as_tokens(*asked), prompter.turns(*asked), request.max_tokens
    )
    checkpoints, checkpoint_bytes = pair.generator.checkpoints
    return Rendered(
        id=request.id,
        runs=prompter.runs(tokens),
        tokens=len(tokens),
        first_turn=first_turn,
        checkpoints=checkpoints,
        checkpoint_bytes=checkpoint_bytes,
    )
