"""The chat template of a model: prompts out of conversations, and what it says of replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from eaglechat.engine.templates.dialect import Dialect, find_dialect
from eaglechat.engine.templates.messages import Shape, find_shape
from eaglechat.engine.templates.sandbox import CancelledError, Template, TooMuchError
from eaglechat.engine.templates.variables import Switches, find_switches, variables
from eaglechat.wire.errors import PromptCancelledError, PromptError
from eaglechat.wire.part_stream import PartStream
from eaglechat.wire.protocol import Message, Thinking

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""llama.cpp's choice too for a model that brings no template."""

_QUESTION = "A question, to see what stands behind it."


class ChatTemplate:
    """The chat template of a model. Raises PromptError for one that is no valid Jinja."""

    def __init__(
        self,
        source: str | None,
        *,
        bos: str,
        eos: str,
        is_control: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_control` knows the texts of the model's control tokens."""
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
                return self._text(shaped, variables(thinking or Thinking()))
        except CancelledError:
            raise PromptCancelledError("cancelled while the prompt was rendered") from None
        except TooMuchError as error:
            raise PromptError(f"the model's chat template was stopped: {error}") from None
        except PromptError:
            raise
        except RecursionError:
            raise PromptError("the model's chat template calls itself without end") from None
        except Exception as error:  # a template is a program out of a file: it may raise anything
            reason = str(error) or type(error).__name__
            raise PromptError(
                f"the model's chat template refuses this conversation: {reason}"
            ) from error

    def parts(self, thinking: Thinking | None = None) -> PartStream:
        """Follows the parts of a reply to a prompt of this template."""
        try:
            given = variables(thinking or Thinking())
            prompt = self._text([{"role": "user", "content": _QUESTION}], given)
        except Exception:  # the prompt itself is refused too, with a reason
            prompt = ""
        return self.dialect.begin(prompt.rpartition(_QUESTION)[2])

    @cached_property
    def dialect(self) -> Dialect:
        """How replies to this template's prompts mark their reasoning."""

        def render(messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool) -> str:
            shaped = self._shape.of(messages)
            return self._text(shaped, variables(Thinking()), prompting=add_generation_prompt)

        with self._template.limits():
            return find_dialect(self._source, render, self._is_control)

    @cached_property
    def switches(self) -> Switches:
        """What the template lets one choose."""
        question = [{"role": "user", "content": _QUESTION}]
        with self._template.limits():
            return find_switches(lambda given: self._text(question, given))

    @cached_property
    def _shape(self) -> Shape:
        given = variables(Thinking())
        return find_shape(lambda messages: self._text(messages, given, prompting=False))

    def _text(
        self,
        messages: Sequence[Mapping[str, Any]],
        given: Mapping[str, Any],
        *,
        prompting: bool = True,
    ) -> str:
        return self._template.render(
            messages=messages, add_generation_prompt=prompting, **self._tokens, **given
        )


def _as_dict(message: Message) -> dict[str, Any]:
    """A message as templates know it."""
    reasoning = {"reasoning_content": message.reasoning} if message.reasoning else {}
    return {"role": message.role, "content": message.content, **reasoning}
