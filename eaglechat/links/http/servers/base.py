"""What kinds of servers share: requests for a reply, reasoning in its text, and its end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from eaglechat.links.http.servers.chunks import Chunk, Usage, Written
from eaglechat.wire.part_stream import Mode, PartStream, Segment
from eaglechat.wire.protocol import Chat
from eaglechat.wire.records import (
    FinishReason,
    Part,
    ReplyEnd,
    ReplyTimings,
    Round,
    RoundTimings,
    Token,
)

_LIMITS = ("length", "max_tokens", "max_output_tokens", "model_length")
"""Reasons of servers for a reply that ends at a limit."""


def common_body(chat: Chat, model: str, seed: int) -> dict[str, Any]:
    """The body with only those fields that every OpenAI-compatible server understands."""
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


def templated_body(chat: Chat, model: str, seed: int) -> dict[str, Any]:
    """The body with fields for the chat template, which llama-server, vLLM and SGLang pass on to
    it. Other servers refuse unknown fields."""
    body = common_body(chat, model, seed)
    for written, message in zip(body["messages"], chat.messages, strict=True):
        if message.reasoning:
            written["reasoning_content"] = message.reasoning
    if chat.messages and chat.messages[-1].role == "assistant":
        # The model continues this message.
        body |= {"add_generation_prompt": False, "continue_final_message": True}
    thinking = {"enable_thinking": chat.thinking.enabled, "reasoning_effort": chat.thinking.effort}
    if variables := {name: value for name, value in thinking.items() if value is not None}:
        body["chat_template_kwargs"] = variables
    return body


_OPENS, _CLOSES = "<think>", "</think>"
_MODES = {
    "start": Mode(None, ((_OPENS, "reasoning"),), otherwise="answer"),
    "reasoning": Mode(Part.REASONING, ((_CLOSES, "after"),), drops_space=True),
    "after": Mode(Part.ANSWER, drops_space=True),
    "answer": Mode(Part.ANSWER),
}


class ReasoningSplitter:
    """Finds the reasoning that a server leaves in the text of its reply, between `<think>` and
    `</think>` at the beginning: vLLM, Ollama and others do unless they are told otherwise.

    A server that sends reasoning apart is believed: its text is not searched for tags.
    """

    def __init__(self) -> None:
        self._stream = PartStream(_MODES, "start")

    def split(self, written: Iterable[Written]) -> list[Written]:
        """The next texts of the reply; returns those whose part is decided now."""
        decided: list[Written] = []
        for text, part in written:
            if part is Part.ANSWER:
                decided += _written(self._stream.push(text))
            else:
                decided += [*self.rest(), (text, part)]
                self._stream = PartStream(_MODES, "answer")
        return decided

    def rest(self) -> list[Written]:
        """The end of the reply; returns what was held back."""
        return _written(self._stream.flush())


def _written(segments: Iterable[Segment]) -> list[Written]:
    return [(text, part) for part, text in segments if part is not None]


def parted_late(rounds: Sequence[Round]) -> list[Round] | None:
    """The rounds of a whole reply that has `</think>` and no `<think>`, with what comes before the
    tag as reasoning: the chat template opened that, and the server does not take it apart. None for
    any other reply, such as one with the tag in code.
    """
    tokens = [token for round_ in rounds for token in round_.tokens]
    text = "".join(token.text for token in tokens)
    before, tag, after = text.partition(_CLOSES)
    line = before.rpartition("\n")[2]
    is_code = before.count("```") % 2 or line.count("`") % 2
    if not tag or _OPENS in before or is_code or any(one.part is Part.REASONING for one in tokens):
        return None
    spaces = len(after) - len(after.lstrip())
    ends = iter(accumulate(len(token.text) for token in tokens))
    begins = len(before)
    answers = begins + len(tag) + spaces

    def parts(token: Token) -> Iterator[Token]:
        end = next(ends)
        start = end - len(token.text)
        thought = text[start : min(end, begins)]
        answer = text[max(start, answers) : end]
        if thought or not answer:
            yield replace(
                token, text=thought, part=Part.REASONING if start < begins else token.part
            )
        if answer:
            yield replace(token, text=answer, part=Part.ANSWER)

    return [
        replace(round_, tokens=tuple(part for token in round_.tokens for part in parts(token)))
        for round_ in rounds
    ]


_TOKENS_WITHOUT_TEXT = 64
LONGEST_DRAFT = 1024
"""Most drafted tokens of one step; a higher count of a server is not believed."""


def most_tokens(written: Sequence[Written]) -> int:
    """The most tokens that a chunk with these texts may count for: one per character, and 64
    without text. A higher count of a server is not believed."""
    return _TOKENS_WITHOUT_TEXT + sum(len(text) for text, _ in written)


def without_times(total_ms: float) -> RoundTimings:
    """Timings of a round of which only the total is known."""
    return RoundTimings(None, None, None, None, total_ms)


class Ending:
    """How a reply ended, and what the server counted. Its times are measured here, for a server
    that does not report them."""

    def __init__(self, chat: Chat) -> None:
        self._limit = chat.max_tokens
        self.finish_reason = ""
        self.usage = Usage()
        self._asked = self._first = self._last = time.monotonic()
        self._has_begun = False

    def take(self, chunk: Chunk) -> None:
        self.usage = chunk.usage or self.usage
        if chunk.choice is not None:
            self.finish_reason = chunk.choice.reason or self.finish_reason

    def why(self, tokens: int, *, is_cancelled: bool) -> FinishReason:
        if is_cancelled:
            return FinishReason.CANCELLED
        if self.finish_reason not in _LIMITS:
            return FinishReason.STOP
        is_limit = self._limit is not None and tokens >= self._limit
        return FinishReason.LENGTH if is_limit else FinishReason.CONTEXT

    def n_past(self, tokens: int) -> int:
        """Tokens of the prompt and of so many generated ones; 0 if the server has not counted the
        prompt."""
        prompt = self.usage.prompt_tokens
        return prompt + tokens if prompt else 0

    def lap(self) -> float:
        """Milliseconds since the previous text; 0 for the first one."""
        now = time.monotonic()
        if not self._has_begun:
            self._has_begun, self._first, self._last = True, now, now
            return 0.0
        took, self._last = now - self._last, now
        return took * 1000.0

    def end(self, n_tokens: int, n_first: int, seed: int, *, is_cancelled: bool) -> ReplyEnd:
        """The end of a reply. `n_tokens`: how many tokens came, which is used if the server does
        not say it; `n_first`: how many of them came with the first text.

        The time that those first tokens took cannot be told from that of the prompt: they are given
        the mean time of the others.
        """
        usage, details = self.usage, self.usage.prompt_tokens_details
        cached = details.cached_tokens or 0 if details else 0
        tokens = usage.completion_tokens or n_tokens
        share_timed = (tokens - n_first) / tokens if tokens > n_first else 1.0
        first = self._first if self._has_begun else time.monotonic()
        return ReplyEnd(
            finish_reason=self.why(tokens, is_cancelled=is_cancelled),
            seed=seed,
            tokens=tokens,
            tail="",
            timings=ReplyTimings(
                prefill_ms=(first - self._asked) * 1000.0,
                prefill_tokens=max((usage.prompt_tokens or 0) - cached, 0),
                reused_tokens=cached,
                generation_ms=(self._last - self._first) * 1000.0 / share_timed,
            ),
        )
