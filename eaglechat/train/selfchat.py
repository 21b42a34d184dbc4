"""Chats that the target writes itself: a user's turn from the empty slot of its own template, then
the reply. Many at once, since a batch of tokens costs little more than one.

Each chat has a number, which with the run's seed seeds its samplers, and is written to disk when it
ends: a run that was stopped goes on with the numbers that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from eaglechat.engine.chat import Prompter
from eaglechat.engine.errors import DecodeError
from eaglechat.engine.native import Batch, Context, Model
from eaglechat.engine.protocol import Message, Sampling
from eaglechat.engine.sampler import Sampler
from eaglechat.train.corpus import TokenLine
from eaglechat.train.errors import PausedError, TrainingError

TEMPERATURES = (0.0, 0.7, 0.0, 0.7, 1.0)
"""Of the replies, by the chat's number; greedy among them because that is how drafts are judged."""

_USER = Sampling(temperature=1.0, top_k=0, top_p=0.98, min_p=0.01)
_SLOT = "EAGLECHATSLOT"
_LONGEST_QUESTION = 256
_SHORTEST_QUESTION = 2
_CHATS_A_SEED = 10_000_019
"""More chats than a run writes: those of two seeds are never sampled alike."""
_SEEDS = (1 << 32) - 1
"""llama.cpp takes the number after the last one to mean any."""


class WrittenChat(TokenLine, omit_defaults=True, kw_only=True):
    """A line of the file: the chat, with its number."""

    n: int


class UserSlot:
    """The template around a user's turn: the tokens before it and those between it and the reply.

    Raises TrainingError for a template that does not show the turn as it is.
    """

    def __init__(self, model: Model) -> None:
        prompter = Prompter(model)
        text = prompter.text([Message(role="user", content=_SLOT)])
        before, slot, after = text.partition(_SLOT)
        if not slot or not after:
            raise TrainingError(
                "the target's chat template does not show a user's turn as it is written, so the "
                "target cannot write one; give chats with --chats"
            )
        self.before = model.tokenize(before, bos=True, special=True)
        self.after = model.tokenize(after, bos=False, special=True)


def written_chats(path: Path) -> list[WrittenChat]:
    """The chats in a file; a last line cut short by a crash is passed over. Raises OSError."""
    if not path.exists():
        return []
    chats = []
    for line in path.read_bytes().splitlines():
        try:
            chats.append(msgspec.json.decode(line, type=WrittenChat))
        except msgspec.DecodeError:
            continue
    return chats


class ChatWriter:
    """Writes chats side by side in one context. Close it to free it."""

    def __init__(
        self, model: Model, *, n_side_by_side: int, longest: int, n_threads: int, seed: int = 1
    ) -> None:
        """`longest` bounds a chat in tokens; another `seed` writes other chats.

        Raises ModelLoadError, TrainingError.
        """
        self._model = model
        self._seed = seed
        self._longest = longest
        self._slot = UserSlot(model)
        if len(self._slot.before) + len(self._slot.after) + _SHORTEST_QUESTION >= longest:
            raise TrainingError(
                f"the target's chat template alone takes {len(self._slot.before)} tokens and more, "
                f"chats are limited to {longest}; raise --longest"
            )
        self._context = Context(
            model,
            n_ctx=n_side_by_side * longest,
            n_batch=max(512, n_side_by_side),
            n_threads=n_threads,
            n_seq=n_side_by_side,
        )
        self._batch = Batch(self._context)
        self._n_side_by_side = n_side_by_side

    def close(self) -> None:
        self._batch.close()
        self._context.close()

    def write(
        self,
        path: Path,
        n_tokens: int,
        on_tokens: Callable[[int], None],
        paused: Callable[[], bool],
    ) -> None:
        """Append chats to a file until it holds `n_tokens`; `on_tokens` gets its size.

        Raises PausedError, DecodeError, OSError.
        """
        done = written_chats(path)
        size = sum(len(chat.t) for chat in done)
        on_tokens(size)
        numbers = _missing({chat.n for chat in done})
        with path.open("ab") as file:
            if done and not path.read_bytes().endswith(b"\n"):
                file.write(b"\n")
            for chat in self._chats(numbers):
                if paused():
                    raise PausedError
                if chat is None:
                    continue
                file.write(msgspec.json.encode(chat) + b"\n")
                file.flush()
                size += len(chat.t)
                on_tokens(size)
                if size >= n_tokens:
                    return

    def _chats(self, numbers: Iterator[int]) -> Iterator[WrittenChat | None]:
        """Chats as they end, and None after each step that ended none."""
        chats = [self._begin(seq_id, next(numbers)) for seq_id in range(self._n_side_by_side)]
        try:
            while True:
                self._step(chats)
                ended = [seq_id for seq_id, chat in enumerate(chats) if chat.ended]
                for seq_id in ended:
                    chat = chats[seq_id]
                    chat.close()
                    self._context.forget(seq_id, 0)
                    chats[seq_id] = self._begin(seq_id, next(numbers))
                    if chat.line is not None:
                        yield chat.line
                if not ended:
                    yield None
        finally:
            for chat in chats:
                chat.close()
            for seq_id in range(self._n_side_by_side):
                self._context.forget(seq_id, 0)

    def _begin(self, seq_id: int, number: int) -> _Chat:
        seed = (self._seed - 1) * _CHATS_A_SEED + number
        return _Chat(
            self._model, self._slot, seq_id, number=number, seed=seed, longest=self._longest
        )

    def _step(self, chats: Sequence[_Chat]) -> None:
        """Decode what is new of each chat, as far as the batch holds it, and sample once."""
        self._batch.clear()
        sampled: list[tuple[_Chat, int]] = []
        for chat in chats:
            if len(self._batch) + len(chat.waiting) > self._context.n_batch:
                continue
            first = len(chat.tokens) - len(chat.waiting)
            self._batch.add_tokens(chat.waiting[:-1], first, chat.seq_id, output=False)
            self._batch.add_token(chat.waiting[-1], len(chat.tokens) - 1, chat.seq_id, output=True)
            sampled.append((chat, len(self._batch) - 1))
        status = self._context.decode(self._batch)
        if status != 0:
            raise DecodeError(f"the target failed to decode (llama.cpp status {status})")
        for chat, row in sampled:
            chat.take(chat.sampler.sample(self._context, row))


class _Chat:
    """One chat in the making."""

    def __init__(
        self, model: Model, slot: UserSlot, seq_id: int, *, number: int, seed: int, longest: int
    ) -> None:
        self._model, self._slot, self._number, self._longest = model, slot, number, longest
        self._seed = seed
        self.seq_id = seq_id
        self.tokens = list(slot.before) or [max(model.bos, 0)]
        self.waiting = list(self.tokens)
        self._question_starts = len(self.tokens)
        self._reply_starts: int | None = None
        self._temperature = TEMPERATURES[number % len(TEMPERATURES)]
        self.sampler = self._make_sampler(_USER)
        self.ended = False
        self.line: WrittenChat | None = None

    def take(self, token: int) -> None:
        """Go on with a token that was sampled."""
        ends = self._model.is_end(token)
        if self._reply_starts is None:
            asked = len(self.tokens) - self._question_starts
            if ends or token == self._slot.after[0] or asked >= _LONGEST_QUESTION:
                self._begin_reply(asked)
                return
        self.tokens.append(token)
        self.waiting = [token]
        if len(self.tokens) >= self._longest or (ends and self._reply_starts is not None):
            self._end()

    def close(self) -> None:
        self.sampler.close()

    def _begin_reply(self, asked: int) -> None:
        room = self._longest - len(self.tokens) - len(self._slot.after)
        if asked < _SHORTEST_QUESTION or room < 1:
            self.ended = True
            return
        self.tokens += self._slot.after
        self.waiting = list(self._slot.after)
        self._reply_starts = len(self.tokens)
        self.sampler.close()
        self.sampler = self._make_sampler(Sampling(temperature=self._temperature))

    def _end(self) -> None:
        self.ended = True
        if self._reply_starts is not None:
            self.line = WrittenChat(
                n=self._number, t=self.tokens, a=self._reply_starts, temp=self._temperature
            )

    def _make_sampler(self, sampling: Sampling) -> Sampler:
        return Sampler(
            self._model,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repeat_penalty=sampling.repeat_penalty,
            seed=self._seed % _SEEDS,
        )


def _missing(done: set[int]) -> Iterator[int]:
    number = 0
    while True:
        if number not in done:
            yield number
        number += 1
