"""An engine that is somebody else's server, asked over HTTP; it runs in the client's process.

Everything that waits for the network runs in an event loop, in the thread that answers the request.
A cancel of the request cancels its task in the loop (`_until_done`), which closes the connection:
that is what the server notices.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

import eaglechat
from eaglechat.links.base import LocalLink
from eaglechat.links.http import faults
from eaglechat.links.http.answers import Event, at
from eaglechat.links.http.chunks import Chunk
from eaglechat.links.http.client import ServerClient
from eaglechat.links.http.discovery import Found, ServedModel, discover, load, served
from eaglechat.links.http.faults import ServerError
from eaglechat.links.http.openai import OpenAIServer, refused_fields, without
from eaglechat.links.http.reply import Reply
from eaglechat.links.http.window import ServerWindow
from eaglechat.settings.model import ServerSettings
from eaglechat.wire import protocol
from eaglechat.wire.errors import Cancelled, NoPairError
from eaglechat.wire.worker import Say, Worker, check

Result = TypeVar("Result")
RETRY_WAITS_S = (0.5, 2.0)
LONGEST_WAIT_S = 20.0
LOADING_WAIT_S = 1.0
LOOK_S = 0.02
"""Seconds between two looks at whether the request is cancelled."""
_MOST_NAMED = 20


def server_link(server: ServerSettings) -> LocalLink:
    return LocalLink(partial(ServerWorker, server))


class ServerWorker(Worker):
    """Answers requests by asking a server. That it cannot be reached at the start is the engine's
    death. Later that fails one request, and the next one asks again."""

    def __init__(self, server: ServerSettings | None, say: Say) -> None:
        """Without a server, `_reach` has to be called first. Raises AddressError."""
        super().__init__(say)
        self._hello: protocol.Hello | None = None
        if server is not None:
            self._reach(server)

    def _reach(self, server: ServerSettings) -> None:
        """Raises AddressError."""
        self._client = ServerClient(server)
        self._found = Found(OpenAIServer(), ())
        """What answered when the server was asked last."""
        self._model: ServedModel | None = None
        self._answered = ServerWindow()
        """What was sent last that was answered."""
        self._refused: frozenset[str] = frozenset()
        """The optional fields that the server refused."""

    def begin(self) -> None:
        self._found = self._until_done(self._discovered())
        self._greet()

    def do(self, request: protocol.AnsweredRequest) -> None:
        if isinstance(request, protocol.Load):
            pair = self._loaded(request)
            self._greet()
            self.say(protocol.Loaded(id=request.id, pair=pair))
        elif isinstance(request, protocol.Unload):
            self._model = None
            self.say(protocol.Unloaded(id=request.id))
        elif self._model is None:
            raise NoPairError
        elif isinstance(request, protocol.Chat):
            self._chat(request, self._model)
        else:
            self.say(self._until_done(self._rendered(request, self._model)))

    def finish(self) -> None:
        self._client.close()

    def explain(self, error: Exception) -> str:
        # Standard error may be the terminal that the app draws on: no traceback.
        return f"asking the server failed ({type(error).__name__}: {error})"

    def _greet(self) -> None:
        """Say Hello, and again when another server answers at this address than before."""
        can = self._found.kind.can
        if self._client.server.plain_model:
            can = msgspec.structs.replace(can, plain=True)
        hello = protocol.Hello(
            protocol=protocol.PROTOCOL_VERSION,
            engine=self._found.kind.name,
            can=can,
            eaglechat=eaglechat.__version__,
            llama_cpp=self._found.version,
            devices=(),
        )
        if hello != self._hello:
            self._hello = hello
            self.say(hello)

    # Loading

    def _loaded(self, request: protocol.Load) -> protocol.PairInfo:
        """Choose a model; a server that loads its models on demand loads it.

        Raises ServerError, Cancelled.
        """
        began = time.monotonic()
        check()
        self.say(protocol.Progress(id=request.id, step=protocol.Loading("server", 0.0)))
        self._found, model = self._until_done(self._ready(request))
        self._model = model
        drafts = self._found.drafts
        return protocol.PairInfo(
            target=model.info,
            n_ctx=model.n_ctx,
            n_threads=0,
            devices=(),
            load_ms=(time.monotonic() - began) * 1000.0,
            speculation_off=f"{self._found.kind.name} has no draft" if drafts is False else None,
            reasoning=self._found.reasoning,
            server=self._client.where,
        )

    async def _discovered(self) -> Found:
        """What answers; a server that is still loading is waited for."""
        while True:
            try:
                return await discover(self._client)
            except ServerError as error:
                if error.code != faults.LOADING:
                    raise
                await asyncio.sleep(LOADING_WAIT_S)

    async def _ready(self, request: protocol.Load) -> tuple[Found, ServedModel]:
        found = await self._discovered()
        model = _chosen(found, request.target, self._client.where)
        if found.on_demand:
            if not model.is_ready:
                self.say(protocol.Progress(id=request.id, step=protocol.Loading("target", 0.0)))
                await load(self._client, model)
            # It describes a model only once that is loaded.
            found = await discover(self._client, model.id)
        return found, found.model(model.id) or model

    # Replies and prompts

    def _chat(self, request: protocol.Chat, model: ServedModel) -> None:
        seed, reply = request.sampling.draw_seed(), Reply(self._found.kind, request, self.say)
        window = self._window(request, model)
        is_cancelled = False
        try:
            self._until_done(self._stream(request, model, seed, window, reply))
        except Cancelled:
            is_cancelled = True
        except ServerError as error:
            reply.flush()
            if reply.has_begun:
                error = ServerError(f"{error}; the text received is kept", code=error.code)
            raise error from None
        reply.flush()
        done = reply.done(seed, model.n_ctx, is_cancelled=is_cancelled)
        if not is_cancelled:
            window.answered(done.end)
            self._answered = window
        self.say(done)

    def _window(self, chat: protocol.Chat, model: ServedModel) -> ServerWindow:
        window = ServerWindow(chat.messages)
        window.follow(self._answered, model.n_ctx, chat.max_tokens)
        return window

    async def _stream(
        self, chat: protocol.Chat, model: ServedModel, seed: int, window: ServerWindow, reply: Reply
    ) -> None:
        """Ask for a reply; ask again without the oldest turns while the server finds the prompt too
        long and nothing of the reply has come."""
        plain = "" if chat.speculation.enabled else self._client.server.plain_model
        while True:
            if self._answered.first_turn or window.first_turn:
                self.say(protocol.Progress(id=chat.id, step=window.window))
            try:
                chat = msgspec.structs.replace(chat, messages=window.sent)
                await self._ask(self._found.kind.body(chat, plain or model.id, seed), reply)
                return
            except ServerError as error:
                if error.code != faults.TOO_LONG or reply.has_begun or not window.halve():
                    raise

    async def _ask(self, body: Mapping[str, Any], reply: Reply) -> None:
        """Stream a reply; ask again after a passing fault while nothing of it has come, and without
        the optional fields that the server refuses."""
        retry_waits_s = iter(RETRY_WAITS_S)
        while True:
            asked = without(body, self._refused)
            try:
                url = self._client.address.call("chat/completions")
                async with self._client.stream(url, asked) as events:
                    async for event in events:
                        self._take(reply, event)
                return
            except ServerError as error:
                if error.code in (faults.CUT, faults.NOT_UNDERSTOOD) and reply.is_whole:
                    # Some servers just end the connection.
                    return
                if reply.has_begun:
                    raise
                if error.code == faults.REFUSED:
                    if not (fields := refused_fields(asked, error.said)):
                        raise
                    self._refused |= fields
                    continue
                if error.code == faults.MISSING and self._found.unlisted:
                    # Nothing has answered at this address yet.
                    raise ServerError(f"{error}; {faults.CHECK_ADDRESS}", code=error.code) from None
                # A server that is loading its model is asked until it has.
                wait_s = (
                    LOADING_WAIT_S if error.code == faults.LOADING else next(retry_waits_s, None)
                )
                if error.code not in faults.PASSING or wait_s is None:
                    raise
                wait_s = error.wait_s or wait_s
                if wait_s > LONGEST_WAIT_S:
                    raise
                self.say(protocol.Progress(id=reply.id, step=protocol.Loading("server", 0.0)))
                await asyncio.sleep(wait_s)

    def _take(self, reply: Reply, event: Event) -> None:
        """Read the next event of a reply. Raises ServerError."""
        if event.name == "error":
            raise self._client.failed(event.data)
        if event.value is None:
            raise self._client.odd(f"it is no JSON object: {event.data}")
        try:
            chunk = Chunk(event.value)
            # An older vLLM names the object “error”.
            if event.value.get("error") or event.value.get("object") == "error":
                raise self._client.failed(event.data)
            reply.take(chunk)
        except (ValueError, RecursionError) as error:
            raise self._client.odd(str(error)) from None
        if chunk.reason == "content_filter":
            raise ServerError(f"the content filter of {self._client.where} ended the reply")
        if chunk.reason == "error":
            raise self._client.failed("")

    async def _rendered(self, request: protocol.Render, model: ServedModel) -> protocol.Rendered:
        """The prompt that a reply would read, by llama-server's own template."""
        pages = self._found.pages
        if not pages:
            raise ServerError(f"{self._found.kind.name} does not show prompts", code="unsupported")
        chat = protocol.Chat(
            id=request.id,
            messages=request.messages,
            thinking=request.thinking,
            max_tokens=request.max_tokens,
        )
        window = self._window(chat, model)
        seen = msgspec.structs.replace(chat, messages=window.sent)
        body = self._found.kind.body(seen, model.id, 0)
        text = at(await self._client.ask(f"{pages}/apply-template", body), "prompt")
        content = {"content": text, "add_special": True, "parse_special": True}
        if "model" in body:
            content["model"] = body["model"]
        tokens = at(await self._client.ask(f"{pages}/tokenize", content), "tokens")
        if not (isinstance(text, str) and isinstance(tokens, list)):
            raise self._client.odd("it shows no prompt")
        return protocol.Rendered(
            id=request.id,
            runs=(protocol.PromptRun(text),),
            tokens=len(tokens),
            first_turn=window.first_turn,
        )

    def _until_done(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of the work, which ends with the request. Raises Cancelled, after the work has
        ended."""
        loop = self._client.loop
        task = loop.create_task(work)
        try:
            while not task.done():
                check()
                loop.run_until_complete(asyncio.wait({task}, timeout=LOOK_S))
        except Cancelled:
            task.cancel()
            loop.run_until_complete(asyncio.wait({task}))
            raise
        return task.result()


def _chosen(found: Found, name: str, where: str) -> ServedModel:
    """The model of this name; without a name, the only one there is. Raises ServerError."""
    if (model := found.model(name)) is not None:
        return model
    names = [model.id for model in found.models]
    if name and not names:
        return served(name)
    if found.unlisted is not None:
        raise ServerError(
            f"{found.unlisted}. If it has no list of its models, name one with --model, or with "
            "model in its entry",
            code=found.unlisted.code,
        )
    if not names:
        raise ServerError(f"{where} has no model: load one there first", code=faults.MISSING)
    has = ", ".join(names[:_MOST_NAMED])
    has += f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    if name:
        raise ServerError(f"{where} has no model named “{name}”; it has {has}", code=faults.MISSING)
    raise ServerError(
        f"choose one of the models of {where} with --model, or model in its entry: {has}",
        code="which_model",
    )
