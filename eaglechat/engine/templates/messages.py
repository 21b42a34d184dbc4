"""Messages in the shape that a chat template reads: found by showing it some and looking whether
their words come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Dicts = list[dict[str, Any]]

_WORDS = "What was said here."
_OTHERS = "What was said there."


@dataclass(frozen=True)
class Shape:
    """How a template wants messages."""

    content_in_blocks: bool = False
    """Content as a list of typed blocks, not as text."""
    system_apart: bool = True
    """A system message of its own; else it goes ahead of the first question."""
    reasoning_in_blocks: bool = False
    """Reasoning as a block of type thinking, not as a field."""

    def of(self, messages: Sequence[Mapping[str, Any]]) -> Dicts:
        """The messages in this shape: role, content, and reasoning where there is some."""
        shaped = [dict(message) for message in messages]
        if not self.system_apart and shaped and shaped[0]["role"] == "system":
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
            # A template reads one of them; gpt-oss's and LFM2's call it thinking.
            message |= {"reasoning_content": reasoning, "thinking": reasoning}
        return message


def find_shape(render: Callable[[Dicts], str]) -> Shape:
    """The shape in which a template's text has all the words it is given. `render` renders
    messages as they are and may raise anything."""

    def shows(shape: Shape, messages: Dicts) -> bool:
        try:
            text = render(shape.of(messages))
        except Exception:  # a template is a program out of a file: it may raise anything
            return False
        # A list that a template takes for text comes out as code.
        return _WORDS in text and "type" not in text

    question = {"role": "user", "content": _WORDS}
    in_blocks = not shows(Shape(), [question]) and shows(Shape(content_in_blocks=True), [question])
    system = [{"role": "system", "content": _WORDS}, {"role": "user", "content": _OTHERS}]
    apart = Shape(in_blocks, system_apart=True)
    merged = Shape(in_blocks, system_apart=False)
    system_apart = shows(apart, system) or not shows(merged, system)
    thought = [
        {"role": "user", "content": _OTHERS},
        {"role": "assistant", "content": _OTHERS, "reasoning_content": _WORDS},
    ]
    field = Shape(in_blocks, system_apart)
    blocks = Shape(in_blocks, system_apart, reasoning_in_blocks=True)
    return blocks if not shows(field, thought) and shows(blocks, thought) else field
