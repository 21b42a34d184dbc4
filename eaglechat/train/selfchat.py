"""Chats that the target writes itself.

It writes a user's turn into the empty slot of its own template, then the reply; or only the reply
to a given prompt. Many chats are written side by side, because a batch of tokens takes little
longer than one token. The features of each token are kept, so they need not be computed again.

Each chat has a number, which seeds its samplers together with the run's seed. A run that was
stopped goes on with the missing numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import msgspec
import numpy as np

from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.llama.sampler import Sampler
from eaglechat.engine.prompt import Prompter
from eaglechat.train.corpus import TokenLine
from eaglechat.train.features import FeatureStore, Rows, decoded_features, export_features
from eaglechat.train.settings import PausedError, TrainingError
from eaglechat.wire.errors import DecodeError
from eaglechat.wire.protocol import AS_IT_IS, Message, Sampling, Thinking

TEMPERATURES = (0.0, 0.7, 0.0, 0.7, 1.0)
"""The temperatures of replies, in turn by chat number. Drafts are measured on greedy replies."""

# No top-p: it would sort the whole vocabulary for each token.
_USER = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.01)
_SLOT = "EAGLECHATSLOT"
_LONGEST_QUESTION = 256
_SHORTEST_QUESTION = 2
_CHATS_A_SEED = 10_000_019
"""More than a run writes, so that runs with two seeds share no sampler seed."""


class WrittenChat(TokenLine, omit_defaults=True, kw_only=True):
    """A line of the file: a chat and its number."""

    n: int


class UserSlot:
    """The template's tokens before a user's turn, and those between it and the reply.

    Raises TrainingError for a template that changes the turn.
    """

    def __init__(self, model: Model, thinking: Thinking = AS_IT_IS) -> None:
        asked = Prompter(model).conversation([Message(role="user", content=_SLOT)], thinking)
        before, slot, after = asked.text.partition(_SLOT)
        if not slot or not after:
            raise TrainingError(
                "the target's chat template does not show a user's turn as it is written, so the "
                "target cannot write one; give chats with --chats"
            )
        self.before = model.tokenize(before, bos=True, special=True)
        self.after = model.tokenize(after, bos=False, special=True)


def written_chats(path: Path) -> list[WrittenChat]:
    """The chats of a file, without a last line that a crash cut short. Raises OSError."""
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
        self,
        model: Model,
        store: FeatureStore,
        *,
        layers: Sequence[int],
        n_side_by_side: int,
        longest: int,
        n_threads: int,
        seed: int = 1,
        thinking: Thinking = AS_IT_IS,
    ) -> None:
        """Make the context. Raises ModelLoadError.

        store: for the features, of which the layers' inputs are a part.
        longest: the most tokens of a chat.
        thinking: for chats whose user's turn is written too.
        """
        self._model, self._store = model, store
        self._seed = seed
        self._thinking = thinking
        self._longest = longest
        self._context = Context(
            model,
            n_ctx=n_side_by_side * longest,
            n_batch=max(512, n_side_by_side),
            n_threads=n_threads,
            n_seq=n_side_by_side,
            shared_cells=False,
        )
        self._layers = tuple(layers)
        export_features(self._context, self._layers)
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
        """Append chats to a file until it has `n_tokens`.

        `on_tokens` gets how many of these are written, in unfinished chats too. Features are stored
        before their chats go to the file. Raises PausedError; TrainingError if the features
        do not fit on the disk or a chat not into `longest` tokens; DecodeError, OSError.
        """
        slot = UserSlot(self._model, self._thinking)
        if len(slot.before) + len(slot.after) + _SHORTEST_QUESTION >= self._longest:
            raise TrainingError(
                f"the target's chat template alone takes {len(slot.before)} tokens and more, "
                f"chats are limited to {self._longest}; raise --longest"
            )
        self._store.check_space(n_tokens - sum(len(chat.t) for chat in written_chats(path)))
        told = 0

        def is_enough(done: Sequence[WrittenChat], chats: Sequence[_Chat]) -> bool:
            nonlocal told
            size = sum(len(chat.t) for chat in done)
            # Less than all of them until the last chat has ended, and no fewer than before where
            # one ended without a reply.
            unfinished = size + sum(chat.n_decoded for chat in chats)
            told = n_tokens if size >= n_tokens else max(told, min(unfinished, n_tokens - 1))
            on_tokens(told)
            return size >= n_tokens

        self._append(path, [slot], is_enough, paused)

    def answer(
        self,
        path: Path,
        prompts: Sequence[Sequence[int]],
        on_answers: Callable[[int], None],
        paused: Callable[[], bool],
    ) -> None:
        """Append one chat per prompt to a file; extra replies may be added while the last one is
        finishing.

        Every prompt must leave room for a reply. `on_answers` gets how many prompts are answered.
        Raises PausedError; TrainingError if the features do not fit on the disk; DecodeError,
        OSError.
        """

        def is_enough(done: Sequence[WrittenChat], _: Sequence[_Chat]) -> bool:
            n_answered = len({chat.n for chat in done if chat.n < len(prompts)})
            on_answers(n_answered)
            return n_answered == len(prompts)

        self._append(path, prompts, is_enough, paused)

    def _append(
        self,
        path: Path,
        begun_with: Sequence[UserSlot | Sequence[int]],
        is_enough: Callable[[Sequence[WrittenChat], Sequence[_Chat]], bool],
        paused: Callable[[], bool],
    ) -> None:
        """Append chats to a file until `is_enough` of what it holds and of the unfinished chats.

        A chat's number decides which of `begun_with` it begins with: a user's slot or a prompt.
        """
        done = written_chats(path)
        if is_enough(done, ()):
            return
        known = {chat.n for chat in done}
        numbers = (number for number in count() if number not in known)

        def begin(seq_id: int) -> _Chat:
            number = next(numbers)
            return _Chat(
                self._model,
                begun_with[number % len(begun_with)],
                seq_id,
                number=number,
                seed=(self._seed - 1) * _CHATS_A_SEED + number,
                longest=self._longest,
            )

        chats = [begin(seq_id) for seq_id in range(self._n_side_by_side)]
        try:
            with path.open("ab") as file:
                if done and not path.read_bytes().endswith(b"\n"):
                    file.write(b"\n")
                while not is_enough(done, chats):
                    if paused():
                        raise PausedError
                    self._step(chats)
                    for chat in [chat for chat in chats if chat.ended]:
                        self._context.forget(chat.seq_id, 0)
                        chats[chat.seq_id] = begin(chat.seq_id)
                        if not chat.has_reply:
                            continue
                        line = chat.line()
                        self._store.put(line.sample(), np.stack(chat.rows))
                        file.write(msgspec.json.encode(line) + b"\n")
                        file.flush()
                        done.append(line)
        finally:
            for chat in chats:
                self._context.forget(chat.seq_id, 0)

    def _step(self, chats: Sequence[_Chat]) -> None:
        """Decode one token of each chat, and sample the next one if it is not given.

        Tokens of the template are decoded one by one too: if a batch had more tokens of one chat
        than of another, llama.cpp would need several passes.
        """
        self._batch.clear()
        for chat in chats:
            token, position = chat.next_token()
            self._batch.add_tokens((token,), position, chat.seq_id, output=True)
        status = self._context.decode(self._batch)
        if status != 0:
            raise DecodeError(f"the target failed to decode (llama.cpp status {status})")
        rows = decoded_features(self._context, self._layers, len(chats))
        for chat, row in zip(chats, rows, strict=True):
            chat.rows.append(row)
        for row_number, chat in enumerate(chats):
            if chat.all_decoded:
                chat.go_on(self._context, row_number)


class _Chat:
    """An unfinished chat: its tokens, the first `n_decoded` of which are decoded."""

    def __init__(
        self,
        model: Model,
        begun_with: UserSlot | Sequence[int],
        seq_id: int,
        *,
        number: int,
        seed: int,
        longest: int,
    ) -> None:
        """`begun_with` is a slot for a user's turn, or a prompt."""
        self._model, self._longest, self._seed = model, longest, seed
        self.seq_id, self.number = seq_id, number
        self.rows: list[Rows] = []
        """The features of the decoded tokens."""
        self.n_decoded = 0
        self._temperature = TEMPERATURES[number % len(TEMPERATURES)]
        self._reply_starts: int | None = None
        self._slot: UserSlot | None = None
        if isinstance(begun_with, UserSlot):
            self._slot = begun_with
            self.tokens = list(begun_with.before) or [max(model.bos, 0)]
            self._sampler = self._make_sampler(_USER)
        else:
            self.tokens = list(begun_with)
            self._reply_starts = len(self.tokens)
            self._sampler = self._make_sampler(Sampling(temperature=self._temperature))
        self._question_starts = len(self.tokens)
        self.has_reply = False
        """Whether the reply is complete."""
        self.ended = False

    def next_token(self) -> tuple[int, int]:
        """The token to decode next, and its position."""
        self.n_decoded += 1
        return self.tokens[self.n_decoded - 1], self.n_decoded - 1

    @property
    def all_decoded(self) -> bool:
        return self.n_decoded == len(self.tokens)

    def go_on(self, context: Context, row: int) -> None:
        """Sample the next token from the logits of this row, or end."""
        if self.has_reply:
            # Its last token was decoded for its features.
            self.ended = True
            return
        token = self._sampler.sample(context, row, len(self.tokens))
        ends = self._model.is_end(token)
        if self._reply_starts is None and self._slot is not None:
            asked = len(self.tokens) - self._question_starts
            after = self._slot.after
            # The target ends the user's turn as the template does, or with an end token.
            if ends or token == after[0] or asked >= _LONGEST_QUESTION:
                if asked < _SHORTEST_QUESTION or len(self.tokens) + len(after) >= self._longest:
                    self.ended = True
                    return
                self.tokens += after
                self._reply_starts = len(self.tokens)
                self._sampler = self._make_sampler(Sampling(temperature=self._temperature))
                return
        self.tokens.append(token)
        is_full = len(self.tokens) >= self._longest
        if self._reply_starts is None:
            self.ended = is_full
        else:
            self.has_reply = ends or is_full

    def line(self) -> WrittenChat:
        """The chat with its complete reply."""
        assert self._reply_starts is not None
        return WrittenChat(
            n=self.number, t=self.tokens, a=self._reply_starts, temp=self._temperature
        )

    def _make_sampler(self, sampling: Sampling) -> Sampler:
        return Sampler(sampling, self._seed)
