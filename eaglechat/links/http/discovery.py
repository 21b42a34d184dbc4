"""What answers at an address: which kind of server, and which models it has.

llama-server's router loads a model when it is asked for; that is done here too, for it describes a
model only once it is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from eaglechat.links.http.answers import fitted
from eaglechat.links.http.client import ServerClient
from eaglechat.links.http.faults import (
    FORBIDDEN,
    MISSING,
    NOT_UNDERSTOOD,
    REFUSED,
    ServerError,
    not_understood,
)
from eaglechat.links.http.llama_server import LlamaServer, LlamaSwap
from eaglechat.links.http.openai import VLLM, OpenAIServer, SGLang
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.protocol import NO_REASONING, ModelInfo, Reasoning

_VLLM_COUNTER = "vllm:spec_decode_num_drafts"
_THINKING, _EFFORT = "enable_thinking", "reasoning_effort"
_EFFORTS = ("low", "medium", "high")
LOOK_S = 0.5
"""Seconds between two looks at a load on demand."""
_NO_LIST = (MISSING, FORBIDDEN, NOT_UNDERSTOOD, REFUSED, ServerError.code)

ModelState = Literal["loaded", "asleep", "loading", "downloading", "not loaded", "failed to load"]
_STATES: dict[str, ModelState] = {
    "loading": "loading",
    "downloading": "downloading",
    "sleeping": "asleep",
    "unloaded": "not loaded",
}
"""States that llama-server reports; a model in any other state counts as loaded."""


class _Meta(msgspec.Struct, frozen=True):
    n_ctx: int = 0
    n_ctx_train: int = 0
    n_vocab: int = 0
    n_embd: int = 0
    size: int = 0
    ftype: str = ""


class _Status(msgspec.Struct, frozen=True):
    """The state of a model of llama-server's router."""

    value: str = ""
    failed: bool = False


class ServedModel(msgspec.Struct):
    """A model in a server's list; each kind of server names the context size in its own way."""

    id: str = ""
    model: str = ""
    name: str = ""
    owned_by: str = ""
    status: _Status = _Status()
    meta: _Meta = _Meta()
    max_model_len: int = 0
    context_length: int = 0
    context_window: int = 0
    max_context_length: int = 0

    @property
    def n_ctx(self) -> int:
        """Tokens of its context; 0 if the server does not say it."""
        lengths = (self.max_model_len, self.context_length, self.context_window)
        of_meta = self.meta.n_ctx or self.meta.n_ctx_train
        return next(filter(None, (of_meta, *lengths, self.max_context_length)), 0)

    @property
    def state(self) -> ModelState:
        return "failed to load" if self.status.failed else _STATES.get(self.status.value, "loaded")

    @property
    def is_ready(self) -> bool:
        """Whether it answers without being loaded first; one that sleeps wakes up by itself."""
        return self.state in ("loaded", "asleep")

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            path=self.id,
            name=self.id.rsplit("/", 1)[-1],
            architecture="",
            quantization=self.meta.ftype,
            size_bytes=self.meta.size,
            n_layers=0,
            n_embd=self.meta.n_embd,
            n_vocab=self.meta.n_vocab,
            n_ctx_train=self.meta.n_ctx_train,
        )


class _Props(msgspec.Struct):
    """llama-server's /props."""

    role: str = ""
    build_info: str = ""
    chat_template: str = ""


class _ServerInfo(msgspec.Struct):
    """SGLang's /server_info."""

    speculative_algorithm: str | None = None


class _Slot(msgspec.Struct):
    speculative: bool | None = None


@dataclass(frozen=True)
class Found:
    """What answers at an address."""

    kind: OpenAIServer
    models: tuple[ServedModel, ...]
    version: str = ""
    drafts: bool | None = None
    """Whether the server drafts; None if it does not say."""
    reasoning: Reasoning = NO_REASONING
    on_demand: bool = False
    """Whether the server loads a model when it is asked for."""
    pages: str = ""
    """The base URL of llama-server's pages about the chosen model; empty if there are none."""
    unlisted: ServerError | None = None
    """Why the server does not say which models it has."""

    def model(self, name: str) -> ServedModel | None:
        return next((model for model in self.models if model.id == name), None)


async def discover(client: ServerClient) -> Found:
    """Find out what answers at the client's address. Raises ServerError."""
    try:
        models = tuple(await _list(client))
    except ServerError as error:
        if not _has_no_list(error):
            raise
        return Found(OpenAIServer(), (), unlisted=error)
    owners, root = {one.owned_by for one in models}, client.address.root
    drafts: bool | None = None
    if "llamacpp" in owners:
        return await _llama_server(client, models)
    if "llama-swap" in owners:
        return Found(LlamaSwap(), models)
    if "vllm" in owners:
        with suppress(ServerError):
            drafts = _VLLM_COUNTER in (await client.page(f"{root}/metrics")).text
        return Found(VLLM(), models, drafts=drafts)
    if "sglang" in owners:
        with suppress(ServerError):
            info = await client.ask(f"{root}/server_info", _ServerInfo)
            drafts = info.speculative_algorithm is not None
        return Found(SGLang(), models, drafts=drafts)
    return Found(OpenAIServer(), models)


async def _list(client: ServerClient) -> list[ServedModel]:
    """The models at the first base URL that the address may mean, or at the other one, which the
    client keeps if they are there. Raises ServerError."""
    first = client.address
    try:
        return await _models_at(client, first.call("models"))
    except ServerError as error:
        if not (first.other_api and _has_no_list(error)):
            raise
        client.address = first.other()
        try:
            return await _models_at(client, client.address.call("models"))
        except ServerError:
            client.address = first
            raise error from None


def _has_no_list(error: ServerError) -> bool:
    """Whether the server answers, but not with a list of its models."""
    return not error.is_passing and error.code in _NO_LIST


async def _models_at(client: ServerClient, url: str) -> list[ServedModel]:
    """The models that a server lists: in OpenAI's object, or in a bare list. Raises ServerError."""
    answer: Any = await client.ask(url, object)
    if isinstance(answer, dict):
        lists = (answer.get(name) for name in ("data", "models"))
        answer = next((one for one in lists if isinstance(one, list)), [])
    if not isinstance(answer, list):
        raise not_understood(client.where, "it is no list of models")
    return [listed for one in answer if (listed := _listed(one)).id]


def _listed(one: Any) -> ServedModel:
    """A model of a list; its `id` is empty if it has no name."""
    if isinstance(one, str):
        return ServedModel(id=one)
    try:
        listed = fitted(one, ServedModel)
    except ValueError:
        return ServedModel()
    listed.id = listed.id or listed.model or listed.name
    return listed


async def _llama_server(client: ServerClient, models: tuple[ServedModel, ...]) -> Found:
    root = client.address.root
    found = Found(LlamaServer(), models)
    try:
        props = await client.ask(f"{root}/props", _Props)
    except ServerError as error:
        if error.code != MISSING:
            raise
        # It stands behind a proxy that lets only /v1 through.
        return found
    found = replace(found, version=props.build_info)
    if props.role == "router":
        return replace(found, on_demand=True)
    return replace(await _described(client, found, props, f"{root}/slots"), pages=root)


async def _described(client: ServerClient, found: Found, props: _Props, slots_at: str) -> Found:
    """What llama-server says of the model that it has loaded."""
    template, slots = props.chat_template, list[_Slot]()
    # Its slots are shown unless it was started with --no-slots.
    with suppress(ServerError):
        slots = await client.ask(slots_at, list[_Slot])
    return replace(
        found,
        drafts=any(slot.speculative for slot in slots) if slots else None,
        reasoning=Reasoning(
            marked=_THINKING in template or _EFFORT in template,
            on_off=_THINKING in template,
            efforts=_EFFORTS if _EFFORT in template else (),
        ),
    )


# Loading on demand


async def made_ready(client: ServerClient, model: ServedModel, tell: Callable[[], None]) -> Found:
    """Have llama-server's router load one of its models if needed; returns what it then says of it.

    Raises ServerError.
    """
    if not model.is_ready:
        tell()
        await _load(client, model)
    root, query = client.address.root, f"?model={quote(model.id, safe='')}"
    found = replace(await discover(client), pages=root)
    props = await client.ask(f"{root}/props{query}", _Props)
    return await _described(client, found, props, f"{root}/slots{query}")


async def _load(client: ServerClient, model: ServedModel) -> None:
    if model.state in ("not loaded", "failed to load"):
        # The load goes on by itself once this is answered.
        await client.ask(f"{client.address.root}/models/load", object, {"model": model.id})
    while (now := (await discover(client)).model(model.id)) is not None:
        if now.is_ready:
            return
        if now.state in ("not loaded", "failed to load"):
            raise ServerError(
                f"{client.where} could not load {model.id}: the log of that server says why",
                code=MISSING,
            )
        await asyncio.sleep(LOOK_S)
    raise ServerError(f"{client.where} no longer has {model.id}", code=MISSING)


# Asking once


def ask(server: ServerSettings) -> Found:
    """What answers at a server's address; waits for the answer. Raises EngineError."""
    client = ServerClient(server)
    try:
        client.open()
        found = client.loop.run_until_complete(discover(client))
        if found.models or not (found.unlisted or server.model):
            return found
        if not server.model:
            assert found.unlisted is not None
            raise found.unlisted
        return replace(found, models=(ServedModel(id=server.model),))
    finally:
        client.close()
