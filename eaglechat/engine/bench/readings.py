"""Measures which of two readings of an EAGLE-3 draft its target accepts more of.

A checkpoint may not say whether a state that the draft feeds back to itself passes the output norm,
as in EAGLE-3.1, or stays as it is, as in EAGLE-3. Run with the arguments TARGET DRAFT, where the
header of DRAFT names that norm, this module prints the mean accepted length without it and with it,
or a clause that says why there is none.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from eaglechat.engine.bench.measure import messages_of
from eaglechat.engine.bench.prompts import builtin_prompts
from eaglechat.engine.drafters.eagle3.drafter import Eagle3Drafter
from eaglechat.engine.drafters.eagle3.norms import Norms, norms_of
from eaglechat.engine.drafters.pairing import check_pair
from eaglechat.engine.generation.generator import Generator
from eaglechat.engine.generation.live import Live
from eaglechat.engine.generation.prompt import Prompter
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Context, Model
from eaglechat.engine.llama.placement import draft_placement, target_placement
from eaglechat.engine.llama.quantise import end_with_parent
from eaglechat.engine.loading.machine import choose_threads, free_memory
from eaglechat.engine.loading.pair import N_ROLLBACK
from eaglechat.gguf.memory import memory_need
from eaglechat.wire.errors import BenchFailedError, EngineError, ModelLoadError
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import Sampling, Speculation
from eaglechat.wire.records import Round
from eaglechat.wire.stats import stats_of

_N_CTX = 1024
_N_DRAFT = 4
"""The readings differ from the second token of a draft on."""
_N_PROMPTS, _N_TOKENS = 3, 64
"""Each reading writes so many replies of so many tokens."""


def accepted_lengths(target_path: Path, draft_path: Path) -> tuple[float, float]:
    """Mean accepted length if states are fed back as they are, and if they pass the output norm.

    Raises EngineError, also if the memory that is free now does not hold the pair.
    """
    target_header, draft_header = check_pair(target_path, draft_path)
    assert draft_header is not None
    options, devices = LoadOptions(n_ctx=_N_CTX), backend.devices()
    need, free = memory_need(target_header, draft_header, _N_CTX), free_memory(options, devices)
    if need.total > free:
        raise ModelLoadError(
            f"the pair needs {need.total / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free"
        )
    n_threads = choose_threads().count
    with ExitStack() as owned:
        placement = target_placement(options, devices, None)
        target = owned.enter_context(Model(target_path, placement))
        beside = draft_placement(placement, len(target.devices))
        draft = owned.enter_context(Model(draft_path, beside))
        context = owned.enter_context(
            Context(
                target,
                n_ctx=_N_CTX,
                n_batch=options.n_batch,
                n_threads=n_threads,
                n_rollback=N_ROLLBACK,
            )
        )
        if context.n_rollback == 0:
            raise ModelLoadError("the target's state cannot take back rejected tokens")
        own = owned.enter_context(
            Context(
                draft, n_ctx=_N_CTX, n_batch=options.n_batch, n_threads=n_threads, other=context
            )
        )
        prompter = Prompter(target)
        prompts = [
            prompter.prompt(messages_of(prompt)) for prompt in builtin_prompts()[:_N_PROMPTS]
        ]
        normed = norms_of(draft_header)
        plain = replace(normed, output=None)
        return _accepted(context, own, prompts, plain), _accepted(context, own, prompts, normed)


def _accepted(
    target: Context, draft: Context, prompts: list[tuple[int, ...]], norms: Norms
) -> float:
    """The mean accepted length over greedy replies, which are the same whatever is drafted."""
    for context in (target, draft):
        context.forget(0, 0)
    live = Live(Speculation(n_draft_max=_N_DRAFT, ngram=False), 0.0)
    greedy = Sampling(temperature=0.0)
    with (
        closing(Eagle3Drafter(target, draft, norms=norms)) as drafter,
        closing(Generator(target, [drafter])) as generator,
    ):
        events = [
            event
            for prompt in prompts
            for event in generator.reply(prompt, greedy, live, seed=0, max_tokens=_N_TOKENS)
        ]
    stats = stats_of(event for event in events if isinstance(event, Round))
    if stats.mean_accepted_length is None:
        raise BenchFailedError("the draft proposes nothing")
    return stats.mean_accepted_length


def _main(target: str, draft: str) -> int:
    end_with_parent()
    backend.start_backend(backend.LOG_ERRORS)
    try:
        print(*accepted_lengths(Path(target), Path(draft)))
    except EngineError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
