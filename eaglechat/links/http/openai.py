"""Kinds of OpenAI-compatible servers: what each is asked, and how its replies are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eaglechat.links.http.reply import Reply
from eaglechat.wire.protocol import AnyEvent, Capabilities, Chat


class OpenAIServer:
    """A server that is not known to be of another kind: its requests have only those fields that
    every OpenAI-compatible server understands, as others are refused."""

    name = "this server"
    """As it is written in “not reported by vLLM”."""
    can = Capabilities()

    def body(self, chat: Chat, model: str, seed: int) -> dict[str, Any]:
        """The body of the request for a reply."""
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

    def reply(self, chat: Chat, say: Callable[[AnyEvent], None]) -> Reply:
        """Reads the answer to that request."""
        return Reply(chat, say)


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
