"""From a conversation to prompt tokens: the model's own chat template, and what the cache knows.

The template comes out of a model file, so it runs in Jinja's immutable sandbox.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from eaglechat.engine.generation.window import cut_starts
from eaglechat.engine.llama.objects import Model
from eaglechat.wire.errors import PromptError
from eaglechat.wire.protocol import Message

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""llama.cpp's choice too for a model that brings no template."""

_REMEMBERED = 8


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; to a chat it means nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """The chat template of a model. Raises PromptError for one that is no valid Jinja."""

    def __init__(self, source: str | None, *, bos: str, eos: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _now
        try:
            self._template = environment.from_string(source or CHATML)
        except jinja2.TemplateError as error:
            raise PromptError(f"the model's chat template is not valid Jinja: {error}") from error
        self._bos, self._eos = bos, eos

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt's text, up to where the assistant's turn begins. Raises PromptError."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return self._template.render(
                messages=turns,
                add_generation_prompt=True,
                bos_token=self._bos,
                eos_token=self._eos,
            )
        except Exception as error:  # a template is a program out of a file: it may raise anything
            raise PromptError(
                f"the model's chat template refuses this conversation: {error}"
            ) from error


class Prompter:
    """Renders conversations to tokens, so that what was generated is found in the KV cache again.

    Tokenising a reply's text need not give the tokens that were sampled. Where the new prompt
    begins with a text whose tokens are known, those tokens stand for it.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._bos = _control_text(model, model.bos)
        source = model.metadata("tokenizer.chat_template")
        self._template = ChatTemplate(source, bos=self._bos, eos=_control_text(model, model.eos))
        self._known: list[tuple[str, tuple[int, ...]]] = []

    def text(self, messages: Sequence[Message]) -> str:
        """The prompt before it is tokenised. Raises PromptError."""
        text = self._template.render(messages)
        # Tokenising adds it; some templates write it too.
        return text.removeprefix(self._bos) if self._model.adds_bos else text

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The tokens of the prompt for the next reply. Raises PromptError."""
        text = self.text(messages)
        tokens = self._continued(text) or self._tokenize(text, bos=True)
        self._remember(text, tokens)
        return tokens

    def _continued(self, text: str) -> tuple[int, ...] | None:
        """The tokens of a text that goes on from the longest known one, if it can."""
        known = [entry for entry in self._known if text.startswith(entry[0])]
        if not known:
            return None
        start, tokens = max(known, key=lambda entry: len(entry[0]))
        rest = self._tokenize(text[len(start) :], bos=False)
        # SentencePiece vocabularies put a space before text that stands alone: not the same prompt.
        spelled = b"".join(self._model.spelled(token) for token in rest)
        return tokens + rest if spelled == text[len(start) :].encode() else None

    def _tokenize(self, text: str, *, bos: bool) -> tuple[int, ...]:
        return tuple(self._model.tokenize(text, bos=bos, special=True))

    def turns(self, messages: Sequence[Message]) -> ConversationTurns:
        """The turns of a conversation, to let the oldest of them leave the context."""
        return ConversationTurns(self, self._model, messages)

    def tokens_of(self, text: str) -> tuple[int, ...]:
        """The tokens of a prompt's text by itself, whatever was generated before."""
        return self._tokenize(text, bos=True)

    def note_reply(self, prompt: tuple[int, ...], reply: Sequence[int]) -> None:
        """Remember the sampled tokens of a reply to a prompt this object made."""
        before = next((text for text, tokens in self._known if tokens == prompt), None)
        written = [token for token in reply if not self._model.is_end(token)]
        piece = b"".join(self._model.piece(token) for token in written)
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError:
            return
        if before is not None and written:
            self._remember(before + text, prompt + tuple(written))

    def _remember(self, text: str, tokens: tuple[int, ...]) -> None:
        self._known = [entry for entry in self._known if entry[0] != text]
        self._known = [*self._known[1 - _REMEMBERED :], (text, tokens)]


class ConversationTurns:
    """The turns of a conversation: a user's message and what follows it up to the next one.

    System messages before the first turn are in every prompt.
    """

    def __init__(self, prompter: Prompter, model: Model, messages: Sequence[Message]) -> None:
        self._prompter = prompter
        self._model = model
        self._messages = messages
        self._starts = [i for i, message in enumerate(messages) if message.role == "user"]

    @property
    def count(self) -> int:
        return len(self._starts)

    def without(self, n: int) -> tuple[int, ...]:
        """The prompt's tokens without its first `n` turns, those of what remains unchanged where
        the template allows it. Raises PromptError."""
        if n == 0:
            return self._tokens
        head = self._messages[: self._starts[0]]
        system = [message for message in head if message.role == "system"]
        shorter = self._prompter.text([*system, *self._messages[self._starts[n] :]])
        text, rest = self._text.encode(), shorter.encode()
        removed = len(text) - len(rest)
        for start in reversed(cut_starts(text, rest)):
            first, last = self._boundaries.get(start), self._boundaries.get(start + removed)
            if first is not None and last is not None:
                return self._tokens[:first] + self._tokens[last:]
        return self._prompter.tokens_of(shorter)

    @cached_property
    def _text(self) -> str:
        return self._prompter.text(self._messages)

    @cached_property
    def _tokens(self) -> tuple[int, ...]:
        return self._prompter.prompt(self._messages)

    @cached_property
    def _boundaries(self) -> dict[int, int]:
        """Byte of the text -> index of the token that begins there."""
        spelled = [self._model.spelled(token) for token in self._tokens]
        if self._model.adds_bos and self._tokens[0] == self._model.bos:
            spelled[0] = b""
        joined = b"".join(spelled)
        text = self._text.encode()
        # SentencePiece vocabularies put a space before the first word.
        extra = len(joined) - len(text)
        if not joined.endswith(text) or extra not in (0, 1):
            return {}
        return {
            offset - extra: index
            for index, offset in enumerate(accumulate(map(len, spelled), initial=0))
        }


def _control_text(model: Model, token: int) -> str:
    """A control token spelled out; empty where the model has none (-1)."""
    return "" if token < 0 else model.spelled(token).decode(errors="replace")


def _to_json(value: Any, indent: int | None = None, **_options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)
