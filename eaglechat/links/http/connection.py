"""A conversation with one server over HTTP: find out what it is, choose a model, stream replies.

Everything that waits for the network runs in an event loop, so that a cancelled job closes its
connection at once. The loop runs in the thread that calls, while a job is being answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

import eaglechat
from eaglechat.links.http.client import ServerClient
from eaglechat.links.http.discovery import Found, ServedModel, discover, made_ready, named_model
from eaglechat.links.http.faults import (
    CUT,
    MISSING,
    NOT_UNDERSTOOD,
    REFUSED,
    TOO_LONG,
    ServerError,
    message_in,
    not_understood,
)
from eaglechat.links.http.loop import close_loop, new_loop
from eaglechat.links.http.refused import refused_fields, without
from eaglechat.links.http.servers.base import parted_late
from eaglechat.links.http.servers.chunks import Chunk, ChunkReader
from eaglechat.links.http.servers.openai import OpenAIServer, TextReader
from eaglechat.links.http.window import Answered, ServerWindow
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.errors import Cancelled, NoPairError
from eaglechat.wire.protocol import (
    PROTOCOL_VERSION,
    AnyEvent,
    Chat,
    Done,
    Hello,
    Load,
    Loading,
    PairInfo,
    PrefillProgress,
    PromptRun,
    Render,
    Rendered,
    RoundDone,
    Settled,
    WindowMoved,
)
from eaglechat.wire.records import FinishReason, Prefill, Round
from eaglechat.wire.stats import SpeculationStats, stats_of
from eaglechat.wire.worker import Job

Result = TypeVar("Result")
RETRY_WAITS_S = (0.5, 2.0)
LONGEST_WAIT_S = 20.0
LOADING_WAIT_S = 1.0
_MOST_NAMED = 20
_FILTERED, _FAILED = "content_filter", "error"
_NEARLY = 64
"""A context counts as full this many tokens before its end: a server keeps some for its drafts."""
_PROMPT_FIELDS = (
    "model",
    "messages",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
)
"""The fields of a request for a reply that decide the prompt."""


class _Applied(msgspec.Struct):
    prompt: str


class _Tokenized(msgspec.Struct):
    tokens: list[int]


class StreamedReply:
    """A reply while it streams: tells the client what its reader makes of the chunks."""

    def __init__(self, id: int, reader: TextReader, say: Callable[[AnyEvent], None]) -> None:
        self.reader, self.chunks, self.stats = reader, ChunkReader(), SpeculationStats()
        self._id, self._say = id, say
        self._rounds: list[Round] = []
        """What the client has been told."""
        self.has_begun = False
        """Whether the client has been told some of its text."""
        self.is_whole = False
        """Whether the server has said that it ended."""

    def take(self, chunk: Chunk) -> None:
        self.is_whole = self.is_whole or chunk.is_last
        for record in self.reader.take(chunk):
            self._tell(record)

    def wait(self) -> None:
        """Tell the client that the server has to be waited for."""
        self._say(Loading(id=self._id, stage="server", fraction=0.0))

    def rest(self) -> None:
        """Tell the client what the reader has held back; no more chunks come."""
        for record in self.reader.rest():
            self._tell(record)

    def settle(self) -> None:
        """Tell the client all rounds again if only the end told reasoning from answer."""
        if rounds := parted_late(self._rounds):
            self.stats = stats_of(rounds)
            self._say(Settled(id=self._id, rounds=tuple(rounds)))

    def _tell(self, record: Prefill | Round) -> None:
        if isinstance(record, Prefill):
            self._say(PrefillProgress(id=self._id, prefill=record))
        else:
            self.has_begun = True
            self._rounds.append(record)
            self.stats = self.stats.plus(record)
            self._say(RoundDone(id=self._id, round=record))


class ServerConnection:
    """Answers jobs by asking one server. Use it from one thread; jobs may be cancelled from any."""

    def __init__(self, server: ServerSettings, say: Callable[[AnyEvent], None]) -> None:
        """`say` is told the events of the jobs. Raises AddressError."""
        self._client, self._say = ServerClient(server), say
        self._loop = new_loop()
        self._found: Found | None = None
        self._model: ServedModel | None = None
        self._answered = Answered()
        self._refused: frozenset[str] = frozenset()
        """The optional fields that the server refused."""

    def open(self, job: Job) -> None:
        """Find out what answers; a server that is still loading is waited for.

        Raises ServerError, Cancelled.
        """
        self._client.open()
        self._found = self._until_done(job, self._discovered())

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        close_loop(self._loop)

    @property
    def hello(self) -> Hello:
        """What was found when the server was asked last."""
        assert self._found is not None
        can = self.kind.can
        if self._client.server.plain_model:
            can = msgspec.structs.replace(can, plain=True)
        return Hello(
            protocol=PROTOCOL_VERSION,
            engine=self.kind.name,
            can=can,
            eaglechat=eaglechat.__version__,
            llama_cpp=self._found.version,
            devices=(),
        )

    @property
    def kind(self) -> OpenAIServer:
        assert self._found is not None
        return self._found.kind

    @property
    def _is_unlisted(self) -> bool:
        return self._found is not None and self._found.unlisted is not None

    def loaded(self) -> ServedModel:
        """The chosen model. Raises NoPairError."""
        if self._model is None:
            raise NoPairError("no pair is loaded; load one first")
        return self._model

    # Loading

    def load(self, job: Job, request: Load) -> PairInfo:
        """Choose a model; a server that loads its models on demand loads it.

        Raises ServerError, Cancelled.
        """
        began = time.monotonic()
        if not job.is_cancelled():
            self._say(Loading(id=job.id, stage="server", fraction=0.0))
        self._found, self._model = self._until_done(job, self._ready(request))
        load_ms = (time.monotonic() - began) * 1000.0
        return _pair_info(self._found, self._model, load_ms, self._client.where)

    def unload(self) -> None:
        self._model = None

    async def _discovered(self) -> Found:
        while True:
            try:
                return await discover(self._client)
            except ServerError as error:
                if not error.is_loading:
                    raise
                await asyncio.sleep(LOADING_WAIT_S)

    async def _ready(self, request: Load) -> tuple[Found, ServedModel]:
        def tell() -> None:
            self._say(Loading(id=request.id, stage="target", fraction=0.0))

        found = await self._discovered()
        model = _chosen(found, request.target, self._client.where)
        if found.on_demand:
            found = await made_ready(self._client, found, model, tell)
        return found, found.model(model.id) or model

    # Replies and prompts

    def chat(self, job: Job, request: Chat) -> None:
        """Write a reply: a Done ends its events. Raises ServerError, NoPairError."""
        model, seed = self.loaded(), request.sampling.draw_seed()
        reply = StreamedReply(job.id, self.kind.reader(request), self._say)
        window = None
        try:
            window = self._until_done(job, self._stream(request, model, seed, reply))
        except Cancelled:
            pass
        except ServerError as error:
            reply.rest()
            raise error.after_text() if reply.has_begun else error from None
        reply.rest()
        reply.settle()
        end = reply.reader.end(seed, is_cancelled=window is None)
        if window is not None:
            read = end.timings.prefill_tokens + end.timings.reused_tokens
            self._answered = Answered(window.sent, window.left_out, read, end.tokens)
        is_full = 0 < model.n_ctx <= end.n_past + _NEARLY
        if end.finish_reason is FinishReason.CONTEXT and not is_full:
            # The server ended it at a limit of its own.
            end = replace(end, finish_reason=FinishReason.LENGTH)
        stats = reply.reader.stats(reply.stats)
        self._say(Done(id=job.id, end=end, stats=stats))

    def render(self, job: Job, request: Render) -> None:
        """Tell the client the prompt that a reply would read. Raises ServerError, NoPairError,
        Cancelled."""
        model = self.loaded()
        chat = Chat(
            id=job.id,
            messages=request.messages,
            thinking=request.thinking,
            max_tokens=request.max_tokens,
        )

        async def work() -> Rendered:
            window = ServerWindow(chat.messages, self._answered)
            window.make_room(model.n_ctx, chat.max_tokens)
            seen = msgspec.structs.replace(chat, messages=window.sent)
            text, n_tokens = await self._prompt(seen, model)
            runs = (PromptRun(text),)
            return Rendered(id=job.id, runs=runs, tokens=n_tokens, first_turn=window.first_turn)

        self._say(self._until_done(job, work()))

    async def _stream(
        self, chat: Chat, model: ServedModel, seed: int, reply: StreamedReply
    ) -> ServerWindow:
        """Ask for a reply; ask again without the oldest turns while the server finds the prompt too
        long and nothing of the reply has come. Returns what was sent of the chat."""
        plain = "" if chat.speculation.enabled else self._client.server.plain_model
        name = plain or model.id
        window = ServerWindow(chat.messages, self._answered)
        window.make_room(model.n_ctx, chat.max_tokens)
        while True:
            if self._answered.left_out or window.first_turn:
                self._say(WindowMoved(id=chat.id, window=window.window))
            try:
                chat = msgspec.structs.replace(chat, messages=window.sent)
                await self._ask(self.kind.body(chat, name, seed), reply)
                return window
            except ServerError as error:
                if error.code != TOO_LONG or reply.has_begun or not window.halve():
                    raise

    async def _prompt(self, chat: Chat, model: ServedModel) -> tuple[str, int]:
        """The prompt of a request for a reply, by llama-server's own template, and its length in
        tokens."""
        pages = self._found.pages if self._found else ""
        if not pages:
            raise ServerError(f"{self.kind.name} does not show prompts", code="unsupported")
        body = self.kind.body(chat, model.id, 0)
        asked = {name: body[name] for name in _PROMPT_FIELDS if name in body}
        text = (await self._client.post(f"{pages}/apply-template", asked, _Applied)).prompt
        content = {"content": text, "add_special": True, "parse_special": True}
        if "model" in body:
            content["model"] = body["model"]
        tokens = (await self._client.post(f"{pages}/tokenize", content, _Tokenized)).tokens
        return text, len(tokens)

    async def _ask(self, body: Mapping[str, Any], reply: StreamedReply) -> None:
        """Stream a reply; ask again after a passing fault while nothing of it has come, and without
        the optional fields that the server refuses."""
        retry_waits_s = iter(RETRY_WAITS_S)
        while True:
            asked = without(body, self._refused)
            try:
                url = self._client.address.call("chat/completions")
                async with self._client.stream(url, asked) as events:
                    async for event in events:
                        chunk = self._chunk(reply.chunks, event)
                        reply.take(chunk)
                        reason = chunk.choice.reason if chunk.choice else ""
                        if reason == _FILTERED:
                            where = self._client.where
                            raise ServerError(f"the content filter of {where} ended the reply")
                        if reason == _FAILED:
                            raise self._client.failed("")
                return
            except ServerError as error:
                if error.code in (CUT, NOT_UNDERSTOOD) and reply.is_whole:
                    # Some servers just end the connection.
                    return
                if error.code == REFUSED and not reply.has_begun:
                    if not (fields := refused_fields(asked, error.said)):
                        raise
                    self._refused |= fields
                    continue
                address = self._client.address
                if error.code == MISSING and address.other_api and self._is_unlisted:
                    # Nothing said yet which of the two base URLs is the right one.
                    self._client.address = address.other()
                    continue
                # A server that is loading its model is asked until it has.
                wait_s = LOADING_WAIT_S if error.is_loading else next(retry_waits_s, None)
                if reply.has_begun or not error.is_passing or wait_s is None:
                    raise
                wait_s = error.wait_s or wait_s
                if wait_s > LONGEST_WAIT_S:
                    raise
                reply.wait()
                await asyncio.sleep(wait_s)

    def _chunk(self, chunks: ChunkReader, event: str) -> Chunk:
        try:
            chunk = chunks.read(event)
        except (ValueError, RecursionError) as error:
            raise not_understood(self._client.where, str(error)) from None
        if chunk.error or chunk.object == "error":
            raise self._client.failed(message_in(event) or event)
        return chunk

    def _until_done(self, job: Job, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of the work. Raises Cancelled if the job is cancelled before."""
        if job.is_cancelled():
            work.close()
            raise Cancelled
        task = self._loop.create_task(work)

        def stop() -> None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(task.cancel)

        job.on_cancel(stop)
        try:
            return self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            raise Cancelled from None


def _chosen(found: Found, name: str, where: str) -> ServedModel:
    """The model of this name; without a name, the only one there is. Raises ServerError."""
    names = [model.id for model in found.models]
    if name in names:
        return found.models[names.index(name)]
    if name and not names:
        return named_model(name)
    if found.unlisted is not None:
        raise ServerError(
            f"{found.unlisted}. If it has no list of its models, name one with --model, or with "
            "model in its entry",
            code=found.unlisted.code,
        )
    if not names:
        raise ServerError(f"{where} has no model: load one there first", code=MISSING)
    has = ", ".join(names[:_MOST_NAMED])
    has += f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    if name:
        raise ServerError(f"{where} has no model named “{name}”; it has {has}", code=MISSING)
    if len(names) != 1:
        raise ServerError(
            f"choose one of the models of {where} with --model, or model in its entry: {has}",
            code="which_model",
        )
    return found.models[0]


def _pair_info(found: Found, model: ServedModel, load_ms: float, where: str) -> PairInfo:
    assert model.info is not None
    return PairInfo(
        target=model.info,
        n_ctx=model.n_ctx,
        n_threads=0,
        devices=(),
        load_ms=load_ms,
        speculation_off=f"{found.kind.name} has no draft" if found.drafts is False else None,
        reasoning=found.reasoning,
        server=where,
    )
