"""What answers at an address: which kind of server, and which models it has; and a load by
llama-server's router, which loads a model when it is asked for."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from eaglechat.links.http.answers import at, count, fields, text
from eaglechat.links.http.client import ServerClient
from eaglechat.links.http.faults import FORBIDDEN, MISSING, NOT_UNDERSTOOD, REFUSED, ServerError
from eaglechat.links.http.openai import VLLM, LlamaServer, LlamaSwap, OpenAIServer, SGLang
from eaglechat.settings.model import ServerSettings
from eaglechat.wire.protocol import NO_REASONING, ModelInfo, Reasoning

_KINDS: dict[str, type[OpenAIServer]] = {"llama-swap": LlamaSwap, "vllm": VLLM, "sglang": SGLang}
"""By the owner of their models."""
_LENGTHS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""What servers call the size of a model's context."""
_THINKING, _EFFORT = "enable_thinking", "reasoning_effort"
_EFFORTS = ("low", "medium", "high")
LOOK_S = 0.5
"""Seconds between two looks at a load on demand."""
_NO_LIST = (MISSING, FORBIDDEN, NOT_UNDERSTOOD, REFUSED, ServerError.code)
"""Errors of a server that answers, but not with a list of its models."""
_NOT_LOADED = ("unloaded", "failed to load")
_NOT_READY = (*_NOT_LOADED, "loading", "downloading")


@dataclass(frozen=True)
class ServedModel:
    id: str
    owner: str
    """Which kind of server it is, with those that say it."""
    n_ctx: int
    """Tokens of its context; 0 if the server does not say it."""
    state: str
    """In llama-server's words, such as “unloaded”; “failed to load” is ours. “loaded” if the server
    says none."""
    info: ModelInfo

    @property
    def is_ready(self) -> bool:
        """Whether it answers without being loaded first; one that sleeps wakes up by itself."""
        return self.state not in _NOT_READY


def served(listed: Any) -> ServedModel:
    """A model as a server lists it, or by its name alone; its `id` is empty if it has no name."""
    one = {"id": listed} if isinstance(listed, str) else listed
    meta, status = fields(one, "meta"), fields(one, "status")
    name = text(one, "id") or text(one, "model") or text(one, "name")
    n_ctx_train = count(meta, "n_ctx_train")
    lengths = (count(meta, "n_ctx"), n_ctx_train, *(count(one, length) for length in _LENGTHS))
    failed = status.get("failed") is True
    return ServedModel(
        id=name,
        owner=text(one, "owned_by"),
        n_ctx=next(filter(None, lengths), 0),
        state="failed to load" if failed else text(status, "value") or "loaded",
        info=ModelInfo(
            path=name,
            name=name.rsplit("/", 1)[-1],
            architecture="",
            quantization=text(meta, "ftype"),
            size_bytes=count(meta, "size"),
            n_layers=0,
            n_embd=count(meta, "n_embd"),
            n_vocab=count(meta, "n_vocab"),
            n_ctx_train=n_ctx_train,
        ),
    )


@dataclass(frozen=True)
class Found:
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
        """The model of this name; without one the only one there is."""
        if not name and len(self.models) == 1:
            return self.models[0]
        return next((model for model in self.models if model.id == name), None)


async def discover(client: ServerClient, chosen: str = "") -> Found:
    """Find out what answers at the client's address, and what llama-server says of the model that
    it has loaded; of its router's models, of the `chosen` one. Raises ServerError."""
    try:
        models = tuple(await _models(client))
    except ServerError as error:
        if error.code not in _NO_LIST:
            raise
        return Found(OpenAIServer(), (), unlisted=error)
    owners = [one.owner for one in models]
    if "llamacpp" in owners:
        return await _llama_server(client, models, chosen)
    kind = next((_KINDS[owner] for owner in owners if owner in _KINDS), OpenAIServer)
    return Found(kind(), models)


async def _models(client: ServerClient) -> list[ServedModel]:
    """The models that a server lists: in OpenAI's object, or in a bare list. Raises ServerError."""
    answer: Any = await client.ask(client.address.call("models"))
    if isinstance(answer, dict):
        lists = (answer.get(name) for name in ("data", "models"))
        answer = next((one for one in lists if isinstance(one, list)), [])
    if not isinstance(answer, list):
        raise client.odd("it is no list of models")
    return [model for one in answer if (model := served(one)).id]


async def _llama_server(
    client: ServerClient, models: tuple[ServedModel, ...], chosen: str
) -> Found:
    root, query = client.address.root, ""
    found = Found(LlamaServer(), models)
    try:
        props = await client.ask(f"{root}/props")
    except ServerError as error:
        if error.code != MISSING:
            raise
        # It stands behind a proxy that lets only /v1 through.
        return found
    found = replace(found, version=text(props, "build_info"))
    if text(props, "role") == "router":
        found = replace(found, on_demand=True)
        if not chosen:
            return found
        query = f"?model={quote(chosen, safe='')}"
        props = await client.ask(f"{root}/props{query}")
    template, drafts = text(props, "chat_template"), None
    # Its slots are shown unless it was started with --no-slots.
    with suppress(ServerError):
        if (slots := await client.ask(f"{root}/slots{query}")) and isinstance(slots, list):
            drafts = any(at(slot, "speculative") is True for slot in slots)
    return replace(
        found,
        drafts=drafts,
        reasoning=Reasoning(
            marked=_THINKING in template or _EFFORT in template,
            on_off=_THINKING in template,
            efforts=_EFFORTS if _EFFORT in template else (),
        ),
        pages=root,
    )


async def load(client: ServerClient, model: ServedModel) -> None:
    """Have llama-server's router load one of its models, and wait for it. Raises ServerError."""
    if model.state in _NOT_LOADED:
        # The load goes on by itself once this is answered.
        await client.ask(f"{client.address.root}/models/load", {"model": model.id})
    while (now := (await discover(client)).model(model.id)) is not None:
        if now.is_ready:
            return
        if now.state in _NOT_LOADED:
            raise ServerError(
                f"{client.where} could not load {model.id}: the log of that server says why",
                code=MISSING,
            )
        await asyncio.sleep(LOOK_S)
    raise ServerError(f"{client.where} no longer has {model.id}", code=MISSING)


def ask(server: ServerSettings) -> Found:
    """What answers at a server's address; waits for the answer. Raises EngineError."""
    client = ServerClient(server)
    try:
        found = client.loop.run_until_complete(discover(client))
        if found.models or not (found.unlisted or server.model):
            return found
        if not server.model:
            assert found.unlisted is not None
            raise found.unlisted
        return replace(found, models=(served(server.model),))
    finally:
        client.close()
