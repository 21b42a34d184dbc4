"""The chat template of a model: makes a prompt from a conversation, and says how replies are read.

Templates differ in the shape of messages that they read and in the variables that switch reasoning.
Both are found by rendering a few messages and looking at the text.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eaglechat.engine.templates import sandbox
from eaglechat.engine.templates.dialect import find_dialect
from eaglechat.engine.templates.sandbox import TemplateRefusedError
from eaglechat.gguf.header import NO_TEMPLATE
from eaglechat.wire.part_stream import PartStream
from eaglechat.wire.protocol import AS_IT_IS, EFFORTS, Message, Reasoning, Thinking

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""For a model without a template whose vocabulary has these markers; llama.cpp takes the same."""
PLAIN = (
    "{% for message in messages %}"
    "{% if not loop.first and message['role'] != 'assistant' %}{{ '\n' }}{% endif %}"
    "{{ message['content'] }}"
    "{% endfor %}"
)
"""For any other model without a template: the text so far, which the model continues."""
_MARKERS = ("<|im_start|>", "<|im_end|>")
_WITHOUT = {
    CHATML: "the chat is written as ChatML, whose markers its vocabulary has",
    PLAIN: "it continues the text of the chat (plain completion)",
}

_ON = {
    "enable_thinking": True,
    "thinking": True,
    "thinking_mode": "enabled",
    "thinking_option": "on",
}
_OFF = {
    "enable_thinking": False,
    "thinking": False,
    "thinking_mode": "disabled",
    "thinking_option": "off",
    "thinking_budget": 0,
}
_EFFORT = ("reasoning_effort", "reasoning_strength", "thinking_effort")
"""The names that different templates have for the same switch. All are given to each template."""

_QUESTION = {"role": "user", "content": "A question that asks nothing."}
_WORDS, _OTHER_WORDS = "What was said here.", "What was said there."

_Messages = Sequence[Mapping[str, Any]]


class ChatTemplate:
    def __init__(
        self,
        source: str | None,
        *,
        bos: str,
        eos: str,
        is_control: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_control` says whether a text is one of the model's control tokens.

        Raises PromptError for a template that is not valid Jinja, or takes too much time or memory.
        """
        own = source if source and not source.isspace() else None
        self._source = own or (CHATML if all(map(is_control, _MARKERS)) else PLAIN)
        self.untemplated = None if own else f"{NO_TEMPLATE}: {_WITHOUT[self._source]}"
        """What is done instead if there is no template; None if there is one."""
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._shape = _find_shape(self._try)
        self.dialect = find_dialect(self._source, self._try, is_control)
        """How replies to this template's prompts mark their reasoning."""
        self.reasoning = self._find_reasoning()
        """What the template supports of reasoning."""

    def render(self, messages: Sequence[Message], thinking: Thinking | None = None) -> str:
        """The prompt's text, up to where the assistant's turn begins. Raises PromptError,
        Cancelled."""
        shaped = self._shape.of(
            [
                {"role": one.role, "content": one.content, "reasoning_content": one.reasoning}
                for one in messages
            ]
        )
        return self._text(shaped, thinking or AS_IT_IS)

    def parts(self, thinking: Thinking | None = None) -> PartStream:
        """Splits a reply to a prompt of this template into its parts. Raises PromptError."""
        # A template that refuses this refuses the prompt too, with a reason.
        prompt = self._try([_QUESTION], thinking or AS_IT_IS) or ""
        return self.dialect.begin(prompt.rpartition(_QUESTION["content"])[2])

    def _find_reasoning(self) -> Reasoning:
        on, off = (self._try([_QUESTION], Thinking(enabled=enabled)) for enabled in (True, False))
        by_effort = {effort: self._try([_QUESTION], Thinking(effort=effort)) for effort in EFFORTS}
        # A template refuses an effort that it does not know.
        known = {effort: text for effort, text in by_effort.items() if text is not None}
        return Reasoning(
            marked=self.dialect.reasons,
            on_off=on is not None and off is not None and on != off,
            efforts=tuple(known) if len(set(known.values())) > 1 else (),
            can_end=bool(self.dialect.answers),
        )

    def _try(
        self,
        messages: _Messages,
        thinking: Thinking = AS_IT_IS,
        *,
        prompting: bool = True,
        shape: _MessageShape | None = None,
    ) -> str | None:
        """What the template makes of messages; None if it refuses them. Raises PromptError."""
        shaped = (shape or self._shape).of(messages)
        try:
            return self._text(shaped, thinking, prompting=prompting)
        except TemplateRefusedError:
            return None

    def _text(self, shaped: _Messages, thinking: Thinking, *, prompting: bool = True) -> str:
        variables = {
            "messages": shaped,
            "add_generation_prompt": prompting,
            **self._tokens,
            **_variables(thinking),
        }
        return sandbox.render(self._source, variables)


@dataclass(frozen=True)
class _MessageShape:
    content_in_blocks: bool = False
    """Content is a list of typed blocks instead of a text."""
    has_system: bool = True
    """Whether a system message stays a message. If not, it is put before the first question."""
    reasoning_in_blocks: bool = False
    """Reasoning is a block of the type thinking instead of a field."""

    def of(self, messages: _Messages) -> list[dict[str, Any]]:
        """Messages with the keys role, content and, if they have any, reasoning."""
        shaped = [dict(message) for message in messages]
        if not self.has_system and shaped and shaped[0]["role"] == "system":
            first, *shaped = shaped
            if shaped:
                shaped[0]["content"] = f"{first['content']}\n{shaped[0]['content']}"
        return [self._message(message) for message in shaped]

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        reasoning = message.pop("reasoning_content", None)
        blocks = [{"type": "text", "text": message["content"]}] if message["content"] else []
        if reasoning and self.reasoning_in_blocks:
            thought = {"type": "thinking", "thinking": reasoning}
            return message | {"content": [thought, *blocks]}
        if self.content_in_blocks:
            message["content"] = blocks
        if reasoning:
            # A template reads one of them; for gpt-oss and LFM2 it is `thinking`.
            message |= {"reasoning_content": reasoning, "thinking": reasoning}
        return message


def _find_shape(render: Callable[..., str | None]) -> _MessageShape:
    """The shape with which a template writes all the words of the messages.

    `render(messages, prompting=False, shape=...)` returns None if the template refuses that.
    """

    def shows(shape: _MessageShape, messages: _Messages) -> bool:
        text = render(messages, prompting=False, shape=shape)
        # A template that expects a text writes a list of blocks as Python's code of it.
        return text is not None and _WORDS in text and "type" not in text

    question = {"role": "user", "content": _WORDS}
    text, blocks = _MessageShape(), _MessageShape(content_in_blocks=True)
    in_blocks = not shows(text, [question]) and shows(blocks, [question])
    system = [{"role": "system", "content": _WORDS}, {"role": "user", "content": _OTHER_WORDS}]
    apart, merged = (_MessageShape(in_blocks, has_system) for has_system in (True, False))
    has_system = shows(apart, system) or not shows(merged, system)
    thought = [
        {"role": "user", "content": _OTHER_WORDS},
        {"role": "assistant", "content": _OTHER_WORDS, "reasoning_content": _WORDS},
    ]
    field = _MessageShape(in_blocks, has_system)
    block = _MessageShape(in_blocks, has_system, reasoning_in_blocks=True)
    return block if not shows(field, thought) and shows(block, thought) else field


def _variables(thinking: Thinking) -> dict[str, Any]:
    """The variables for a template; those that nobody chose are llama.cpp's."""
    now = datetime.datetime.now()
    given: dict[str, Any] = {
        "enable_thinking": True,
        "datetime": now.strftime("%b %d %Y"),
        "date_string": now.strftime("%d %b %Y"),
        # As by transformers: templates ask “is not none” without “is defined”.
        "tools": None,
        "documents": None,
    }
    if thinking.enabled is not None:
        given |= _ON if thinking.enabled else _OFF
    if thinking.effort is not None:
        given |= dict.fromkeys(_EFFORT, thinking.effort)
    return given
