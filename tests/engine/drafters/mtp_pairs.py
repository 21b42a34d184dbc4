"""Tiny targets with MTP heads, in their own file or beside it, and the loop over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eaglechat.engine.drafters.base import Limits, Opening
from eaglechat.engine.drafters.mtp.drafter import MtpDrafter, open_drafter
from eaglechat.engine.generation.generator import Generator
from eaglechat.engine.generation.live import Live
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.gguf.header import read_header
from eaglechat.wire.load_options import FlashAttention, LoadOptions
from eaglechat.wire.protocol import Sampling, Set, Speculation
from eaglechat.wire.records import KvType, Round
from tests import tiny_kinds
from tests.engine.drafters.by_hand import Driver
from tests.engine.rig import GREEDY, N_THREADS, Reply, plainly
from tests.tiny_kinds import F, N

N_ROLLBACK = 8


@dataclass(frozen=True)
class Kind:
    """A kind of target with heads."""

    architecture: str
    mix: float
    """What lets the history decide, and leaves a part of the drafts."""
    heads: int = 1
    is_sidecar: bool = False

    @property
    def longest(self) -> int:
        """The most tokens of a draft."""
        if self.architecture == "qwen35":
            return N_ROLLBACK
        return 16 if self.heads == 1 else self.heads


KINDS = {
    "hy_v3": Kind("hy_v3", mix=0.35),
    "hy_v3, 2 heads": Kind("hy_v3", mix=0.35, heads=2),
    "hy_v3, 3 heads": Kind("hy_v3", mix=0.35, heads=3),
    "qwen35": Kind("qwen35", mix=0.25),
    "hy_v3, sidecar": Kind("hy_v3", mix=0.35, is_sidecar=True),
    "hy_v3, sidecar of 2": Kind("hy_v3", mix=0.35, heads=2, is_sidecar=True),
    "qwen35, sidecar": Kind("qwen35", mix=0.25, is_sidecar=True),
    "gemma4": Kind("gemma4", mix=0.15),
}
IN_TARGET = [
    name for name, kind in KINDS.items() if kind.architecture != "gemma4" and not kind.is_sidecar
]
HYBRIDS = [name for name, kind in KINDS.items() if kind.architecture == "qwen35"]
DENSE = [name for name in KINDS if name not in HYBRIDS]
WITH_CELLS = [name for name in DENSE if name != "gemma4"]
"""Kinds whose heads have a KV cache that shifts."""

RANDOM = [(7 * i * i + 3 * i) % N for i in range(400)]
"""Regular tokens in no order that a target has."""


def cycle(length: int, first: int = 0) -> list[int]:
    """Tokens in the order that a target without `mix` has."""
    tokens = [first]
    while len(tokens) < length:
        tokens.append(F[tokens[-1]])
    return tokens


@dataclass(frozen=True)
class Files:
    """A target, and the file that has the heads if it is another."""

    kind: Kind
    target: Path
    draft: Path | None = None


def write(name: str, folder: Path, *, mixed: bool = False, **options: Any) -> Files:
    """A kind's files. `mixed` lets the history decide what follows, and the heads then go by token
    and state. Other options are those of `tests/tiny_kinds`."""
    kind = KINDS[name]
    if mixed:
        options = {"mix": kind.mix, "token_weight": 0.6, **options}
    if kind.heads > 1:
        options["heads"] = kind.heads
    target, draft = folder / "target.gguf", folder / "draft.gguf"
    make = getattr(tiny_kinds, f"write_{kind.architecture}")
    if kind.architecture == "gemma4":
        of_target = {key: value for key, value in options.items() if key in ("mix", "window")}
        return Files(
            kind, make(target, **of_target), tiny_kinds.write_gemma4_assistant(draft, **options)
        )
    if kind.is_sidecar:
        # The target's own heads are not loaded.
        return Files(kind, make(target, **options), make(draft, mtp_only=True, **options))
    return Files(kind, make(target, **options))


@dataclass(frozen=True)
class Pair:
    """A target, the context of its heads and the loop over them; closed by `opened`."""

    target: Context
    heads: Context
    drafter: MtpDrafter
    generator: Generator

    def reply(
        self,
        prompt: Sequence[int],
        *,
        n: int = 16,
        length: int = 40,
        sampling: Sampling = GREEDY,
        seed: int = 1,
        changes: dict[int, Set] | None = None,
        rounds: int | None = None,
        **options: Any,
    ) -> Reply:
        """`changes` are made behind the rounds of these numbers, and after as many as `rounds` the
        reply is cancelled. Other options are those of `Generator.reply`."""
        live = Live(Speculation(n_draft_max=n), sampling.temperature)
        events: list[Any] = []

        def is_enough() -> bool:
            return rounds is not None and len(Reply(tuple(events)).rounds) >= rounds

        for event in self.generator.reply(
            prompt, sampling, live, seed=seed, max_tokens=length, cancelled=is_enough, **options
        ):
            events.append(event)
            if changes and isinstance(event, Round) and event.index in changes:
                live.apply(changes[event.index])
        return Reply(tuple(events))

    def driver(self, batch: Batch, n_max: int = 16) -> Driver:
        return Driver(self.target, self.heads, self.drafter, batch, Limits(n_max))


@contextmanager
def opened(
    files: Files, *, n_ctx: int = 512, n_batch: int = 128, kv_type: KvType = "f16"
) -> Iterator[Pair]:
    # With flash attention, a value depends a little on how many rows are decoded together.
    flash: FlashAttention = "off" if kv_type == "f16" else "on"
    with ExitStack() as stack:
        in_target = files.draft is None
        model = stack.enter_context(Model(files.target, with_heads=in_target))
        draft = model
        if files.draft is not None:
            draft = stack.enter_context(Model(files.draft, with_heads=True))
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
        options = LoadOptions(n_batch=n_batch, draft_kv_type=kv_type, flash_attention=flash)
        header = read_header(files.draft or files.target)
        drafter = open_drafter(Opening(stack, target, draft, header, options, N_THREADS))
        generator = stack.enter_context(closing(Generator(target, [drafter])))
        yield Pair(target, drafter.draft, drafter, generator)


def plain(files: Files, prompt: Sequence[int], *, length: int = 40, **options: Any) -> Reply:
    """What the target writes without heads and with nothing in its cache."""
    sampling: Sampling = options.pop("sampling", GREEDY)
    with (
        Model(files.target) as model,
        Context(
            model, n_ctx=512, n_batch=128, n_threads=N_THREADS, flash_attention="off"
        ) as context,
        closing(Generator(context)) as generator,
    ):
        events = generator.reply(
            prompt,
            sampling,
            plainly(sampling.temperature),
            seed=options.pop("seed", 1),
            max_tokens=length,
        )
        return Reply(tuple(events))


def likelihoods(reply: Reply) -> list[list[float]]:
    return [[token.probability for token in round_.drafted] for round_ in reply.rounds]
