"""Kinds of OpenAI-compatible servers: what each is asked, and which fields of a request one may
refuse, as they are optional."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from eaglechat.wire.protocol import Capabilities, Chat

_OF_MESSAGES = "reasoning_content"
"""An optional field of each message."""
_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"
_NEEDED = ("model", "messages", _NEW_LIMIT)


class OpenAIServer:
    """A server that is not known to be of another kind: its requests have only those fields that
    every OpenAI-compatible server understands, as others are refused."""

    name = "this server"
    """As it is written in “not reported by vLLM”."""
    can = Capabilities()
    n_draft_max = 0
    """The longest draft that it was seen to make."""
    drafter = ""
    """Who drafts, if that is known: no server says it."""

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": [{"role": one.role, "content": one.content} for one in chat.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": chat.sampling.temperature,
            "top_p": chat.sampling.top_p,
            "seed": seed,
        }
        if model:
            body["model"] = model
        if chat.max_tokens is not None:
            body["max_tokens"] = chat.max_tokens
        if chat.stop:
            body["stop"] = list(chat.stop)
        return body


class TemplatedServer(OpenAIServer):
    """A server that passes fields on to the chat template."""

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        body = super().body(chat, model, seed)
        for written, message in zip(body["messages"], chat.messages, strict=True):
            if message.reasoning:
                written["reasoning_content"] = message.reasoning
        if chat.messages and chat.messages[-1].role == "assistant":
            # The model continues this message.
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        thinking = chat.thinking
        variables = {"enable_thinking": thinking.enabled, "reasoning_effort": thinking.effort}
        if given := {name: value for name, value in variables.items() if value is not None}:
            body["chat_template_kwargs"] = given
        return body


class LlamaServer(TemplatedServer):
    name = "llama-server"
    can = Capabilities(origins=True, prompt=True, goes_on_from_text=True)

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        sampling = chat.sampling
        return super().body(chat, model, seed) | {
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "repeat_penalty": sampling.repeat_penalty,
            "timings_per_token": True,
            "return_progress": True,
        }


class LlamaSwap(LlamaServer):
    """A proxy that starts a server for each model, when it is first asked for a reply. That is
    mostly llama-server, so it is asked as llama-server is; other servers ignore the fields they do
    not know."""

    name = "llama-swap"
    can = Capabilities(origins=True, goes_on_from_text=True)


class VLLM(TemplatedServer):
    """Started with `--per-request-spec-decode-metrics detailed`, it counts drafted tokens."""

    name = "vLLM"
    can = Capabilities(goes_on_from_text=True)

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        # min_p is left out: vLLM refuses it when it speculates.
        return super().body(chat, model, seed) | {
            "top_k": chat.sampling.top_k or -1,
            "repetition_penalty": chat.sampling.repeat_penalty,
            # A chunk is a step of its engine, which may have several tokens.
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }


class SGLang(VLLM):
    name = "SGLang"

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        return super().body(chat, model, seed) | {"return_spec_tokens_details": True}


def refused_fields(body: Mapping[str, Any], said: str) -> frozenset[str]:
    """The optional fields of a request that a server names in its refusal; empty if another request
    would be refused too."""
    has_reasoning = any(_OF_MESSAGES in message for message in body["messages"])
    optional = {name: value for name, value in body.items() if name not in _NEEDED}
    optional |= {_OF_MESSAGES: None} if has_reasoning else {}
    named = {
        name
        for name, value in optional.items()
        if any(_is_named(one, said) for one in (name, *(value if isinstance(value, dict) else ())))
    }
    if "streaming" in said or "stream" in named:
        # A reply in one piece is read too.
        named |= {"stream", "stream_options"}.intersection(optional)
    if {"temperature", "top_p"} <= named:
        # A server that takes only one of them.
        named -= {"temperature"}
    if _NEW_LIMIT not in said:
        # The reply would be longer than was asked for.
        named -= {_LIMIT}
    return frozenset(named)


def without(body: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    left = {name: value for name, value in body.items() if name not in fields}
    if _LIMIT in fields and _LIMIT in body:
        left[_NEW_LIMIT] = body[_LIMIT]
    if _OF_MESSAGES in fields:
        left["messages"] = [
            {name: value for name, value in message.items() if name != _OF_MESSAGES}
            for message in body["messages"]
        ]
    return left


def _is_named(name: str, said: str) -> bool:
    """Whether a text names a field. A word such as `stop` has to stand in quotes, in a path, or
    where a name is expected."""
    if "_" in name:
        return re.search(rf"\b{name}\b", said) is not None
    before = (
        r"[\"'`“.]|[:,(\[] ?|^|\b(?:field|parameter|param|argument|property|option|key|input)s?:? +"
    )
    return re.search(rf"(?:{before}){name}\b", said) is not None
