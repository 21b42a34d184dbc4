"""What a draft is trained on: samples of tokens, and the spans of them that teach.

In a chat, the spans that the target wrote teach; in plain text, all of it. Samples are deduplicated
by their tokens. A hash of the prompt decides whether a sample is held out, so it is held out in
every run, whatever other data is added.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from eaglechat.chat.older import take_over
from eaglechat.chat.store import ChatStore
from eaglechat.engine.bench.prompts import HEADING, parse_prompts
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.prompt import Prompter
from eaglechat.train.settings import TrainingError
from eaglechat.wire.errors import PromptError
from eaglechat.wire.protocol import AS_IT_IS, Message, Thinking

HELD_OUT_PERCENT = 3
SHORTEST = 4
"""Tokens. A shorter sample has nothing to predict from."""
_TEXT_BLOCK = 1 << 16
_ROOM_FOR_A_REPLY = 16

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Sample:
    """Tokens, and the spans [start, end) that teach."""

    tokens: npt.NDArray[np.int32]
    spans: Spans
    temperature: float | None = None
    """The temperature of the reply, if it is known."""

    @cached_property
    def digest(self) -> str:
        """Identifies the tokens."""
        return digest_of(self.tokens.tobytes())

    @property
    def held_out(self) -> bool:
        """Decided by the prompt, so that all replies to it are held out or none."""
        prompt = self.tokens[: self.spans[0][0]]
        named = digest_of((prompt if len(prompt) else self.tokens).tobytes())
        return int(named, 16) % 100 < HELD_OUT_PERCENT

    @property
    def is_chat(self) -> bool:
        return self.spans[0][0] > 0


class TokenLine(msgspec.Struct, omit_defaults=True):
    """A chat as tokens: the reply, sampled at `temp`, begins at index `a`."""

    t: list[int]
    a: int
    temp: float | None = None

    def sample(self) -> Sample:
        return Sample(np.array(self.t, dtype=np.int32), ((self.a, len(self.t)),), self.temp)


class _MessagesLine(msgspec.Struct):
    messages: list[Message] | None = None


def split(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """The samples to train on and those that are held out, at least one of each.

    Raises TrainingError if there are fewer than two.
    """
    if len(samples) < 2:
        raise TrainingError(
            f"there is too little to train on: {len(samples)} different samples, of which one "
            "must be held out"
        )
    held_out = [sample for sample in samples if sample.held_out]
    if not held_out or len(held_out) == len(samples):
        held_out = [min(samples, key=lambda sample: sample.digest)]
    kept = {sample.digest for sample in held_out}
    return [sample for sample in samples if sample.digest not in kept], held_out


def deduplicated(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Each token sequence once."""
    seen: set[str] = set()
    for sample in samples:
        if sample.digest not in seen:
            seen.add(sample.digest)
            yield sample


def read_prompts(
    path: Path, model: Model, longest: int, thinking: Thinking = AS_IT_IS
) -> list[tuple[int, ...]]:
    """The different prompts of a file as tokens, in order: one per line, or in the bench's format.

    Leaves out prompts without room for a reply within `longest` tokens. Raises TrainingError if
    none is left, OSError.
    """
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].startswith(HEADING):
        try:
            lines = [prompt.text for prompt in parse_prompts(text)]
        except ValueError as error:
            raise TrainingError(f"{path}: {error}") from error
    if not lines:
        raise TrainingError(f"{path} holds no prompts to answer")
    prompter = Prompter(model)
    asked = ([Message(role="user", content=line)] for line in lines)
    prompts = [prompter.conversation(one, thinking).tokens for one in asked]
    fitting = [prompt for prompt in prompts if len(prompt) <= longest - _ROOM_FOR_A_REPLY]
    if not fitting:
        raise TrainingError(
            f"the prompts in {path} leave no room for replies within {longest} tokens; raise "
            "--longest"
        )
    return list(dict.fromkeys(fitting))


def read_chats(path: Path, model: Model, longest: int) -> Iterator[Sample]:
    """The chats of a JSONL file, which may be .gz: lines of {"messages": [...]} or of tokens.

    Raises TrainingError, which names a line that is neither; OSError.
    """

    def samples() -> Iterator[Sample]:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.strip():
                    yield from _line_samples(raw, f"line {number} of {path}", model)

    return _fitting(samples(), longest, path)


def _line_samples(raw: bytes, where: str, model: Model) -> list[Sample]:
    try:
        line = msgspec.json.decode(raw, type=_MessagesLine)
        if line.messages is not None:
            return chat_samples(line.messages, model)
        chat = msgspec.json.decode(raw, type=TokenLine)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TrainingError(f"{where} is no chat: {error}") from error
    except PromptError as error:
        raise TrainingError(f"{where}: {error}") from error
    outside = next((token for token in chat.t if not 0 <= token < model.n_vocab), None)
    if outside is not None:
        raise TrainingError(
            f"{where} holds token {outside}, the target's vocabulary has {model.n_vocab}: "
            "it was made for another target"
        )
    if not 0 <= chat.a <= len(chat.t):
        raise TrainingError(f"{where}: its reply begins at {chat.a} of {len(chat.t)} tokens")
    return [chat.sample()]


def chat_samples(messages: Sequence[Message], model: Model) -> list[Sample]:
    """The samples of a conversation, by the target's chat template. Raises PromptError.

    It is one sample if every prompt begins with the tokens of the turns before it. A template
    that rewrites earlier turns gives a sample per reply.
    """
    prompter = Prompter(model)
    samples: list[Sample] = []
    tokens: tuple[int, ...] = ()
    spans: Spans = ()
    for index, message in enumerate(messages):
        if message.role != "assistant":
            continue
        asked = prompter.conversation(messages[:index])
        prompt = asked.tokens
        if spans and prompt[: len(tokens)] != tokens:
            samples.append(Sample(np.array(tokens, dtype=np.int32), spans))
            spans = ()
        reply = model.tokenize(message.content, bos=False, special=False)
        reply.append(model.eos)
        tokens = (*prompt, *reply)
        spans = (*spans, (len(prompt), len(tokens)))
        asked.note_reply(reply)
    if spans:
        samples.append(Sample(np.array(tokens, dtype=np.int32), spans))
    return samples


def read_history(file: Path, model: Model, longest: int) -> Iterator[Sample]:
    """The user's own chats. Raises TrainingError if none has a reply, OSError."""

    def samples() -> Iterator[Sample]:
        store = ChatStore(file)
        take_over(store)
        for chat in store.saved():
            if (last := chat.turns.last) is None:
                continue
            # A chat with another model, whose template allows another order of turns, is left out.
            with suppress(PromptError):
                yield from chat_samples(chat.turns.messages_to(last.id), model)

    return _fitting(samples(), longest, file)


def _fitting(samples: Iterable[Sample], longest: int, place: Path) -> Iterator[Sample]:
    """The first `longest` tokens of each sample, without samples in which nothing is left to learn.

    Raises TrainingError if none is left.
    """
    found = False
    for sample in samples:
        spans = tuple((start, min(end, longest)) for start, end in sample.spans if start < longest)
        if any(end > start for start, end in spans) and len(sample.tokens) >= SHORTEST:
            found = True
            yield Sample(sample.tokens[:longest], spans, sample.temperature)
    if not found:
        raise TrainingError(f"{place} holds no chat with a reply to learn from")


def read_text(path: Path, model: Model, longest: int) -> Iterator[Sample]:
    """A text file in samples of `longest` tokens. Raises TrainingError if it is empty, OSError."""
    # A target that expects it computes nonsense without it.
    beginning = [model.bos] if model.adds_bos else []
    room = longest - len(beginning)
    waiting: list[int] = []
    found = False

    def text_sample(tokens: list[int]) -> Sample:
        whole = np.array(beginning + tokens, dtype=np.int32)
        return Sample(whole, ((0, len(whole)),))

    with path.open(encoding="utf-8", errors="replace") as file:
        while block := file.readlines(_TEXT_BLOCK):
            waiting += model.tokenize("".join(block), bos=False, special=False)
            while len(waiting) >= room:
                yield text_sample(waiting[:room])
                found = True
                del waiting[:room]
    if len(waiting) >= SHORTEST:
        yield text_sample(waiting)
    elif not found:
        raise TrainingError(f"{path} holds no text to learn from")


def most_frequent(samples: Iterable[Sample], size: int, n_vocab: int) -> npt.NDArray[np.int64]:
    """The `size` tokens that the target wrote most often, in the order of their ids.

    Unseen tokens with the lowest ids fill the rest, because tokenizers number by frequency.
    """
    counts = np.zeros(n_vocab, dtype=np.int64)
    for sample in samples:
        for start, end in sample.spans:
            counts += np.bincount(sample.tokens[start:end], minlength=n_vocab)
    chosen = np.argsort(-counts, kind="stable")[:size]
    return np.sort(chosen).astype(np.int64)


def digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
