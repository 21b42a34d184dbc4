"""Measures long chats with the built-in pair: python -m tests.measure_long_chats COMMAND

shift   acceptance after turns have left, against a fresh prefill of the same tokens
window  draft windows over contexts of 2k, 4k and 8k tokens
prefill a prompt of 8k tokens with each KV type, and how long a cancel takes to end it
memory  the engine's memory over a chat of 50 turns through a small context
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eaglechat.engine import bindings
from eaglechat.engine.bench import builtin_prompts
from eaglechat.engine.live import Live
from eaglechat.engine.native import Batch, Model
from eaglechat.engine.protocol import Message, Speculation
from eaglechat.engine.records import Round, Window
from eaglechat.engine.window import Turns
from eaglechat.hub.pairs import builtin_pair
from tests.engine.rig import Rig, open_rig, plainly

N_DRAFT_MAX = 3
N_CTX_TRAIN = 8192
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
            pairs = zip(drafted, text[at + 1 :], strict=False)
            accepted = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
            session.accept(0, accepted)
            n_past += 1 + accepted
            at += 1 + accepted
            target.forget(0, n_past)
            counts += Acceptance(1, len(drafted), accepted)
    target.forget(0, len(prompt))
    session.rewind(0, len(prompt))
    return counts


def shifted_and_fresh(
    models: tuple[Model, Model], *, n_ctx: int, max_tokens: int, n_threads: int = THREADS
) -> Iterator[tuple[Acceptance, Acceptance]]:
    """A chat through a small context. For each turn before which others have left: acceptance
    with the KV cache that was kept, and after a fresh prefill of the same tokens, over the texts
    that the target writes in both."""
    with (
        open_rig(*models, n_ctx=n_ctx, n_threads=n_threads) as kept,
        open_rig(*models, n_ctx=n_ctx, n_threads=n_threads) as other,
    ):
        chat = LongChat(kept)
        for question in QUESTIONS:
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


def measure_window(
    models: tuple[Model, Model], sizes: Sequence[int], windows: Sequence[int]
) -> None:
    """The prompts of the bench in turn, plainly answered, until the context holds enough; then
    what each window makes of the next answer."""
    print("| Context | Window | Accepted/drafted | Mean accepted length | Draft step, ms |")
    print("| --- | --- | --- | --- | --- |")
    for size in sizes:
        with open_rig(*models, n_ctx=N_CTX_TRAIN, n_batch=512, n_threads=THREADS) as rig:
            prompt, texts = long_prompt(rig, size)
        for window in windows:
            with open_rig(
                *models, n_ctx=N_CTX_TRAIN, n_batch=512, n_threads=THREADS, draft_window=window
            ) as rig:
                read(rig, prompt)
                counts = force(rig, prompt, texts)
            step_ms = counts.draft_ms / counts.drafted
            name = f"{window:,}" if window else "none"
            print(
                f"| {len(prompt):,} | {name} | {counts.accepted}/{counts.drafted} = "
                f"{counts.rate:.3f} | {counts.length:.3f} | {step_ms:.2f} |",
                flush=True,
            )


N_TEXT = 256
"""Tokens a draft window is judged by."""


def long_prompt(rig: Rig, size: int) -> tuple[tuple[int, ...], list[int]]:
    """A chat of about `size` tokens that ends with a question, and the target's answer to it."""
    chat = LongChat(rig)
    for prompt_ in itertools.cycle(builtin_prompts()):
        prompt, turns = chat.ask(prompt_.text)
        if len(prompt) + N_TEXT >= size:
            chat.messages[-1] = Message(role="user", content=QUESTIONS[4])
            prompt = rig.prompter.prompt(chat.messages)
            reply = rig.reply(prompt, live=plainly(), max_tokens=N_TEXT)
            return prompt, reply.tokens
        chat.answer(prompt, turns, live=plainly(), max_tokens=N_TEXT)
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("shift")
    window = commands.add_parser("window")
    window.add_argument("--sizes", type=int, nargs="+", default=[2048, 4096, 8192])
    window.add_argument("--windows", type=int, nargs="+", default=[0, 256, 512, 1024, 2048])
    args = parser.parse_args()
    bindings.start_backend(bindings.LOG_ERRORS)
    pair = builtin_pair()
    with Model(pair.target) as target, Model(pair.draft) as draft:
        if args.command == "shift":
            measure_shift((target, draft))
        elif args.command == "window":
            measure_window((target, draft), args.sizes, args.windows)


if __name__ == "__main__":
    main()
