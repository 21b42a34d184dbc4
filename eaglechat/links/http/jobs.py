"""What a server is asked to do, one request after the other, in an event loop of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

import eaglechat
from eaglechat.links.http.client import ServerClient
from eaglechat.links.http.discovery import Found, ServedModel, discover
from eaglechat.links.http.faults import (
    CUT,
    MISSING,
    TOO_LONG,
    ServerError,
    message_in,
    not_understood,
)
from eaglechat.links.http.on_demand import made_ready
from eaglechat.links.http.prompts import Prompt, read_prompt
from eaglechat.links.http.reply import ReplyOnItsWay
from eaglechat.links.http.servers.base import Kind
from eaglechat.links.http.servers.chunks import Chunk, chunk_decoder
from eaglechat.links.http.window import ServerWindow
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.errors import EngineError, LoadCancelledError, NoPairError
from eaglechat.wire.protocol import (
    PROTOCOL_VERSION,
    AnyEvent,
    Bench,
    Chat,
    Done,
    Error,
    Hello,
    Load,
    Loaded,
    Loading,
    Message,
    PairInfo,
    PromptRun,
    Render,
    Rendered,
    Unload,
    Unloaded,
    WindowMoved,
)
from eaglechat.wire.records import FinishReason, ReplyEnd

Result = TypeVar("Result")
Job = Load | Chat | Bench | Render | Unload
RETRY_WAITS_S = (0.5, 2.0)
LONGEST_WAIT_S = 20.0
LOADING_WAIT_S = 1.0
_MOST_NAMED = 20
_FILTERED = "content_filter"
_NEARLY = 64
"""So many tokens from its end a context counts as full: a server keeps some for its drafts."""


class WorkCancelledError(Exception):
    """Somebody cancelled it."""


class Jobs:
    """Does what one client asks of one server. `say` is called in the loop of `run`."""

    def __init__(self, client: ServerClient, say: Callable[[AnyEvent], None]) -> None:
        self._client, self._say = client, say
        self._waiting: asyncio.Queue[Job] = asyncio.Queue()
        self._unfinished: dict[int, bool] = {}
        """By id, whether it was cancelled."""
        self._running: asyncio.Future[Any] | None = None
        self._running_id = 0
        self._found: Found | None = None
        self._hello: Hello | None = None
        self._model: ServedModel | None = None
        self._left: tuple[Message, ...] = ()
        """The turns that stayed away when the last reply was asked for."""

    async def run(self) -> None:
        """Find out what answers, say hello, and work until this task is cancelled.

        Raises ServerError where nothing does.
        """
        async with self._client:
            self._greet(await self._discovered())
            while True:
                await self._do_next(await self._waiting.get())

    def take(self, job: Job) -> None:
        self._unfinished[job.id] = False
        self._waiting.put_nowait(job)

    def cancel(self, id: int | None) -> None:
        """Cancel a job, or all of them: what runs ends at once."""
        for one in self._unfinished:
            if id in (None, one):
                self._unfinished[one] = True
        if self._running is not None and id in (None, self._running_id):
            self._running.cancel()

    async def _do_next(self, job: Job) -> None:
        try:
            await self._do(job)
        except EngineError as error:
            self._say(Error(id=job.id, code=error.code, message=str(error)))
        except Exception as error:
            message = f"the request failed ({type(error).__name__}: {error})"
            self._say(Error(id=job.id, code="internal", message=message))
        finally:
            del self._unfinished[job.id]

    async def _cancellable(self, id: int, work: Coroutine[Any, Any, Result]) -> Result:
        """What comes of the work. Raises WorkCancelledError once a cancel has ended it."""
        self._running_id, self._running = id, asyncio.ensure_future(work)
        if self._unfinished[id]:
            self._running.cancel()
        try:
            await asyncio.wait([self._running])
            if self._running.cancelled():
                raise WorkCancelledError
            result: Result = self._running.result()
            return result
        finally:
            self._running.cancel()
            self._running = None

    async def _do(self, job: Job) -> None:
        if isinstance(job, Load):
            await self._load(job)
        elif isinstance(job, Unload):
            self._model = None
            self._say(Unloaded(id=job.id))
        elif isinstance(job, Chat):
            await self._chat(job, self._loaded())
        elif isinstance(job, Render) and self._kind.can.prompt:
            await self._render(job, self._loaded())
        else:
            self._loaded()
            raise ServerError(f"{self._kind.name} does not answer this request", code="unsupported")

    # Loading

    def _greet(self, found: Found) -> None:
        """Say what answers, which may be another server than before."""
        self._found, before = found, self._hello
        self._hello = _hello(found, self._client.server)
        if self._hello != before:
            self._say(self._hello)

    async def _discovered(self) -> Found:
        while True:
            try:
                return await discover(self._client)
            except ServerError as error:
                if not error.is_loading:
                    raise
                await asyncio.sleep(LOADING_WAIT_S)

    async def _load(self, job: Load) -> None:
        began = time.monotonic()
        if not self._unfinished[job.id]:
            self._say(Loading(id=job.id, stage="server", fraction=0.0))
        try:
            found, model = await self._cancellable(job.id, self._ready(job))
        except WorkCancelledError:
            raise LoadCancelledError("the load was cancelled") from None
        self._greet(found)
        self._model = model
        load_ms = (time.monotonic() - began) * 1000.0
        self._say(Loaded(id=job.id, pair=_pair_info(found, model, load_ms, self._client.where)))

    async def _ready(self, job: Load) -> tuple[Found, ServedModel]:
        """The model that is asked for; where the server loads on demand, it does."""

        def tell(stage: str, fraction: float) -> None:
            self._say(Loading(id=job.id, stage=stage, fraction=fraction))

        found = await self._discovered()
        model = _chosen(found, job.target, self._client.where)
        if found.on_demand:
            found = await made_ready(self._client, found, model, tell)
        return found, found.model(model.id) or model

    def _loaded(self) -> ServedModel:
        if self._model is None:
            raise NoPairError("no pair is loaded; load one first")
        return self._model

    # Replies

    async def _chat(self, job: Chat, model: ServedModel) -> None:
        seed = job.sampling.draw_seed()
        reply = ReplyOnItsWay(job.id, self._kind.reader(job), self._say)
        is_cancelled = False
        try:
            await self._cancellable(job.id, self._stream(job, model, seed, reply))
        except WorkCancelledError:
            is_cancelled = True
        except ServerError as error:
            reply.rest()
            raise error.after_text() if reply.has_begun else error from None
        reply.rest()
        reply.settle()
        end = reply.reader.end(seed, is_cancelled=is_cancelled)
        if end.finish_reason is FinishReason.CONTEXT and not _is_full(model, end):
            end = replace(end, finish_reason=FinishReason.LENGTH)
        self._say(Done(id=job.id, end=end, stats=reply.fold.stats()))

    async def _stream(self, job: Chat, model: ServedModel, seed: int, reply: ReplyOnItsWay) -> None:
        """Ask, again after a passing fault as long as nothing of the reply has come, and again
        without the oldest turns where the server has no room for them."""
        plain = "" if job.speculation.enabled else self._client.server.plain_model
        name, had_left = plain or model.id, bool(self._left)
        window = await self._window(job, model)
        while True:
            self._left = window.left
            if had_left or window.first_turn:
                self._say(WindowMoved(id=job.id, window=window.window))
            try:
                job = msgspec.structs.replace(job, messages=window.sent)
                await self._ask(self._kind.body(job, name, seed), reply)
                return
            except ServerError as error:
                if error.code != TOO_LONG or reply.has_begun or not window.halve():
                    raise

    async def _window(self, job: Chat, model: ServedModel) -> ServerWindow:
        """Which turns are sent."""
        window = ServerWindow(job.messages)
        if not model.n_ctx or not self._kind.can.prompt:
            window.begin_behind(self._left)
            return window

        async def count(messages: Sequence[Message]) -> int:
            return (
                await self._prompt(msgspec.structs.replace(job, messages=messages), model)
            ).tokens

        # A server that does not count refuses in time what is too long.
        with suppress(ServerError):
            await window.fit(count, model.n_ctx, job.max_tokens, self._left)
        return window

    async def _prompt(self, job: Chat, model: ServedModel) -> Prompt:
        pages = self._found.pages if self._found else ""
        if not pages:
            raise ServerError(f"{self._kind.name} does not show prompts", code="unsupported")
        return await read_prompt(self._client, pages, self._kind.body(job, model.id, 0))

    async def _render(self, job: Render, model: ServedModel) -> None:
        chat = Chat(
            id=job.id, messages=job.messages, thinking=job.thinking, max_tokens=job.max_tokens
        )

        async def work() -> tuple[ServerWindow, Prompt]:
            window = await self._window(chat, model)
            seen = msgspec.structs.replace(chat, messages=window.sent)
            return window, await self._prompt(seen, model)

        try:
            window, prompt = await self._cancellable(job.id, work())
        except WorkCancelledError:
            raise ServerError("the prompt was not shown: that was cancelled") from None
        runs = (PromptRun(prompt.text),)
        first = window.first_turn
        self._say(Rendered(id=job.id, runs=runs, tokens=prompt.tokens, first_turn=first))

    async def _ask(self, body: Mapping[str, Any], reply: ReplyOnItsWay) -> None:
        url = f"{self._client.address.api}/chat/completions"
        waits = list(RETRY_WAITS_S)
        while True:
            try:
                async with self._client.stream(url, body) as events:
                    async for event in events:
                        chunk = self._chunk(event)
                        reply.take(chunk)
                        if chunk.choice and chunk.choice.finish_reason == _FILTERED:
                            where = self._client.where
                            raise ServerError(f"the content filter of {where} ended the reply")
                return
            except ServerError as error:
                if error.code == CUT and reply.is_whole:
                    # Some servers just end the connection.
                    return
                wait_s = error.wait_s or (LOADING_WAIT_S if error.is_loading else None)
                is_hopeless = reply.has_begun or not error.is_passing
                if is_hopeless or (wait_s or 0.0) > LONGEST_WAIT_S:
                    raise
                if not error.is_loading:
                    if not waits:
                        raise
                    wait_s = wait_s or waits[0]
                    waits.pop(0)
                reply.wait()
                await asyncio.sleep(wait_s or LOADING_WAIT_S)

    def _chunk(self, event: str) -> Chunk:
        try:
            chunk = chunk_decoder.decode(event)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise not_understood(self._client.where, str(error)) from None
        if chunk.error is not None or chunk.object == "error":
            said = message_in(event.encode()) or "no reason given"
            failure = ServerError(f"{self._client.where} failed during the reply: {said}")
            raise self._client.without_key(failure)
        return chunk

    @property
    def _kind(self) -> Kind:
        assert self._found is not None
        return self._found.kind


def _is_full(model: ServedModel, end: ReplyEnd) -> bool:
    """Whether a reply ended with the context, not at a limit of the server's own."""
    return 0 < model.n_ctx <= end.n_past + _NEARLY


def _chosen(found: Found, name: str, where: str) -> ServedModel:
    """The model of this name; without one the only model there is. Raises ServerError."""
    names = [model.id for model in found.models]
    if name in names:
        return found.models[names.index(name)]
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


def _hello(found: Found, server: ServerSettings) -> Hello:
    can = found.kind.can
    if server.plain_model:
        can = msgspec.structs.replace(can, plain=True)
    return Hello(
        protocol=PROTOCOL_VERSION,
        engine=found.kind.name,
        can=can,
        eaglechat=eaglechat.__version__,
        llama_cpp=found.version,
        devices=(),
    )


def _pair_info(found: Found, model: ServedModel, load_ms: float, where: str) -> PairInfo:
    assert model.info is not None
    return PairInfo(
        target=model.info,
        draft=None,
        target_layers=(),
        n_ctx=model.n_ctx,
        n_threads=0,
        devices=(),
        load_ms=load_ms,
        speculation_off=f"{found.kind.name} has no draft" if found.drafts is False else None,
        reasoning=found.reasoning,
        server=where,
    )
