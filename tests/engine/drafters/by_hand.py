"""Drives an EAGLE-3 drafter by hand, greedily: what a test needs below the loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from eaglechat.engine.drafters.base import Drafter
from eaglechat.engine.drafters.eagle3 import Eagle3Drafter
from eaglechat.engine.drafters.proposal import Limits, Proposal
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.sequences import common_prefix
from tests.engine.rig import decode, open_contexts

Models = tuple[Model, Model]


@dataclass
class Driver:
    """A conversation that is written with a target and a drafter."""

    target: Context
    draft: Context
    drafter: Drafter
    batch: Batch
    limits: Limits
    n_past: int = 0
    id_last: int = 0

    def prefill(self, prompt: Sequence[int], chunk: int = 16, *, take_in: bool = False) -> None:
        tokens = prompt[:-1]
        for first in range(0, len(tokens), chunk):
            decode(self.target, self.batch, tokens[first : first + chunk], first, output=False)
            self.drafter.see(self.batch)
            if take_in:
                self.drafter.take_in()
        assert self.drafter.known == len(tokens)
        self.n_past, self.id_last = len(tokens), prompt[-1]

    def propose(self) -> Proposal:
        return self.drafter.propose(self.n_past, self.id_last, self.limits)

    def round(self) -> tuple[list[int], int]:
        """The tokens drafted in a round, and how many of them the target accepted."""
        drafted = [*self.propose().ids]
        decode(self.target, self.batch, [self.id_last, *drafted], self.n_past)
        self.drafter.see(self.batch)
        n_accepted, self.id_last = verified(self.target, drafted)
        self.drafter.accept(range(n_accepted))
        self.n_past += 1 + n_accepted
        self.target.forget(0, self.n_past)
        return drafted, n_accepted


def verified(target: Context, drafted: Sequence[int]) -> tuple[int, int]:
    """How many drafted tokens of the batch just decoded are the target's likeliest, and the token
    that it puts behind them."""
    own = [int(target.logits(row).argmax()) for row in range(len(drafted) + 1)]
    n_accepted = common_prefix(drafted, own)
    return n_accepted, own[n_accepted]


@contextmanager
def by_hand(
    models: Models, *, n_batch_draft: int | None = None, **options: Any
) -> Iterator[Driver]:
    """`options` are those of `Eagle3Drafter`."""
    with (
        open_contexts(*models, n_ctx=512, n_seq=1, n_batch_draft=n_batch_draft) as contexts,
        Batch(contexts[0]) as batch,
        closing(Eagle3Drafter(*contexts, **options)) as drafter,
    ):
        yield Driver(*contexts, drafter, batch, Limits(3))


def prompt_of(model: Model, text: str = "the cat sat on the mat and") -> list[int]:
    return model.tokenize(text, bos=True, special=True)
