"""Tiny pairs of every kind of drafter, as they are loaded, and plain decoding to hold them
against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eaglechat.engine.drafters.base import Drafter, Limits, Opening
from eaglechat.engine.drafters.pairing import KINDS as DRAFTERS
from eaglechat.engine.drafters.pairing import check_pair, pairings
from eaglechat.engine.live import Live
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.loading.pair import N_ROLLBACK, LoadedPair
from eaglechat.engine.loop import Generator, ReplyEvent
from eaglechat.wire import cancelling
from eaglechat.wire.load_options import FlashAttention, LoadOptions
from eaglechat.wire.protocol import Set, Shape, Speculation
from eaglechat.wire.records import KvType, Round
from tests import tiny_kinds
from tests.engine.drafters.by_hand import Driver
from tests.engine.rig import GREEDY, N_THREADS, Reply, decode
from tests.tiny_kinds import F, N, repaired_tokens, wrong_tokens

WRONG = 0.25
"""The share of tokens after which the drafters of a pair that is not mixed are wrong."""
NEAR = 0.02
"""Logits closer than this are a near-tie. Another batch or another CPU moves them by 0.003."""


@dataclass(frozen=True)
class Kind:
    """What a target is, and what drafts for it."""

    target: str
    mix: float
    """What lets the history decide, and leaves a part of the drafts."""
    drafters: tuple[str, ...]
    heads: int = 0
    is_sidecar: bool = False
    """Whether the heads are in a file of their own."""
    block: tiny_kinds.Variant | None = None
    is_model: bool = False
    """Whether a whole model drafts."""

    @property
    def is_hybrid(self) -> bool:
        return self.target == "qwen35"

    def longest(self, drafter: str) -> int:
        """The most tokens that a drafter proposes: a hybrid target can take back eight."""
        if drafter == "mtp":
            return self.heads if self.heads > 1 else 8 if self.is_hybrid else 16
        return {"dspark": 8, "model": 8 if self.is_hybrid else 16}.get(drafter, 7)

    def wrong_after(self, drafter: str) -> frozenset[int]:
        """The tokens after which it is wrong in a pair that is not mixed."""
        if drafter in ("dspark", "dflash2"):
            return wrong_tokens(WRONG) - repaired_tokens(WRONG)
        return wrong_tokens(WRONG)

    def write(self, folder: Path, *, mixed: bool = False) -> tuple[Path, Path | None]:
        """The files of the target and of its draft, if that is a file. A drafter that is not mixed
        goes by what it reads of the target alone, so what it should not have read is a wrong
        draft."""
        of_target: dict[str, Any] = {"mix": self.mix} if mixed else {}
        of_heads = {**of_target, "token_weight": 0.6} if mixed else {"wrong": WRONG}
        if self.heads > 1:
            of_heads["heads"] = self.heads
        target, draft = folder / "target.gguf", folder / "draft.gguf"
        if self.target == "gemma4":
            tiny_kinds.write_gemma4(target, **of_target)
            return target, tiny_kinds.write_gemma4_assistant(draft, **of_heads)
        make = getattr(tiny_kinds, f"write_{self.target}")
        make(target, **(of_heads if self.heads else of_target))
        if self.is_sidecar:
            return target, make(draft, mtp_only=True, **of_heads)
        if self.is_model:
            # Of a hybrid's family, whose state could not be taken back, none can draft.
            of_draft: dict[str, Any] = {"wrong": WRONG}
            if mixed:
                of_draft = {} if self.is_hybrid else {"mix": 0.2}
            return target, tiny_kinds.write_llama(draft, **of_draft)
        if self.block is None:
            return target, None
        wrong = 0.0 if mixed else WRONG
        return target, tiny_kinds.write_dflash(
            draft, variant=self.block, wrong=wrong, from_features=True
        )


KINDS = {
    "hy_v3": Kind("hy_v3", 0.35, ("mtp",), heads=1),
    "hy_v3, 2 heads": Kind("hy_v3", 0.35, ("mtp",), heads=2),
    "qwen35": Kind("qwen35", 0.25, ("mtp",), heads=1),
    "hy_v3, sidecar": Kind("hy_v3", 0.35, ("mtp",), heads=1, is_sidecar=True),
    "gemma4, assistant": Kind("gemma4", 0.15, ("mtp",)),
    "llama, dflash": Kind("llama", 0.25, ("dflash",), block="dflash"),
    "llama, dspark": Kind("llama", 0.25, ("dspark",), block="dspark"),
    "llama, dflash2": Kind("llama", 0.25, ("dflash2",), block="dflash2"),
    "llama, model": Kind("llama", 0.25, ("model",), is_model=True),
    "qwen35, model": Kind("qwen35", 0.25, ("model", "mtp"), heads=1, is_model=True),
    "qwen35, dflash": Kind("qwen35", 0.25, ("dflash", "mtp"), heads=1, block="dflash"),
    "hy_v3, 3 heads": Kind("hy_v3", 0.35, ("mtp",), heads=3),
    "hy_v3, sidecar of 2": Kind("hy_v3", 0.35, ("mtp",), heads=2, is_sidecar=True),
    "qwen35, sidecar": Kind("qwen35", 0.25, ("mtp",), heads=1, is_sidecar=True),
}

QUICK = ("hy_v3", "llama, dspark", "llama, model", "qwen35, dflash")
"""The kinds that are not left to the slow tests."""


def _each(kind: str, *more: str) -> Any:
    marks = () if kind in QUICK else pytest.mark.slow
    return pytest.param(kind, *more, marks=marks, id=": ".join((kind, *more)))


all_kinds = pytest.mark.parametrize("kind", [_each(kind) for kind in KINDS])
all_drafters = pytest.mark.parametrize(
    ("kind", "drafter"), [_each(kind, one) for kind in KINDS for one in KINDS[kind].drafters]
)

RANDOM = [(7 * i * i + 3 * i) % N for i in range(400)]
"""Regular tokens in no order that a target has."""


@dataclass(frozen=True)
class Pair:
    """A loaded pair; closed by `Files.loaded`."""

    loaded: LoadedPair

    def reply(
        self,
        prompt: Sequence[int],
        *,
        drafter: str = "auto",
        n: int | str = 3,
        ngram: bool = False,
        shape: Shape = "chain",
        length: int = 24,
        changes: dict[int, Set] | None = None,
        rounds: int | None = None,
        **options: Any,
    ) -> Reply:
        """`changes` are made behind the rounds of these numbers; behind as many as `rounds` the
        reply is cancelled. Other options are those of `Generator.reply`."""
        options = {"sampling": GREEDY, "seed": 1, **options}
        speculation = Speculation(n_draft_max=n, ngram=ngram, drafter=drafter, shape=shape)
        live = Live(speculation, options["sampling"].temperature)
        events: list[ReplyEvent] = []

        def is_enough() -> bool:
            return rounds is not None and len(Reply(tuple(events)).rounds) >= rounds

        stream = self.loaded.generator.reply(prompt, live=live, max_tokens=length, **options)
        with cancelling.by(is_enough):
            for event in stream:
                events.append(event)
                if changes and isinstance(event, Round) and event.index in changes:
                    live.apply(changes[event.index])
        return Reply(tuple(events))


@dataclass(frozen=True)
class Opened:
    """A target and one drafter of it, below the loop; closed by `Files.opened`."""

    target: Context
    drafter: Drafter
    generator: Generator

    def driver(self, batch: Batch, n_max: int = 16) -> Driver:
        return Driver(self.target, self.drafter.draft, self.drafter, batch, Limits(n_max))


@dataclass(frozen=True)
class Files:
    """The files of a pair."""

    kind: Kind
    target: Path
    draft: Path | None

    @contextmanager
    def opened(
        self, drafter: str, *, n_ctx: int = 512, n_batch: int = 128, kv_type: KvType = "f16"
    ) -> Iterator[Opened]:
        # With flash attention, a value depends a little on how many rows are decoded together.
        flash: FlashAttention = "off" if kv_type == "f16" else "on"
        headers = check_pair(self.target, self.draft)
        (found,) = [one for one in pairings(*headers) if one.kind == drafter]
        options = LoadOptions(n_batch=n_batch, draft_kv_type=kv_type, flash_attention=flash)
        with ExitStack() as stack:
            model = stack.enter_context(Model(self.target, with_heads=found.file is None))
            draft, header = model, headers[0]
            if found.file is not None:
                assert self.draft is not None
                header = found.file
                draft = stack.enter_context(Model(self.draft, with_heads=drafter == "mtp"))
            target = stack.enter_context(
                Context(
                    model,
                    n_ctx=n_ctx,
                    n_batch=n_batch,
                    n_threads=N_THREADS,
                    n_rollback=N_ROLLBACK,
                    n_outputs=17,
                    flash_attention=flash,
                    kv_type=kv_type,
                )
            )
            opening = Opening(stack, target, draft, header, options, N_THREADS)
            made = DRAFTERS[found.kind].open(opening)
            generator = stack.enter_context(closing(Generator(target, [made])))
            yield Opened(target, made, generator)

    @contextmanager
    def loaded(self, *, n_ctx: int = 512, n_batch: int = 128) -> Iterator[Pair]:
        options = LoadOptions(n_ctx=n_ctx, n_batch=n_batch, n_threads=N_THREADS)
        with closing(LoadedPair(check_pair(self.target, self.draft), options)) as pair:
            yield Pair(pair)


class Plain:
    """Decodes with the target alone, a token at a time."""

    def __init__(self, context: Context, batch: Batch) -> None:
        self._context, self._batch = context, batch
        self._random = np.random.default_rng(26)

    def reply(self, prompt: Sequence[int], length: int = 24) -> list[int] | None:
        """The likeliest tokens; None if one of them is so by less than NEAR."""
        self._context.forget(0, 0)
        decode(self._context, self._batch, prompt, 0)
        reply: list[int] = []
        row = len(prompt) - 1
        while True:
            logits = np.array(self._context.logits(row))
            second, first = np.argsort(logits)[-2:]
            if logits[first] - logits[second] < NEAR:
                return None
            reply.append(int(first))
            if len(reply) == length:
                return reply
            decode(self._context, self._batch, reply[-1:], len(prompt) + len(reply) - 1)
            row = 0

    def ask(
        self, held: Sequence[int] = (), n_tokens: int = 20, length: int = 24
    ) -> tuple[list[int], list[int]]:
        """A question behind `held`, with all before it, and the reply to it. None of the reply's
        tokens is a near-tie, which any rounding decides."""
        while True:
            question = self._random.integers(0, N, n_tokens).tolist()
            prompt = [*held, *question]
            reply = self.reply(prompt, length)
            if reply is not None:
                return prompt, reply


@contextmanager
def plain(target: Path) -> Iterator[Plain]:
    with ExitStack() as stack:
        model = stack.enter_context(Model(target))
        context = stack.enter_context(Context(model, n_ctx=512, n_batch=512, n_threads=N_THREADS))
        yield Plain(context, stack.enter_context(Batch(context)))


@dataclass(frozen=True)
class Turns:
    """A conversation whose turns have all the same length."""

    tokens: Sequence[int]
    length: int

    @cached_property
    def count(self) -> int:
        return len(self.tokens) // self.length

    def without(self, n: int) -> Sequence[int]:
        return self.tokens[n * self.length :]


def cycle(length: int, first: int = 0) -> list[int]:
    """Tokens in the order that a target without `mix` has."""
    tokens = [first]
    while len(tokens) < length:
        tokens.append(F[tokens[-1]])
    return tokens


def counts(reply: Reply) -> list[int]:
    """Tokens accepted in each round."""
    return [round_.n_accepted for round_ in reply.rounds]


Write = Callable[..., Files]
