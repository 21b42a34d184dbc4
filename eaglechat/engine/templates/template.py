"""The chat template of a model: makes a prompt from a conversation, and says how replies are read.

Templates differ in the shape of messages that they read and in the variables that switch reasoning.
Both are found by rendering a few messages and looking at the text.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eaglechat.engine.templates.dialect import Dialect, find_dialect
from eaglechat.engine.templates.sandbox import CancelledError, Template
from eaglechat.wire.errors import PromptCancelledError
from eaglechat.wire.part_stream import PartStream
from eaglechat.wire.protocol import AS_IT_IS, EFFORTS, Message, Thinking

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""For a model without a template; llama.cpp takes the same."""

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

_QUESTION = "A question that asks nothing."
_WORDS, _OTHER_WORDS = "What was said here.", "What was said there."

_Messages = Sequence[Mapping[str, Any]]


class ChatTemplate:
    """The chat template of a model."""

    def __init__(
        self,
        source: str | None,
        *,
        bos: str,
        eos: str,
        is_control: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_control` says whether a text is one of the model's control tokens.

        Raises PromptError for a template that is not valid Jinja.
        """
        self._source = source or CHATML
        self._template = Template(self._source)
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._is_control = is_control

    def render(
        self,
        messages: Sequence[Message],
        thinking: Thinking | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> str:
        """The prompt's text, up to where the assistant's turn begins.

        Raises PromptError, PromptCancelledError.
        """
        try:
            with self._template.limits(cancelled):
                shaped = self._shape.of([_as_dict(message) for message in messages])
                return self._text(shaped, _variables(thinking or AS_IT_IS))
        except CancelledError:
            raise PromptCancelledError("cancelled while the prompt was rendered") from None

    def parts(self, thinking: Thinking | None = None) -> PartStream:
        """Splits a reply to a prompt of this template into its parts."""
        try:
            given = _variables(thinking or AS_IT_IS)
            prompt = self._text([{"role": "user", "content": _QUESTION}], given)
        except Exception:  # the prompt itself is refused too, with a reason
            prompt = ""
        return self.dialect.begin(prompt.rpartition(_QUESTION)[2])

    @cached_property
    def dialect(self) -> Dialect:
        """How replies to this template's prompts mark their reasoning."""

        def render(messages: _Messages, *, add_generation_prompt: bool) -> str:
            shaped = self._shape.of(messages)
            return self._text(shaped, _variables(AS_IT_IS), prompting=add_generation_prompt)

        with self._template.limits():
            return find_dialect(self._source, render, self._is_control)

    @cached_property
    def switches(self) -> Switches:
        """What the template lets one choose."""
        question = [{"role": "user", "content": _QUESTION}]
        with self._template.limits():
            return _find_switches(lambda given: self._text(question, given))

    @cached_property
    def _shape(self) -> _MessageShape:
        given = _variables(AS_IT_IS)
        return _find_shape(lambda messages: self._text(messages, given, prompting=False))

    def _text(
        self, messages: _Messages, given: Mapping[str, Any], *, prompting: bool = True
    ) -> str:
        return self._template.render(
            messages=messages, add_generation_prompt=prompting, **self._tokens, **given
        )


def _as_dict(message: Message) -> dict[str, Any]:
    """A message as most templates read it."""
    reasoning = {"reasoning_content": message.reasoning} if message.reasoning else {}
    return {"role": message.role, "content": message.content, **reasoning}


@dataclass(frozen=True)
class _MessageShape:
    """How a template wants messages."""

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


def _find_shape(render: Callable[[_Messages], str]) -> _MessageShape:
    """The shape with which a template writes all the words of the messages."""

    def shows(shape: _MessageShape, messages: _Messages) -> bool:
        try:
            text = render(shape.of(messages))
        except Exception:  # it refuses this shape
            return False
        # A template that expects a text writes a list of blocks as Python's code of it.
        return _WORDS in text and "type" not in text

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


@dataclass(frozen=True)
class Switches:
    """What a template lets one choose."""

    on_off: bool
    efforts: tuple[str, ...]


def _variables(thinking: Thinking, now: datetime.datetime | None = None) -> dict[str, Any]:
    """The variables for a template; those that nobody chose are llama.cpp's."""
    now = now or datetime.datetime.now()
    given: dict[str, Any] = {
        "enable_thinking": True,
        "datetime": now.strftime("%b %d %Y"),
        "date_string": now.strftime("%d %b %Y"),
    }
    if thinking.enabled is not None:
        given |= _ON if thinking.enabled else _OFF
    if thinking.effort is not None:
        given |= dict.fromkeys(_EFFORT, thinking.effort)
    return given


def _find_switches(render: Callable[[Mapping[str, Any]], str]) -> Switches:
    """The switches that change what `render(variables)` makes of a conversation."""
    now = datetime.datetime.now()

    def text_with(thinking: Thinking) -> str | None:
        try:
            return render(_variables(thinking, now))
        except Exception:  # it refuses an effort that it does not know
            return None

    on, off = text_with(Thinking(enabled=True)), text_with(Thinking(enabled=False))
    by_effort = {effort: text_with(Thinking(effort=effort)) for effort in EFFORTS}
    differ = len({text for text in by_effort.values() if text is not None}) > 1
    return Switches(
        on_off=on is not None and off is not None and on != off,
        efforts=tuple(e for e, text in by_effort.items() if differ and text is not None),
    )
