"""The built-in pair after turns have left its context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama.objects import Batch, Model
from eaglechat.engine.loop import Live
from eaglechat.engine.prompt import Asked
from eaglechat.engine.sequences import common_prefix
from eaglechat.wire.protocol import Message, Speculation
from eaglechat.wire.records import Window
from tests.engine.generation.test_long_chats import LongChat, conversation
from tests.engine.rig import Rig, decode, open_rig, plainly

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
    accepted = [*shifted_and_fresh(real_models, n_ctx=256, max_tokens=32)]
    shifted, fresh = (sum(counts) for counts in zip(*accepted, strict=True))

    assert len(accepted) >= 3
    assert fresh >= 20
    # Judged by the same texts, so that only the caches differ. Keys turned to wrong positions, or
    # features at wrong ones, cost a third and more.
    assert shifted == pytest.approx(fresh, rel=0.15)


def read(rig: Rig, prompt: Asked | Sequence[int]) -> list[Window]:
    """Bring both caches to a prompt, as before a reply: one plain round, and what it announced."""
    live = Live(Speculation(n_draft_max=0), 0.0)
    cancelled = rig.reply(
        prompt, live=live, max_tokens=None, cancel_at=lambda seen: bool(seen.rounds)
    )
    return cancelled.windows


def force(rig: Rig, prompt: Sequence[int], text: Sequence[int]) -> int:
    """The tokens accepted in rounds behind a prompt that was read, in which the target samples
    `text`: so two pairs of KV caches are compared by the same words. Afterwards the caches can be
    read into again."""
    target, drafter = rig.target, rig.drafter
    n_accepted, n_past, at = 0, len(prompt), 0
    with Batch(target) as batch:
        while at + N_DRAFT_MAX + 1 < len(text):
            drafted = drafter.propose(n_past, text[at], Limits(N_DRAFT_MAX)).ids
            decode(target, batch, [text[at], *drafted], n_past)
            drafter.see(batch)
            accepted = common_prefix(drafted, text[at + 1 :])
            drafter.accept(range(accepted))
            n_past += 1 + accepted
            at += 1 + accepted
            target.forget(0, n_past)
            n_accepted += accepted
    target.forget(0, len(prompt))
    drafter.resume(prompt)
    return n_accepted


def shifted_and_fresh(
    models: tuple[Model, Model], *, n_ctx: int, max_tokens: int
) -> Iterator[tuple[int, int]]:
    """A chat through a small context. For each turn before which others have left: the accepted
    tokens with the KV cache that was kept, and after a fresh prefill of the same tokens, over the
    texts that the target writes in both."""
    with open_rig(*models, n_ctx=n_ctx) as kept, open_rig(*models, n_ctx=n_ctx) as other:
        chat = LongChat(kept, conversation(system="You are a helpful assistant."))
        for question in QUESTIONS:
            asked = kept.prompter.conversation(
                [*chat.messages, Message(role="user", content=question)]
            )
            if windows := read(kept, asked):
                assert windows[-1].kv_kept
                rest = asked.without(windows[-1].first_turn)
                length = {"live": plainly(), "max_tokens": max_tokens}
                texts = (
                    kept.reply(asked, **length).tokens,
                    other.reply(rest, **length).tokens,
                )
                shifted = fresh = 0
                for text in texts:
                    read(kept, asked)
                    shifted += force(kept, rest, text)
                    read(other, rest)
                    fresh += force(other, rest, text)
                yield shifted, fresh
            chat.ask(question, max_tokens=max_tokens)
