"""The built-in pair after turns have left its context."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from eaglechat.engine.drafters.base import Limits
from eaglechat.engine.generation.context_window import Turns
from eaglechat.engine.generation.live import Live
from eaglechat.engine.llama.objects import Batch, Model
from eaglechat.wire.protocol import Message, Speculation
from eaglechat.wire.records import Round, Window
from tests.engine.rig import N_THREADS, Rig, open_rig, plainly

pytestmark = [pytest.mark.real, pytest.mark.slow]

N_DRAFT_MAX = 3
QUESTIONS = (
    "What is the capital of France, and what is it known for?",
    "Write a Python function that adds two numbers.",
    "Explain the Pythagorean theorem.",
    "What is photosynthesis?",
    "Give me a recipe for pancakes.",
    "Who wrote Romeo and Juliet? Tell me the story.",
    "How do I sort a list in Python?",
    "What causes rain?",
)


def test_after_a_shift_as_much_is_accepted_as_after_a_fresh_prefill(
    real_models: tuple[Model, Model],
) -> None:
    shifted, fresh, turns = Acceptance(), Acceptance(), 0
    for one, other in shifted_and_fresh(real_models, n_ctx=256, max_tokens=32):
        shifted += one
        fresh += other
        turns += 1

    assert turns >= 3
    assert fresh.accepted >= 20
    # Judged by the same texts, so that only the caches differ. Keys turned to wrong positions, or
    # features at wrong ones, cost a third and more.
    assert shifted.accepted == pytest.approx(fresh.accepted, rel=0.15)


@dataclass
class Acceptance:
    """Counts over the rounds of forced replies."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0

    def __iadd__(self, other: Acceptance) -> Acceptance:
        self.rounds += other.rounds
        self.drafted += other.drafted
        self.accepted += other.accepted
        return self


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
    """Rounds behind a prompt that was read, in which the target samples `text`: so two pairs of KV
    caches are compared by the same words. Afterwards the caches can be read into again."""
    target, drafter = rig.target, rig.drafter
    counts, n_past, at = Acceptance(), len(prompt), 0
    with Batch(target) as batch:
        while at + N_DRAFT_MAX + 1 < len(text):
            drafted = drafter.propose(n_past, text[at], Limits(N_DRAFT_MAX)).ids
            batch.clear()
            batch.add_tokens([text[at], *drafted], n_past, 0, output=True)
            assert target.decode(batch) == 0
            drafter.see(batch)
            accepted = true_guesses(drafted, text[at + 1 :])
            drafter.accept(range(accepted))
            n_past += 1 + accepted
            at += 1 + accepted
            target.forget(0, n_past)
            counts += Acceptance(1, len(drafted), accepted)
    target.forget(0, len(prompt))
    drafter.resume(prompt, to_draft=False)
    return counts


def true_guesses(drafted: Sequence[int], text: Sequence[int]) -> int:
    pairs = zip(drafted, text, strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def shifted_and_fresh(
    models: tuple[Model, Model], *, n_ctx: int, max_tokens: int
) -> Iterator[tuple[Acceptance, Acceptance]]:
    """A chat through a small context. For each turn before which others have left: acceptance
    with the KV cache that was kept, and after a fresh prefill of the same tokens, over the texts
    that the target writes in both."""
    with (
        open_rig(*models, n_ctx=n_ctx, n_threads=N_THREADS) as kept,
        open_rig(*models, n_ctx=n_ctx, n_threads=N_THREADS) as other,
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
