"""A target, its draft and the loop over them, made from the engine's own classes for one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from eaglechat.engine.drafters.eagle3 import Eagle3Drafter, Norms
from eaglechat.engine.llama.bindings import api
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.loop import Generator, Live, ReplyEvent
from eaglechat.engine.prompt import Asked, Prompter
from eaglechat.engine.templates.dialect import ReplyParts
from eaglechat.wire.protocol import KvType, Message, Sampling, Set, Shape, Speculation
from eaglechat.wire.records import (
    Origin,
    Prefill,
    ReplyEnd,
    Round,
    SpeculationOff,
    Window,
)
from eaglechat.wire.worker import cancelled_by

GREEDY = Sampling(temperature=0.0)
N_THREADS = 1
"""llama.cpp's threads wait by spinning, so on a busy machine one thread is fastest."""


@dataclass(frozen=True)
class Reply:
    """A finished reply, sorted by kind of event."""

    events: tuple[ReplyEvent, ...]

    def _of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def rounds(self) -> list[Round]:
        return self._of(Round)

    @property
    def prefills(self) -> list[Prefill]:
        return self._of(Prefill)

    @property
    def offs(self) -> list[SpeculationOff]:
        return self._of(SpeculationOff)

    @property
    def end(self) -> ReplyEnd:
        assert isinstance(self.events[-1], ReplyEnd)
        return self.events[-1]

    @property
    def windows(self) -> list[Window]:
        return self._of(Window)

    @property
    def tokens(self) -> list[int]:
        return [token.id for round_ in self.rounds for token in round_.tokens]

    @property
    def text(self) -> str:
        return "".join(round_.text for round_ in self.rounds) + self.end.tail


@dataclass(frozen=True)
class Rig:
    """Contexts, draft model and loop; closed by `open_rig`."""

    target: Context
    draft: Context
    drafter: Eagle3Drafter
    generator: Generator
    prompter: Prompter
    shape: Shape = "chain"
    ngram: bool = False

    def prompt(self, question: str) -> tuple[int, ...]:
        return self.prompter.conversation([Message(role="user", content=question)]).tokens

    def stream(
        self,
        prompt: Asked | Sequence[int],
        *,
        n_draft_max: int = 3,
        sampling: Sampling = GREEDY,
        live: Live | None = None,
        seed: int = 1,
        max_tokens: int | None = 32,
        **options: Any,
    ) -> Iterator[ReplyEvent]:
        """`options` are those of `Generator.reply`."""
        speculation = Speculation(n_draft_max=n_draft_max, shape=self.shape, ngram=self.ngram)
        live = live or Live(speculation, sampling.temperature)
        return self.generator.reply(
            asked(prompt), sampling, live, seed=seed, max_tokens=max_tokens, **options
        )

    def reply(
        self,
        prompt: Asked | Sequence[int],
        *,
        live: Live | None = None,
        changes: Mapping[int, Set] | None = None,
        cancel_at: Callable[[Reply], bool] = lambda _so_far: False,
        **options: Any,
    ) -> Reply:
        """As `finished`."""
        return finished(self.stream(prompt, live=live, **options), live, changes, cancel_at)


def finished(
    stream: Iterator[ReplyEvent],
    live: Live | None,
    changes: Mapping[int, Set] | None,
    cancel_at: Callable[[Reply], bool],
) -> Reply:
    """`live` is changed behind the rounds of these numbers; once `cancel_at` says of the reply so
    far that it is enough, the reply is cancelled."""
    events: list[ReplyEvent] = []
    with cancelled_by(lambda: cancel_at(Reply(tuple(events)))):
        for event in stream:
            events.append(event)
            if changes and isinstance(event, Round) and event.index in changes:
                live.apply(changes[event.index])
    return Reply(tuple(events))


class InParts(Asked):
    """Tokens, the reply to which has parts."""

    def __init__(self, tokens: Sequence[int], parts: ReplyParts) -> None:
        super().__init__(tokens)
        self._parts = parts

    @property
    def parts(self) -> ReplyParts:
        return self._parts


def asked(prompt: Asked | Sequence[int]) -> Asked:
    """Also of tokens alone."""
    return prompt if isinstance(prompt, Asked) else Asked(prompt)


def plainly(temperature: float = 0.0) -> Live:
    """Speculation off, as if there were no draft."""
    return Live(Speculation(enabled=False), temperature)


@contextmanager
def open_rig(
    target_model: Model,
    draft_model: Model,
    *,
    draft_window: int = 0,
    norms: Norms | None = None,
    shape: Shape = "chain",
    ngram: bool = False,
    **options: Any,
) -> Iterator[Rig]:
    """`options` are those of `open_contexts`."""
    with (
        open_contexts(target_model, draft_model, **options) as (target, draft),
        closing(Eagle3Drafter(target, draft, window=draft_window, norms=norms)) as drafter,
        closing(Generator(target, [drafter])) as generator,
    ):
        yield Rig(target, draft, drafter, generator, Prompter(target_model), shape, ngram)


@contextmanager
def open_contexts(
    target_model: Model,
    draft_model: Model,
    *,
    n_ctx: int = 1024,
    n_batch: int = 256,
    n_seq: int | None = None,
    n_batch_draft: int | None = None,
    kv_type: KvType = "f16",
) -> Iterator[tuple[Context, Context]]:
    # As a pair is loaded: a sequence for each path of a tree.
    n_seq = n_seq or (16 if target_model.keeps_whole_history else 1)
    with (
        Context(
            target_model,
            n_ctx=n_ctx,
            n_batch=n_batch,
            n_threads=N_THREADS,
            n_seq=n_seq,
            n_rollback=8,
            kv_type=kv_type,
        ) as target,
        Context(
            draft_model,
            n_ctx=n_ctx,
            n_batch=n_batch_draft or n_batch,
            n_ubatch=128,
            n_threads=N_THREADS,
            n_seq=n_seq,
            other=target,
        ) as draft,
    ):
        yield target, draft


def decode(
    context: Context,
    batch: Batch,
    tokens: Sequence[int],
    position: int,
    *,
    seq_id: int = 0,
    output: bool = True,
) -> None:
    """One decode of `tokens` from `position` on, through a batch of the test's."""
    batch.clear()
    batch.add_tokens(tokens, position, seq_id, output=output)
    assert context.decode(batch) == 0


def first_position(context: Context) -> int:
    """The first position that the context's KV cache holds; -1 if it holds none."""
    return api.llama_memory_seq_pos_min(api.llama_get_memory(context.pointer), 0)


def check_bookkeeping(reply: Reply, prompt: Sequence[int]) -> None:
    """What holds of every round of every reply."""
    n_past = len(prompt) - 1
    for index, round_ in enumerate(reply.rounds):
        drafted = [token.id for token in round_.drafted]
        parents = [token.parent for token in round_.drafted]
        path = list(round_.path)
        ids = [token.id for token in round_.tokens]
        origins = [token.origin for token in round_.tokens]
        n_accepted, last = round_.n_accepted, round_ is reply.rounds[-1]

        assert round_.index == index
        assert len(drafted) <= round_.n_draft_max
        assert ids[:n_accepted] == [drafted[index] for index in path]
        assert [parents[index] for index in path] == [-1, *path][:-1]
        assert all(parent < index for index, parent in enumerate(parents))
        assert len({*zip(parents, drafted, strict=True)}) == len(drafted)
        assert origins[:n_accepted] == [Origin.ACCEPTED] * n_accepted
        assert [token.drafter for token in round_.tokens] == [
            *(round_.drafted[index].drafter for index in path),
            *[None] * (len(ids) - n_accepted),
        ]
        assert len(ids) == n_accepted + 1 or (last and len(ids) == n_accepted)
        if len(ids) > n_accepted:
            rejected = bool(round_.children(path[-1] if path else -1))
            assert origins[-1] is (
                Origin.PLAIN if not drafted else Origin.CORRECTION if rejected else Origin.BONUS
            )
            assert round_.n_tested == n_accepted + rejected
            assert (round_.rejected is not None) == rejected
            assert round_.rejected is None or round_.rejected.id != ids[-1]
        else:
            assert round_.n_tested == n_accepted
        assert all(0.0 < token.probability <= 1.0 for token in round_.drafted)
        n_past += 1 + n_accepted
        assert round_.n_past == n_past
    assert reply.end.tokens == len(reply.tokens)


def drafts_of(reply: Reply) -> list[tuple[int, ...]]:
    """What was drafted, round by round."""
    return [tuple(token.id for token in round_.drafted) for round_ in reply.rounds]


def fresh_reply(models: tuple[Model, Model], prompt: Sequence[int], **options: Any) -> Reply:
    """The reply of a pair that has never seen anything else."""
    with open_rig(*models) as rig:
        return rig.reply(prompt, **options)
