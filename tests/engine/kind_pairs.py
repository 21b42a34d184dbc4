"""Tiny pairs of every kind of drafter, as they are loaded, and plain decoding to hold them
against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pytest

from eaglechat.engine.drafters.base import Drafter, Opening, open_drafter
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.loop import Generator, Live
from eaglechat.engine.pair import N_ROLLBACK, LoadedPair
from eaglechat.engine.prompt import Asked
from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.pairing import check_pair, pairings
from eaglechat.wire.protocol import FlashAttention, KvType, LoadOptions, Set, Shape, Speculation
from tests import tiny_kinds
from tests.engine.drafters.by_hand import Driver
from tests.engine.rig import GREEDY, N_THREADS, Reply, asked, finished
from tests.tiny_kinds import F, N, repaired_tokens, wrong_tokens

WRONG = 0.25
"""The share of tokens after which the drafters of a pair that is not mixed are wrong."""


Draft = Literal["sidecar", "assistant", "eagle3", "model"] | tiny_kinds.Variant


@dataclass(frozen=True)
class Kind:
    """What a target is, and what drafts for it."""

    target: str
    mix: float
    """What lets the history decide, and leaves a part of the drafts."""
    drafters: tuple[str, ...]
    draft: Draft | None = None
    """What the draft's file holds; None if the heads are in the target's."""
    heads: int = 0

    @property
    def is_hybrid(self) -> bool:
        return self.target == "qwen35"

    @property
    def can_shift(self) -> bool:
        """Not with a recurrent state; and an assistant reads the target's keys."""
        return not self.is_hybrid and self.draft != "assistant"

    def longest(self, drafter: str) -> int:
        """The most tokens that a drafter proposes: a hybrid target can take back eight."""
        if drafter == "mtp" and self.heads > 1:
            return self.heads
        if drafter in ("dflash", "dspark", "dflash2"):
            return 8 if self.draft == "dspark" else 7
        return 8 if self.is_hybrid else 16

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
        make = getattr(tiny_kinds, f"write_{self.target}")
        make(target, **(of_heads if self.heads else of_target))
        match self.draft:
            case "sidecar":
                return target, make(draft, mtp_only=True, **of_heads)
            case "assistant":
                return target, tiny_kinds.write_gemma4_assistant(draft, **of_heads)
            case "eagle3":
                return target, tiny_kinds.write_eagle3(
                    draft, **({**of_heads, "mix": 0.5} if mixed else of_heads)
                )
            case "model":
                # Of a hybrid's family, whose state could not be taken back, none can draft.
                by_history = {} if self.is_hybrid else {"mix": 0.2}
                return target, tiny_kinds.write_llama(
                    draft, **(by_history if mixed else {"wrong": WRONG})
                )
            case None:
                return target, None
            case variant:
                wrong = 0.0 if mixed else WRONG
                return target, tiny_kinds.write_dflash(
                    draft, variant=variant, wrong=wrong, from_features=True
                )


KINDS = {
    "llama, eagle3": Kind("llama", 0.25, ("eagle3",), "eagle3"),
    "qwen35, eagle3": Kind("qwen35", 0.25, ("eagle3", "mtp"), "eagle3", heads=1),
    "hy_v3": Kind("hy_v3", 0.35, ("mtp",), heads=1),
    "hy_v3, 2 heads": Kind("hy_v3", 0.35, ("mtp",), heads=2),
    "qwen35": Kind("qwen35", 0.25, ("mtp",), heads=1),
    "hy_v3, sidecar": Kind("hy_v3", 0.35, ("mtp",), "sidecar", heads=1),
    "gemma4, assistant": Kind("gemma4", 0.15, ("mtp",), "assistant"),
    "llama, dflash": Kind("llama", 0.25, ("dflash",), "dflash"),
    "llama, dspark": Kind("llama", 0.25, ("dspark",), "dspark"),
    "llama, dspark-bonus": Kind("llama", 0.25, ("dspark",), "dspark-bonus"),
    "llama, dflash2": Kind("llama", 0.25, ("dflash2",), "dflash2"),
    "llama, model": Kind("llama", 0.25, ("model",), "model"),
    "qwen35, model": Kind("qwen35", 0.25, ("model", "mtp"), "model", heads=1),
    "qwen35, dflash": Kind("qwen35", 0.25, ("dflash", "mtp"), "dflash", heads=1),
    "hy_v3, 3 heads": Kind("hy_v3", 0.35, ("mtp",), heads=3),
    "hy_v3, sidecar of 2": Kind("hy_v3", 0.35, ("mtp",), "sidecar", heads=2),
    "qwen35, sidecar": Kind("qwen35", 0.25, ("mtp",), "sidecar", heads=1),
}

QUICK = ("llama, eagle3", "hy_v3", "llama, dspark", "llama, model", "qwen35, dflash")
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
class Writes:
    """Something that writes replies."""

    generator: Generator

    def reply(
        self,
        prompt: Asked | Sequence[int],
        *,
        drafter: str = "auto",
        n: int | str = 3,
        ngram: bool = False,
        enabled: bool = True,
        p_min: float = 0.0,
        shape: Shape = "chain",
        length: int | None = 24,
        changes: Mapping[int, Set] | None = None,
        cancel_at: Callable[[Reply], bool] = lambda _so_far: False,
        **options: Any,
    ) -> Reply:
        """As `finished`; other options are those of `Generator.reply`."""
        options = {"sampling": GREEDY, "seed": 1, **options}
        speculation = Speculation(
            enabled=enabled, n_draft_max=n, p_min=p_min, ngram=ngram, drafter=drafter, shape=shape
        )
        live = Live(speculation, options["sampling"].temperature)
        stream = self.generator.reply(asked(prompt), live=live, max_tokens=length, **options)
        return finished(stream, live, changes, cancel_at)


@dataclass(frozen=True)
class Pair(Writes):
    """A loaded pair; closed by `Files.loaded`."""

    loaded: LoadedPair


@dataclass(frozen=True)
class Opened(Writes):
    """A target and one drafter of it, below the loop; closed by `Files.opened`."""

    target: Context
    drafter: Drafter

    def driver(self, batch: Batch, n_max: int = 16) -> Driver:
        return Driver(self.target, self.drafter.draft, self.drafter, batch, Limits(n_max))


@dataclass(frozen=True)
class Files:
    """The files of a pair. `opened` reads them once: only contexts have a past."""

    kind: Kind
    target: Path
    draft: Path | None
    _models: dict[tuple[Path, bool], Model] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def _headers(self) -> tuple[GGUFHeader, GGUFHeader | None]:
        return check_pair(self.target, self.draft)

    def _model(self, path: Path, *, with_heads: bool) -> Model:
        made = self._models.get((path, with_heads)) or Model(path, with_heads=with_heads)
        return self._models.setdefault((path, with_heads), made)

    def close(self) -> None:
        for model in self._models.values():
            model.close()

    @contextmanager
    def opened(
        self,
        drafter: str,
        *,
        n_ctx: int = 512,
        n_batch: int = 128,
        n_ubatch: int = 128,
        kv_type: KvType = "f16",
        wrap: Callable[[Drafter], Any] = lambda made: made,
    ) -> Iterator[Opened]:
        """The loop gets what `wrap` makes of the drafter."""
        # With flash attention, a value depends a little on how many rows are decoded together.
        flash: FlashAttention = "off" if kv_type == "f16" else "on"
        (found,) = [one for one in pairings(*self._headers) if one.kind == drafter]
        options = LoadOptions(n_batch=n_batch, draft_kv_type=kv_type, flash_attention=flash)
        with ExitStack() as stack:
            model = self._model(self.target, with_heads=found.file is None)
            draft, header = model, self._headers[0]
            if found.file is not None:
                assert self.draft is not None
                header = found.file
                draft = self._model(self.draft, with_heads=drafter == "mtp")
            target = stack.enter_context(
                Context(
                    model,
                    n_ctx=n_ctx,
                    n_batch=n_batch,
                    n_ubatch=n_ubatch,
                    n_threads=N_THREADS,
                    n_rollback=N_ROLLBACK,
                    n_outputs=17,
                    n_seq=16 if drafter == "eagle3" and not self.kind.is_hybrid else 1,
                    flash_attention=flash,
                    kv_type=kv_type,
                )
            )
            opening = Opening(stack, target, draft, header, options, N_THREADS)
            made = wrap(open_drafter(found.kind, opening))
            yield Opened(stack.enter_context(closing(Generator(target, [made]))), target, made)

    @contextmanager
    def loaded(self, *, n_ctx: int = 512, n_batch: int = 128) -> Iterator[Pair]:
        options = LoadOptions(n_ctx=n_ctx, n_batch=n_batch, n_threads=N_THREADS)
        with closing(LoadedPair(check_pair(self.target, self.draft), options)) as pair:
            yield Pair(pair.generator, pair)


class Turns(Asked):
    """A conversation whose turns have all the same length."""

    def __init__(self, tokens: Sequence[int], length: int) -> None:
        super().__init__(tokens)
        self._length = length

    @property
    def count(self) -> int:
        return len(self.tokens) // self._length

    def without(self, n: int) -> tuple[int, ...]:
        return self.tokens[n * self._length :]


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
