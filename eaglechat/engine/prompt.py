"""What the target reads of a conversation: prompt tokens, by the model's chat template, so that the
KV cache is reused; and which turns are in the context.

When the context is full, the oldest turns leave it, each whole. The chat template says what a turn
is and how the prompt reads without it. The last turn, the one being answered, never leaves.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import accumulate, groupby

import msgspec

from eaglechat.engine.llama.objects import Model
from eaglechat.engine.sequences import common_prefix, cut_starts
from eaglechat.engine.templates.dialect import ReplyParts
from eaglechat.engine.templates.template import ChatTemplate
from eaglechat.wire.errors import PromptError
from eaglechat.wire.protocol import AS_IT_IS, Message, PromptRun, Thinking

_REMEMBERED = 8
_ROOM = 8
"""A reply begins with at least 1/8 of the context free, or with room for all it may write."""
_FREED, _FREED_TO_READ_AGAIN = 4, 2
"""Turns leave until 1/4 of the context is free, or 1/2 if what remains has to be decoded again each
time."""
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
"""Stand around the name of a control token that is text, up to the tokeniser. Unicode keeps these
code points out of texts."""
_QUOTED = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")


class Prompter:
    """Renders conversations to tokens.

    Tokenising the text of a reply may give other tokens than were sampled. If a prompt begins with
    a text whose tokens are known, those tokens are used, so the KV cache that holds them is reused.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._bos = _control_text(model, model.bos)
        self.template = ChatTemplate(
            model.metadata("tokenizer.chat_template"),
            bos=self._bos,
            eos=_control_text(model, model.eos),
            is_control=lambda text: len(model.tokenize(text, bos=False, special=True)) == 1,
        )
        self._known: list[tuple[str, tuple[int, ...]]] = []
        """Quoted texts, with their tokens."""
        self._quote = lru_cache(maxsize=64)(self._find_names)

    def conversation(
        self, messages: Sequence[Message], thinking: Thinking = AS_IT_IS, begun: Sequence[int] = ()
    ) -> Conversation:
        """A conversation to be answered with a reply that already has the tokens `begun`. Raises
        PromptError if those are not this model's."""
        if begun and max(begun) >= self.model.n_vocab:
            raise PromptError("the tokens that the reply is to begin with are not this model's")
        return Conversation(self, messages, thinking, tuple(begun))

    def quoted(self, messages: Sequence[Message], thinking: Thinking = AS_IT_IS) -> str:
        """The text of the prompt, in which the names of control tokens that a user wrote or
        attached are quoted: only those of the template are read as control tokens. In replies, a
        template itself looks for some. Raises PromptError, Cancelled."""
        quoted = [
            one
            if one.role == "assistant"
            else msgspec.structs.replace(one, content=self._quote(one.content))
            for one in messages
        ]
        text = self.template.render(quoted, thinking)
        # The tokeniser adds the BOS token; some templates write it too.
        return text.removeprefix(self._bos) if self.model.adds_bos else text

    def _find_names(self, content: str) -> str:
        """A text with the names of control tokens quoted."""
        content = unquoted(content)
        tokens = self.model.tokenize(content, bos=False, special=True)
        found = {self.model.spelled(one) for one in tokens if not self.model.piece(one)}
        # A tokeniser may add tokens of its own.
        names = {name for one in found if (name := one.decode(errors="replace")) in content}
        pattern = "|".join(map(re.escape, sorted(names - {""}, key=len, reverse=True)))
        if not pattern:
            return content
        return re.sub(pattern, lambda name: f"{_OPEN}{name[0]}{_CLOSE}", content)

    def runs(self, tokens: Sequence[int]) -> tuple[PromptRun, ...]:
        """The text of tokens; each control token and marker of the template is a run of its own."""
        return tuple(
            PromptRun(b"".join(map(self.model.spelled, run)).decode(errors="replace"), is_control)
            for is_control, group in groupby(tokens, self._is_marker)
            for run in ([[token] for token in group] if is_control else [group])
        )

    def _is_marker(self, token: int) -> bool:
        piece, spelled = self.model.piece(token), self.model.spelled(token)
        return bool(spelled) and (not piece or spelled in self._markers)

    def tokens_of(self, text: str) -> tuple[int, ...]:
        """The tokens of a quoted text, the first of them those of the longest known text that it
        begins with."""
        known = [entry for entry in self._known if text.startswith(entry[0])]
        if known:
            start, tokens = max(known, key=lambda entry: len(entry[0]))
            rest = self.tokenize(text[len(start) :], bos=False)
            spelled = b"".join(self.model.spelled(token) for token in rest)
            # Not if the tokeniser put a space before text that it was given alone: those of
            # SentencePiece vocabularies do.
            if spelled == unquoted(text[len(start) :]).encode():
                return tokens + rest
        return self.tokenize(text, bos=True)

    def tokenize(self, text: str, *, bos: bool) -> tuple[int, ...]:
        tokens: list[int] = []
        # Every second part is a quoted name.
        for index, part in enumerate(_QUOTED.split(text)):
            starts = bos and index == 0
            tokens += self.model.tokenize(unquoted(part), bos=starts, special=index % 2 == 0)
        return tuple(tokens)

    def parts(self, thinking: Thinking = AS_IT_IS, begun: Sequence[int] = ()) -> ReplyParts:
        closing = self.tokenize(self.template.dialect.answers, bos=False)
        return ReplyParts(self.template.parts(thinking), self.written, closing, tuple(begun))

    def written(self, token: int) -> bytes:
        """The bytes of a token, including control tokens that are markers of the template."""
        piece = self.model.piece(token)
        if piece or not self._markers:
            return piece
        spelled = self.model.spelled(token)
        return spelled if any(spelled in marker for marker in self._markers) else b""

    @cached_property
    def _markers(self) -> tuple[bytes, ...]:
        return tuple(marker.encode() for marker in self.template.dialect.markers)

    def remember(self, text: str, tokens: tuple[int, ...]) -> None:
        """Prompts that begin with this quoted text begin with these tokens from now on."""
        self._known = [entry for entry in self._known if entry[0] != text]
        self._known = [*self._known[1 - _REMEMBERED :], (text, tokens)]


class Asked:
    """A prompt to be answered. Of one that is tokens alone, nothing can leave the context."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._given = tuple(tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        return self._given

    @property
    def parts(self) -> ReplyParts | None:
        """How the reply is divided into reasoning and answer; None if all of it is the answer."""
        return None

    @property
    def count(self) -> int:
        """The number of turns, the one to be answered included."""
        return 0

    def without(self, n: int) -> tuple[int, ...]:
        """The prompt's tokens without its first `n` turns."""
        assert n == 0
        return self.tokens

    def boundaries(self) -> tuple[int, ...]:
        """Positions in the prompt up to which later prompts are likely to be the same."""
        return ()


class Conversation(Asked):
    """A conversation, of which the oldest turns may leave the context.

    A turn is a user's message and what follows up to the next one. System messages before the first
    turn are in every prompt. What renders or tokenises raises PromptError, Cancelled.
    """

    def __init__(
        self,
        prompter: Prompter,
        messages: Sequence[Message],
        thinking: Thinking,
        begun: tuple[int, ...],
    ) -> None:
        self._prompter, self._model = prompter, prompter.model
        self._messages, self._thinking = messages, thinking
        self._begun = begun
        self._starts = [i for i, message in enumerate(messages) if message.role == "user"]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The prompt for the next reply, followed by the tokens that it already has."""
        return self._tokens + self._begun

    @property
    def text(self) -> str:
        return unquoted(self._quoted)

    @property
    def parts(self) -> ReplyParts:
        return self._prompter.parts(self._thinking, self._begun)

    @property
    def count(self) -> int:
        return len(self._starts)

    def note_reply(self, reply: Sequence[int]) -> None:
        """Later prompts that begin with this one and the reply have the tokens that were
        sampled."""
        self._prompter.remember(self._quoted, self._tokens)
        written = [one for one in (*self._begun, *reply) if not self._model.is_end(one)]
        with suppress(UnicodeDecodeError):
            text = b"".join(map(self._prompter.written, written)).decode()
            self._prompter.remember(self._quoted + text, (*self._tokens, *written))

    def without(self, n: int) -> tuple[int, ...]:
        """What remains keeps its tokens, unless the template renders it differently."""
        return self._prompt_without(n) + self._begun

    def _prompt_without(self, n: int) -> tuple[int, ...]:
        if n == 0:
            return self._tokens
        head = self._messages[: self._starts[0]]
        system = [message for message in head if message.role == "system"]
        left = [*system, *self._messages[self._starts[n] :]]
        shorter = self._prompter.quoted(left, self._thinking)
        text, rest = self.text.encode(), unquoted(shorter).encode()
        removed = len(text) - len(rest)
        for start in reversed(cut_starts(text, rest)):
            first, last = self._boundaries.get(start), self._boundaries.get(start + removed)
            if first is not None and last is not None:
                return self._tokens[:first] + self._tokens[last:]
        return self._prompter.tokenize(shorter, bos=True)

    def boundaries(self) -> tuple[int, ...]:
        """The start of the last message's text, which may be edited, and the start of the reply,
        since templates leave its reasoning out of later prompts. Fewer if the template refuses such
        prompts."""
        if not self._messages:
            return ()
        *before, last = self._messages
        other = "b" if last.content.startswith("a") else "a"
        edited = [*before, msgspec.structs.replace(last, content=other)]
        later = [Message(role=role, content=other) for role in ("assistant", "user")]
        found = []
        for messages in (edited, [*self._messages, *later]):
            with suppress(PromptError):
                changed = self._prompter.tokens_of(self._prompter.quoted(messages, self._thinking))
                found.append(common_prefix(self._tokens, changed))
        return tuple(found)

    @cached_property
    def _quoted(self) -> str:
        return self._prompter.quoted(self._messages, self._thinking)

    @cached_property
    def _tokens(self) -> tuple[int, ...]:
        return self._prompter.tokens_of(self._quoted)

    @cached_property
    def _boundaries(self) -> dict[int, int]:
        """By byte of the text, the index of the token that begins there."""
        spelled = [self._model.spelled(token) for token in self._tokens]
        if self._model.adds_bos and self._tokens[0] == self._model.bos:
            spelled[0] = b""
        joined = b"".join(spelled)
        text = self.text.encode()
        # SentencePiece vocabularies put a space before the first word.
        extra = len(joined) - len(text)
        if not joined.endswith(text) or extra not in (0, 1):
            return {}
        return {
            offset - extra: index
            for index, offset in enumerate(accumulate(map(len, spelled), initial=0))
        }


class ContextWindow:
    """The part of one conversation that is in the context. Turns that have left do not come
    back."""

    def __init__(self, asked: Asked, n_ctx: int, *, can_shift: bool) -> None:
        self._asked = asked
        self._n_ctx = n_ctx
        self._freed = n_ctx // (_FREED if can_shift else _FREED_TO_READ_AGAIN)
        self.first_turn = 0
        self.tokens: Sequence[int] = asked.tokens
        """The prompt's tokens without the turns that have left."""

    @property
    def tokens_dropped(self) -> int:
        return len(self._asked.tokens) - len(self.tokens)

    def has_room(self, tokens: int) -> bool:
        """Whether there is room for a reply of this many tokens, or at least for 1/8 of the
        context."""
        return len(self.tokens) + min(tokens, self._n_ctx // _ROOM) <= self._n_ctx

    def fit(self, tokens: int, first_turn: int, cached: Sequence[int]) -> Sequence[int]:
        """Have turns leave until there is room for a reply of this many tokens.

        The KV cache holds the tokens `cached`, which begin with turn `first_turn`. If they are of
        this conversation, the turns before that one leave first: what left before an earlier reply
        stays away. Returns the tokens before any other turn left, which the KV cache may hold.
        """
        if not self.has_room(tokens) and 0 < first_turn < self._asked.count:
            held = self._asked.without(first_turn)
            if 2 * common_prefix(cached, held) > len(cached):
                self.first_turn, self.tokens = first_turn, held
        before = self.tokens
        if not self.has_room(tokens):
            self.move()
        return before

    def move(self, n_written: int = 0) -> bool:
        """Have the oldest turns leave until enough of the context is free behind the prompt and
        `n_written` tokens of a reply. False if only the last turn is left."""
        asked = self._asked
        if self.first_turn >= asked.count - 1:
            return False
        wanted = self._n_ctx - self._freed - n_written
        candidates = range(self.first_turn + 1, asked.count - 1)
        index = bisect_left(candidates, True, key=lambda n: len(asked.without(n)) <= wanted)
        first_turn = self.first_turn + 1 + index
        self.first_turn, self.tokens = first_turn, asked.without(first_turn)
        return True


def unquoted(text: str) -> str:
    return text.replace(_OPEN, "").replace(_CLOSE, "")


def _control_text(model: Model, token: int) -> str:
    """The text of a control token; empty if the model has none (-1)."""
    return "" if token < 0 else model.spelled(token).decode(errors="replace")
