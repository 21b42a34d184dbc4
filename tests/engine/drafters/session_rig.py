"""Drives an EAGLE-3 session by hand, greedily: what a test needs below the loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from eaglechat.engine.drafters.eagle3.session import Eagle3Session
from eaglechat.engine.drafters.eagle3.session_config import Eagle3SessionConfig
from eaglechat.engine.llama.objects import Batch, Context, Model
from tests.engine.rig import decode, open_contexts

Models = tuple[Model, Model]


@dataclass
class Driver:
    """Drives a session by hand, greedily, one sequence of it."""

    target: Context
    session: Eagle3Session
    batch: Batch
    seq_id: int
    n_past: int = 0
    id_last: int = 0

    def prefill(self, prompt: Sequence[int], chunk: int = 16, *, take_in: bool = False) -> None:
        tokens = prompt[:-1]
        for first in range(0, len(tokens), chunk):
            part = tokens[first : first + chunk]
            decode(self.target, self.batch, part, first, seq_id=self.seq_id, output=False)
            self.session.process(self.batch)
            if take_in:
                self.session.take_in(self.seq_id)
        self.session.begin(self.seq_id, tokens)
        self.n_past, self.id_last = len(tokens), prompt[-1]

    def round(self) -> tuple[list[int], int]:
        """The tokens drafted in a round, and how many the target accepted."""
        drafted = self.session.draft(self.seq_id, self.n_past, self.id_last)
        decode(self.target, self.batch, [self.id_last, *drafted], self.n_past, seq_id=self.seq_id)
        own = [int(self.target.logits(row).argmax()) for row in range(len(drafted) + 1)]
        self.session.process(self.batch)
        pairs = list(zip(drafted, own, strict=False))
        n_accepted = next((i for i, (d, o) in enumerate(pairs) if d != o), len(pairs))
        self.session.accept(self.seq_id, n_accepted)
        self.n_past += 1 + n_accepted
        self.id_last = own[n_accepted]
        self.target.forget(self.seq_id, self.n_past)
        return drafted, n_accepted


@dataclass
class Bench:
    target: Context
    draft: Context
    session: Eagle3Session
    batch: Batch

    def driver(self, seq_id: int = 0) -> Driver:
        return Driver(self.target, self.session, self.batch, seq_id)


@contextmanager
def bench(
    models: Models, *, n_seq: int = 1, n_batch_draft: int | None = None, **config: float
) -> Iterator[Bench]:
    settings = Eagle3SessionConfig(**{"n_seq": n_seq, "n_draft_max": 3, **config})
    with (
        open_contexts(*models, n_ctx=512, n_seq=n_seq, n_batch_draft=n_batch_draft) as contexts,
        Batch(contexts[0]) as batch,
        Eagle3Session(*contexts, settings) as session,
    ):
        yield Bench(*contexts, session, batch)


def prompt_of(model: Model, text: str = "the cat sat on the mat and") -> list[int]:
    return model.tokenize(text, bos=True, special=True)
