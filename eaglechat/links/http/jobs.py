"""What a server is asked to do, one request after the other, in an event loop of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

import eaglechat
from eaglechat.links.http.chunks import Chunk, chunk_decoder
from eaglechat.links.http.client import ServerClient
from eaglechat.links.http.discovery import Found, ServedModel, discover
from eaglechat.links.http.faults import ServerError, message_in, not_understood
from eaglechat.links.http.servers.base import Kind, ReplyReader
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
    PairInfo,
    PrefillProgress,
    Render,
    RoundDone,
    Settled,
    Unload,
    Unloaded,
)
from eaglechat.wire.records import Prefill, Round
from eaglechat.wire.stats import StatsFold

Result = TypeVar("Result")
Job = Load | Chat | Bench | Render | Unload
RETRY_WAITS_S = (0.5, 2.0)
LONGEST_WAIT_S = 20.0
LOADING_WAIT_S = 1.0


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
        self._model: ServedModel | None = None

    async def run(self) -> None:
        """Find out what answers, say hello, and work until this task is cancelled.

        Raises ServerError where nothing does.
        """
        await self._client.open()
        try:
            self._found = found = await self._discovered()
            self._say(_hello(found, self._client.server))
            while True:
                await self._do_next(await self._waiting.get())
        finally:
            await self._client.close()

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
        else:
            self._loaded()
            raise ServerError(f"{self._kind.name} cannot be asked that", code="unsupported")

    # Loading

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
            self._say(Loading(id=job.id, stage="target", fraction=0.0))
        try:
            self._found = found = await self._cancellable(job.id, self._discovered())
        except WorkCancelledError:
            raise LoadCancelledError("the load was cancelled") from None
        self._model = model = _chosen(found, job.target, self._client.where)
        load_ms = (time.monotonic() - began) * 1000.0
        self._say(Loaded(id=job.id, pair=_pair_info(found, model, load_ms, self._client.where)))

    def _loaded(self) -> ServedModel:
        if self._model is None:
            raise NoPairError("no pair is loaded; load one first")
        return self._model

    # Replies

    async def _chat(self, job: Chat, model: ServedModel) -> None:
        seed = job.sampling.draw_seed()
        reply = _Reply(job.id, self._kind.reader(job), self._say)
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
        self._say(
            Done(
                id=job.id,
                end=reply.reader.end(seed, is_cancelled=is_cancelled),
                stats=reply.fold.stats(),
            )
        )

    async def _stream(self, job: Chat, model: ServedModel, seed: int, reply: _Reply) -> None:
        """Ask, again after a passing fault as long as nothing of the reply has come."""
        plain = "" if job.speculation.enabled else self._client.server.plain_model
        body = self._kind.body(job, plain or model.id, seed)
        url = f"{self._client.address.api}/chat/completions"
        waits = list(RETRY_WAITS_S)
        while True:
            try:
                async with self._client.stream(url, body) as events:
                    async for event in events:
                        reply.take(self._chunk(event))
                return
            except ServerError as error:
                wait_s = error.wait_s or (LOADING_WAIT_S if error.is_loading else None)
                is_hopeless = reply.has_begun or not error.is_passing
                if is_hopeless or (wait_s or 0.0) > LONGEST_WAIT_S:
                    raise
                if not error.is_loading:
                    if not waits:
                        raise
                    wait_s = wait_s or waits[0]
                    waits.pop(0)
                await asyncio.sleep(wait_s or LOADING_WAIT_S)

    def _chunk(self, event: str) -> Chunk:
        try:
            chunk = chunk_decoder.decode(event)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise not_understood(self._client.where, str(error)) from None
        if chunk.error is not None:
            said = message_in(event.encode()) or "no reason given"
            failure = ServerError(f"{self._client.where} failed in mid-reply: {said}")
            raise self._client.without_key(failure)
        return chunk

    @property
    def _kind(self) -> Kind:
        assert self._found is not None
        return self._found.kind


class _Reply:
    """A reply on its way to the client."""

    def __init__(self, id: int, reader: ReplyReader, say: Callable[[AnyEvent], None]) -> None:
        self.reader, self.fold = reader, StatsFold()
        self._id, self._say = id, say
        self.has_begun = False

    def take(self, chunk: Chunk) -> None:
        for record in self.reader.take(chunk):
            self._tell(record)

    def rest(self) -> None:
        for record in self.reader.rest():
            self._tell(record)

    def settle(self) -> None:
        """Tell what is known better in the end."""
        if rounds := self.reader.settled():
            self.fold = StatsFold()
            for round_ in rounds:
                self.fold.add(round_)
            self._say(Settled(id=self._id, rounds=tuple(rounds)))

    def _tell(self, record: Prefill | Round) -> None:
        if isinstance(record, Prefill):
            self._say(PrefillProgress(id=self._id, prefill=record))
        else:
            self.has_begun = True
            self.fold.add(record)
            self._say(RoundDone(id=self._id, round=record))


def _chosen(found: Found, name: str, where: str) -> ServedModel:
    """The model of this name; without one the only model there is. Raises ServerError."""
    names = [model.id for model in found.models]
    if name in names:
        return found.models[names.index(name)]
    has = ", ".join(names) or "none at all"
    if name:
        raise ServerError(f"{where} has no model named “{name}”; it has {has}", code="missing")
    if len(names) != 1:
        raise ServerError(
            f"which model of {where} is meant? It has {has}: name one (--model, or model in its "
            "entry)",
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
