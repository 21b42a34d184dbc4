"""What a model of llama-server would read: its own template and vocabulary say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from eaglechat.links.http.client import ServerClient

_OF_THE_PROMPT = (
    "model",
    "messages",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
)


class _Applied(msgspec.Struct):
    prompt: str


class _Tokenized(msgspec.Struct):
    tokens: list[int]


@dataclass(frozen=True)
class Prompt:
    """A prompt, and how many tokens it is."""

    text: str
    tokens: int


async def read_prompt(client: ServerClient, pages: str, body: Mapping[str, Any]) -> Prompt:
    """The prompt of a request for a reply. Raises ServerError."""
    asked = {name: body[name] for name in _OF_THE_PROMPT if name in body}
    applied = await client.post(f"{pages}/apply-template", asked, _Applied)
    content = {"content": applied.prompt, "add_special": True, "parse_special": True}
    if "model" in body:
        content["model"] = body["model"]
    tokens = (await client.post(f"{pages}/tokenize", content, _Tokenized)).tokens
    return Prompt(applied.prompt, len(tokens))
