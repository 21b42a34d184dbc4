"""What answers at an address: which kind of server, and which models it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from eaglechat.links.http.client import ServerClient
from eaglechat.links.http.faults import ServerError
from eaglechat.links.http.loop import result_of
from eaglechat.links.http.servers.base import Kind
from eaglechat.links.http.servers.llama_server import LlamaServer
from eaglechat.links.http.servers.openai import OpenAIServer
from eaglechat.links.http.servers.stepwise import VLLM, SGLang
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.protocol import ModelInfo, Reasoning

_VLLM_COUNTER = "vllm:spec_decode_num_drafts"
_THINKING, _EFFORT = "enable_thinking", "reasoning_effort"
_EFFORTS = ("low", "medium", "high")


class _Meta(msgspec.Struct):
    n_ctx: int = 0
    n_ctx_train: int = 0
    n_vocab: int = 0
    n_embd: int = 0
    size: int = 0
    ftype: str = ""


class _Listed(msgspec.Struct):
    """A model in the list of a server; each kind says its context in words of its own."""

    id: str
    owned_by: str = ""
    meta: _Meta | None = None
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None
    max_context_length: int | None = None

    @property
    def n_ctx(self) -> int:
        of_meta = self.meta.n_ctx or self.meta.n_ctx_train if self.meta else 0
        lengths = (of_meta, self.max_model_len, self.context_length, self.context_window)
        return next((length for length in (*lengths, self.max_context_length) if length), 0)


class _Models(msgspec.Struct):
    data: list[_Listed]


class _Props(msgspec.Struct):
    """Of llama-server."""

    build_info: str = ""
    chat_template: str = ""
    default_generation_settings: Any = None


class _ServerInfo(msgspec.Struct):
    """Of SGLang."""

    speculative_algorithm: str | None = None


class _Slot(msgspec.Struct):
    speculative: bool | None = None


@dataclass(frozen=True)
class ServedModel:
    """A model that a server has; `n_ctx` is 0 where it does not say."""

    id: str
    n_ctx: int = 0
    info: ModelInfo | None = None


@dataclass(frozen=True)
class Found:
    """What answers at an address."""

    kind: Kind
    models: tuple[ServedModel, ...]
    version: str = ""
    drafts: bool | None = None
    """Whether it speculates; None where it does not say."""
    reasoning: Reasoning = field(default_factory=Reasoning)


async def discover(client: ServerClient) -> Found:
    """Raises ServerError."""
    listed = (await client.get(f"{client.address.api}/models", _Models)).data
    models = tuple(ServedModel(one.id, one.n_ctx, _info(one)) for one in listed)
    owners = {one.owned_by for one in listed}
    if "llamacpp" in owners:
        return await _llama_server(client, models)
    if "vllm" in owners:
        drafts = await _vllm_drafts(client)
        return Found(VLLM(drafts=drafts), models, drafts=drafts)
    if "sglang" in owners:
        drafts = await _sglang_drafts(client)
        return Found(SGLang(drafts=drafts), models, drafts=drafts)
    return Found(OpenAIServer(), models)


async def _vllm_drafts(client: ServerClient) -> bool | None:
    try:
        return _VLLM_COUNTER in await client.text(f"{client.address.root}/metrics")
    except ServerError:
        return None


async def _sglang_drafts(client: ServerClient) -> bool | None:
    try:
        info = await client.get(f"{client.address.root}/server_info", _ServerInfo)
    except ServerError:
        return None
    return info.speculative_algorithm is not None


async def _llama_server(client: ServerClient, models: tuple[ServedModel, ...]) -> Found:
    props = await client.get(f"{client.address.root}/props", _Props)
    template = props.chat_template
    marked = _THINKING in template or _EFFORT in template
    return Found(
        LlamaServer(),
        models,
        version=props.build_info,
        drafts=await _drafts(client),
        reasoning=Reasoning(
            marked=marked,
            on_off=_THINKING in template,
            efforts=_EFFORTS if _EFFORT in template else (),
        ),
    )


async def _drafts(client: ServerClient) -> bool | None:
    """A server may keep its slots to itself."""
    try:
        slots = await client.get(f"{client.address.root}/slots", list[_Slot])
    except ServerError:
        return None
    return any(slot.speculative for slot in slots) if slots else None


def _info(listed: _Listed) -> ModelInfo:
    meta = listed.meta or _Meta()
    return ModelInfo(
        path=listed.id,
        name=listed.id.rsplit("/", 1)[-1],
        architecture="",
        quantization=meta.ftype,
        size_bytes=meta.size,
        n_layers=0,
        n_embd=meta.n_embd,
        n_vocab=meta.n_vocab,
        n_ctx_train=meta.n_ctx_train,
    )


def ask(server: ServerSettings) -> Found:
    """What answers at a server's address; waits for it. Raises EngineError."""
    return result_of(_ask(ServerClient(server)))


async def _ask(client: ServerClient) -> Found:
    await client.open()
    try:
        return await discover(client)
    finally:
        await client.close()
