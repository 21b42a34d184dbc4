"""Measures long chats with the built-in pair: python -m tests.measure.measure_long_chats COMMAND

shift   acceptance after turns have left, against a fresh prefill of the same tokens
window  draft windows over contexts of 2k, 4k and 8k tokens
prefill a prompt of 8k tokens with each KV type
cancel  how long a cancel takes to end the prefill of such a prompt
moving  what it costs to take 2,000 tokens out of a full context
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from statistics import fmean
from typing import get_args
from unittest import mock

from eaglechat.engine.bench.measure import builtin_prompts
from eaglechat.engine.drafters.eagle3.session import Eagle3Session
from eaglechat.engine.drafters.eagle3.session_config import Eagle3SessionConfig
from eaglechat.engine.generation.live import Live
from eaglechat.engine.generation.prompt import Prompter
from eaglechat.engine.generation.window import Turns, common_prefix
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.hub.local.pairs import builtin_pair
from eaglechat.wire.protocol import (
    Message,
    Speculation,
)
from eaglechat.wire.records import FinishReason, KvType, Round, Window
from tests.engine.rig import Rig, decode, open_rig, plainly

N_DRAFT_MAX = 3
N_CTX_TRAIN = 8192
N_BATCH = 512
THREADS = os.cpu_count() or 1
QUESTIONS = (
    "What is the capital of France, and what is it known for?",
    "Write a Python function that adds two numbers.",
    "Explain the Pythagorean theorem.",
    "What is photosynthesis?",
    "Give me a recipe for pancakes.",
    "Who wrote Romeo and Juliet? Tell me the story.",
    "How do I sort a list in Python?",
    "What causes rain?",
    "Tell me a short story about a cat.",
    "Plan a day in Rome.",
    "Summarise how a bicycle works.",
    "Write a polite letter to my landlord about a broken window.",
)


@dataclass
class Acceptance:
    """Counts over the rounds of forced replies."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    draft_ms: float = 0.0

    def __iadd__(self, other: Acceptance) -> Acceptance:
        self.rounds += other.rounds
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.draft_ms += other.draft_ms
        return self

    @property
    def rate(self) -> float:
        """Accepted over drafted tokens."""
        return self.accepted / self.drafted

    @property
    def length(self) -> float:
        """Mean accepted length: tokens of a round."""
        return 1 + self.accepted / self.rounds

    def __str__(self) -> str:
        return f"{self.accepted}/{self.drafted} = {self.rate:.3f}, length {self.length:.3f}"


class LongChat:
    """A chat that asks and answers as the app does, with a plain greedy target."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.messages = [Message(role="system", content="You are a helpful assistant.")]

    def ask(self, text: str) -> tuple[tuple[int, ...], Turns]:
        self.messages.append(Message(role="user", content=text))
        return self.rig.prompter.prompt(self.messages), self.rig.prompter.turns(self.messages)

    def answer(self, prompt: tuple[int, ...], turns: Turns, **options: object) -> list[Window]:
        """Write the reply and keep it; the windows it went through."""
        reply = self.rig.reply(prompt, turns=turns, **options)
        self.rig.prompter.note_reply(prompt, reply.tokens)
        self.messages.append(Message(role="assistant", content=reply.text))
        return reply.windows


def read(rig: Rig, prompt: Sequence[int], turns: Turns | None = None) -> list[Window]:
    """Bring both caches to a prompt, as before a reply: one plain round, and what it announced."""
    events: list[object] = []
    for event in rig.stream(
        prompt,
        turns=turns,
        live=Live(Speculation(n_draft_max=0), 0.0),
        max_tokens=None,
        cancelled=lambda: any(isinstance(event, Round) for event in events),
    ):
        events.append(event)
    return [event for event in events if isinstance(event, Window)]


def force(rig: Rig, prompt: Sequence[int], text: Sequence[int]) -> Acceptance:
    """Rounds after a prompt that was read, with `text` for what the target samples: so the states
    of two caches are judged by the same words. Leaves both caches with the prompt."""
    target, session = rig.target, rig.session
    counts, n_past, at = Acceptance(), len(prompt), 0
    session.n_draft_max = N_DRAFT_MAX
    with Batch(target) as batch:
        while at + N_DRAFT_MAX + 1 < len(text):
            spent = session.spent_ms[1]
            drafted = session.draft(0, n_past, text[at])
            counts.draft_ms += session.spent_ms[1] - spent
            batch.clear()
            batch.add_tokens([text[at], *drafted], n_past, 0, output=True)
            assert target.decode(batch) == 0
            session.process(batch)
            accepted = true_guesses(drafted, text[at + 1 :])
            session.accept(0, accepted)
            n_past += 1 + accepted
            at += 1 + accepted
            target.forget(0, n_past)
            counts += Acceptance(1, len(drafted), accepted)
    target.forget(0, len(prompt))
    session.rewind(0, len(prompt))
    return counts


def shifted_and_fresh(
    models: tuple[Model, Model],
    *,
    n_ctx: int,
    max_tokens: int,
    n_threads: int = THREADS,
    questions: Sequence[str] = QUESTIONS,
) -> Iterator[tuple[Acceptance, Acceptance]]:
    """A chat through a small context. For each turn before which others have left: acceptance
    with the KV cache that was kept, and after a fresh prefill of the same tokens, over the texts
    that the target writes in both."""
    with (
        open_rig(*models, n_ctx=n_ctx, n_threads=n_threads) as kept,
        open_rig(*models, n_ctx=n_ctx, n_threads=n_threads) as other,
    ):
        chat = LongChat(kept)
        for question in questions:
            prompt, turns = chat.ask(question)
            if windows := read(kept, prompt, turns):
                assert windows[-1].kv_kept
                rest = turns.without(windows[-1].first_turn)
                length = {"live": plainly(), "max_tokens": max_tokens}
                texts = (
                    kept.reply(prompt, turns=turns, **length).tokens,
                    other.reply(rest, **length).tokens,
                )
                shifted, fresh = Acceptance(), Acceptance()
                for text in texts:
                    read(kept, prompt, turns)
                    shifted += force(kept, rest, text)
                    read(other, rest)
                    fresh += force(other, rest, text)
                yield shifted, fresh
            chat.answer(prompt, turns, max_tokens=max_tokens)


def measure_shift(models: tuple[Model, Model]) -> None:
    all_shifted, all_fresh = Acceptance(), Acceptance()
    print("| Reply | KV kept and shifted | Fresh prefill |\n| --- | --- | --- |")
    pairs = shifted_and_fresh(models, n_ctx=768, max_tokens=90)
    for index, (shifted, fresh) in enumerate(pairs, 1):
        print(f"| {index} | {shifted} | {fresh} |", flush=True)
        all_shifted += shifted
        all_fresh += fresh
    print(f"| all | {all_shifted} | {all_fresh} |")


N_TEXT = 96
"""Tokens of each answer that a draft window is judged by."""


class Guessers:
    """One target, and a draft for each window that sees all the target decodes."""

    def __init__(
        self, models: tuple[Model, Model], windows: Sequence[int], stack: ExitStack
    ) -> None:
        size = {"n_ctx": N_CTX_TRAIN, "n_batch": N_BATCH, "n_threads": THREADS}
        self._target = stack.enter_context(Context(models[0], **size))
        self._batch = stack.enter_context(Batch(self._target))
        self._sessions = []
        for window in windows:
            draft = Context(models[1], n_ubatch=128, other=self._target, **size)
            stack.enter_context(draft)
            config = Eagle3SessionConfig(1, N_DRAFT_MAX, draft_window=window)
            session = Eagle3Session(self._target, draft, config)
            self._sessions.append(stack.enter_context(session))
        self._held: list[int] = []

    def read(self, prompt: Sequence[int]) -> None:
        """Go on to a prompt from what it has in common with the last one."""
        start = max(0, common_prefix(self._held, prompt) - 1)
        self._target.forget(0, start)
        for session in self._sessions:
            session.rewind(0, start)
        for first in range(start, len(prompt) - 1, N_BATCH):
            self._decode(prompt[first : min(first + N_BATCH, len(prompt) - 1)], first, output=False)
        self._decode(prompt[-1:], len(prompt) - 1)
        self._held = list(prompt)

    def guess(self) -> list[Acceptance]:
        """Let the target go on greedily, and each draft guess before every token; how many of its
        guesses come true, by draft."""
        guesses: list[list[list[int]]] = [[] for _ in self._sessions]
        text: list[int] = []
        spent = [session.spent_ms[1] for session in self._sessions]
        for n_past in range(len(self._held), len(self._held) + N_TEXT):
            text.append(int(self._target.logits(0).argmax()))
            for session, drafts in zip(self._sessions, guesses, strict=True):
                drafts.append(session.draft(0, n_past, text[-1]))
            self._decode(text[-1:], n_past)
            for session in self._sessions:
                session.accept(0, 0)
        # The last guesses have no text to be judged by.
        judged = len(text) - N_DRAFT_MAX - 1
        share = judged / len(text)
        return [
            Acceptance(
                rounds=judged,
                drafted=sum(map(len, drafts[:judged])),
                accepted=sum(true_guesses(drafts[at], text[at + 1 :]) for at in range(judged)),
                draft_ms=(session.spent_ms[1] - before) * share,
            )
            for session, before, drafts in zip(self._sessions, spent, guesses, strict=True)
        ]

    def _decode(self, tokens: Sequence[int], position: int, *, output: bool = True) -> None:
        decode(self._target, self._batch, tokens, position, output=output)
        for session in self._sessions:
            session.process(self._batch)


def true_guesses(drafted: Sequence[int], text: Sequence[int]) -> int:
    pairs = zip(drafted, text, strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def measure_window(
    models: tuple[Model, Model], sizes: Sequence[int], windows: Sequence[int]
) -> None:
    """A chat of the prompts of the bench and the target's answers, up to each size in turn; then
    three short questions, and guesses at the target's greedy answers with each window."""
    print("| Context | Window | Accepted/drafted | Mean accepted length | Draft step, ms |")
    print("| --- | --- | --- | --- | --- |")
    history = answered_prompts(models)
    prompter = Prompter(models[0])
    with ExitStack() as stack:
        guessers = Guessers(models, windows, stack)
        for size in sizes:
            totals = [Acceptance() for _ in windows]
            for question in QUESTIONS[2:5]:
                prompt = cut_to_size(prompter, history, question, size)
                guessers.read(prompt)
                for index, counts in enumerate(guessers.guess()):
                    totals[index] += counts
            for window, total in zip(windows, totals, strict=True):
                print(
                    f"| {len(prompt):,} | {f'{window:,}' if window else 'none'} | "
                    f"{total.accepted}/{total.drafted} = {total.rate:.3f} | {total.length:.3f} | "
                    f"{total.draft_ms / total.drafted:.2f} |",
                    flush=True,
                )


def answered_prompts(models: tuple[Model, Model]) -> list[Message]:
    """The prompts of the bench, each with the target's answer to it alone."""
    messages = []
    with open_rig(*models, n_ctx=2048, n_threads=THREADS) as rig:
        for asked in builtin_prompts():
            reply = rig.reply(rig.prompt(asked.text), live=plainly(), max_tokens=N_TEXT)
            messages.append(Message(role="user", content=asked.text))
            messages.append(Message(role="assistant", content=reply.text))
    return messages


def cut_to_size(
    prompter: Prompter, history: Sequence[Message], question: str, size: int
) -> tuple[int, ...]:
    """The prompt of as many turns of the history, over and over, as fit, and of the question."""
    last = Message(role="user", content=question)
    messages: list[Message] = []
    skipped = 0
    for turn in itertools.cycle(zip(history[::2], history[1::2], strict=True)):
        if len(prompter.prompt([*messages, *turn, last])) + N_TEXT <= size:
            messages += turn
            skipped = 0
        elif skipped < len(history):
            skipped += 1
        else:
            break
    return prompter.prompt([*messages, last])


def measure_prefill(models: tuple[Model, Model]) -> None:
    """A prompt that all but fills the context, by KV type; then plain decoding behind it."""
    print("| KV type | Prompt | Prefill, tokens/s | Plain decoding behind it, ms a token |")
    print("| --- | --- | --- | --- |")
    for kv_type in get_args(KvType):
        with full_rig(models, kv_type=kv_type) as rig:
            prompt = full_prompt(rig)
            started = time.perf_counter()
            read(rig, prompt)
            seconds = time.perf_counter() - started
            end = rig.reply(prompt, live=plainly(), max_tokens=32).end
            print(
                f"| {kv_type} | {len(prompt):,} | {len(prompt) / seconds:.0f} | "
                f"{end.timings.generation_ms / end.tokens:.1f} |",
                flush=True,
            )


def measure_cancel(models: tuple[Model, Model]) -> None:
    """Cancels at five moments of a long prefill, with and without stopping inside a chunk."""
    print("| A cancel takes effect | Tokens in a chunk | Mean, ms | Longest, ms |")
    print("| --- | --- | --- | --- |")
    for inside in (False, True):
        with full_rig(models) as rig:
            late = [cancel_after(rig, delay, inside) for delay in (1.0, 1.5, 2.1, 2.8, 3.6)]
        where = "inside the chunk" if inside else "after the chunk"
        print(f"| {where} | {N_BATCH} | {fmean(late):.0f} | {max(late):.0f} |", flush=True)


def measure_moving(models: tuple[Model, Model]) -> None:
    """What it costs to take 2,000 tokens out of a full context: the next decode is the one that
    turns the keys."""
    print("| Taken out of a full context | The next decode, ms | The one after it, ms |")
    print("| --- | --- | --- |")
    with full_rig(models) as rig, Batch(rig.target) as batch:
        prompt = full_prompt(rig)
        read(rig, prompt)
        rig.target.forget(0, len(prompt))
        rig.target.shift(0, 100, 2100)
        times = []
        for position in range(len(prompt) - 2000, len(prompt) - 1998):
            started = time.perf_counter()
            decode(rig.target, batch, prompt[:1], position)
            times.append((time.perf_counter() - started) * 1000.0)
        print(f"| 2,000 of {len(prompt):,} tokens | {times[0]:.1f} | {times[1]:.1f} |", flush=True)


def full_rig(models: tuple[Model, Model], **options: object) -> AbstractContextManager[Rig]:
    return open_rig(*models, n_ctx=N_CTX_TRAIN, n_batch=N_BATCH, n_threads=THREADS, **options)


def full_prompt(rig: Rig) -> tuple[int, ...]:
    """The prompts of the bench as one message, over and over, up to 100 tokens below the limit."""
    text = "\n\n".join(prompt.text for prompt in builtin_prompts())
    tokens = rig.prompter.prompt([Message(role="user", content=text * 8)])
    assert len(tokens) > N_CTX_TRAIN
    return tokens[: N_CTX_TRAIN - 100]


def cancel_after(rig: Rig, delay_s: float, inside: bool) -> float:
    """Milliseconds from the moment of a cancel in mid-prefill to the end of the reply."""
    rig.reply(rig.prompt("something else"), max_tokens=1)
    due = time.perf_counter() + delay_s
    stopped_by = mock.patch.object(Context, "stopped_by", return_value=nullcontext())
    with nullcontext() if inside else stopped_by:
        reply = rig.reply(full_prompt(rig), cancelled=lambda: time.perf_counter() > due)
    assert reply.end.finish_reason is FinishReason.CANCELLED
    return (time.perf_counter() - due) * 1000.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("shift")
    window = commands.add_parser("window")
    window.add_argument("--sizes", type=int, nargs="+", default=[2048, 4096, 8192])
    window.add_argument("--windows", type=int, nargs="+", default=[0, 256, 512, 1024, 2048])
    for name in ("prefill", "cancel", "moving"):
        commands.add_parser(name)
    args = parser.parse_args()
    backend.start_backend(backend.LOG_ERRORS)
    pair = builtin_pair()
    assert pair.draft is not None
    with Model(pair.target) as target, Model(pair.draft) as draft:
        if args.command == "shift":
            measure_shift((target, draft))
        elif args.command == "window":
            measure_window((target, draft), args.sizes, args.windows)
        elif args.command == "prefill":
            measure_prefill((target, draft))
        elif args.command == "cancel":
            measure_cancel((target, draft))
        else:
            measure_moving((target, draft))


if __name__ == "__main__":
    main()
