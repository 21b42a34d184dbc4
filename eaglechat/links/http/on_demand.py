"""Models that a server loads when they are asked for: llama-server's router, and llama-swap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from eaglechat.links.http.client import ServerClient
from eaglechat.links.http.discovery import Found, ServedModel, discover, look_into, upstream
from eaglechat.links.http.faults import MISSING, ServerError
from eaglechat.links.http.servers.llama_server import LlamaSwap

LOOK_S = 0.5
_STAGES = {"spec_model": "draft"}

Tell = Callable[[str, float], None]
"""Is told what is loaded, and how much of all is."""


class _Progress(msgspec.Struct):
    stages: list[str]
    current: str
    value: float

    @property
    def fraction(self) -> float:
        """Of the whole load; its stages count alike."""
        place = self.stages.index(self.current) if self.current in self.stages else 0
        return (place + self.value) / (len(self.stages) or 1)


class _Change(msgspec.Struct):
    progress: _Progress | None = None


class _News(msgspec.Struct):
    """What the router says of one of its models."""

    model: str
    data: _Change


async def made_ready(client: ServerClient, found: Found, model: ServedModel, tell: Tell) -> Found:
    """What a server says of one of its models, which it loads if it has to. Raises ServerError."""
    if isinstance(found.kind, LlamaSwap):
        # Its pages are asked for, so it is started.
        tell("target", 0.0)
        await client.text(f"{upstream(client, model)}/v1/models")
    elif model.state not in ("loaded", "asleep"):
        tell("target", 0.0)
        await _load(client, model, tell)
    found = await discover(client)
    return await look_into(client, found, found.model(model.id) or model)


async def _load(client: ServerClient, model: ServedModel, tell: Tell) -> None:
    news = asyncio.ensure_future(_follow(client, model.id, tell))
    try:
        if model.state in ("not loaded", "failed to load"):
            body = {"model": model.id}
            await client.post(f"{client.address.root}/models/load", body, msgspec.Raw)
        while (now := (await discover(client)).model(model.id)) is not None:
            if now.state in ("loaded", "asleep"):
                return
            if now.state in ("not loaded", "failed to load"):
                raise ServerError(
                    f"{client.where} could not load {model.id}: the log of that server says why",
                    code=MISSING,
                )
            await asyncio.sleep(LOOK_S)
        raise ServerError(f"{client.where} no longer has {model.id}", code=MISSING)
    finally:
        news.cancel()


async def _follow(client: ServerClient, name: str, tell: Tell) -> None:
    """Tell how far a load is, where the router says."""
    with suppress(ServerError):
        async with client.stream(f"{client.address.root}/models/sse") as events:
            async for event in events:
                with suppress(msgspec.MsgspecError):
                    news = msgspec.json.decode(event, type=_News)
                    if news.model == name and news.data.progress:
                        progress = news.data.progress
                        tell(_STAGES.get(progress.current, "target"), progress.fraction)
