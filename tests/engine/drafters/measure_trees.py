"""Mean accepted length of chains and trees of the built-in draft, on a BF16 copy of its target.

`python -m tests.engine.drafters.measure_trees FOLDER [TOKENS]` writes the copy into FOLDER, unless
it is there. The prompts are the bench's, which the draft has not learnt from. Greedy; counts do not
depend on the machine's load.
"""

from __future__ import annotations

import sys
from pathlib import Path

from eaglechat.engine.bench.measure import builtin_prompts
from eaglechat.engine.drafters.eagle3.drafter import Eagle3Drafter
from eaglechat.engine.drafters.lookup_first import LookupFirst
from eaglechat.engine.generation.live import Live
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.llama.quantise import quantise
from eaglechat.hub.local.pairs import builtin_pair
from eaglechat.wire.protocol import Shape, Speculation
from eaglechat.wire.stats import StatsFold
from tests.engine.rig import Rig, open_rig

_BF16 = 32
"""general.file_type of GGUF."""
_SETTINGS: tuple[tuple[int, Shape, bool], ...] = (
    (3, "chain", False),
    (8, "chain", False),
    (8, "tree", False),
    (16, "tree", False),
)
_CODE = """def total(prices, tax):
    result = 0
    for price in prices:
        result = result + price * (1 + tax)
    return round(result, 2)

def cheapest(prices):
    best = prices[0]
    for price in prices:
        if price < best:
            best = price
    return best
"""
COPIES = (
    f"Repeat this code exactly, and rename `prices` to `amounts`:\n\n{_CODE}",
    f"Add a docstring to each function of this code and print all of it:\n\n{_CODE}",
    "Correct the spelling and write the text again: The eagle is a large bird of pray. It has a "
    "hooked beak and strong tallons. The eagle lives in mountains and by lakes, where it hunts "
    "fish and small animals. The eagle builds its nest in high trees or on cliffs.",
)
_COPY_SETTINGS: tuple[tuple[int, Shape, bool], ...] = ((3, "chain", False), (16, "chain", True))


def main() -> None:
    folder, n_tokens = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 128
    backend.start_backend(backend.LOG_ERRORS)
    pair = builtin_pair()
    assert pair.draft is not None
    bf16 = folder / "target-bf16.gguf"
    if not bf16.is_file():
        quantise(pair.target, bf16, _BF16, lambda _done, _total: None)
    with (
        Model(bf16) as target,
        Model(pair.draft) as draft,
        open_rig(
            target, draft, n_ctx=2048, make_drafter=lambda s: LookupFirst(Eagle3Drafter(s))
        ) as rig,
    ):
        _measure(rig, [prompt.text for prompt in builtin_prompts()], _SETTINGS, n_tokens)
        _measure(rig, COPIES, _COPY_SETTINGS, n_tokens)


def _measure(
    rig: Rig,
    texts: tuple[str, ...] | list[str],
    settings: tuple[tuple[int, Shape, bool], ...],
    n: int,
) -> None:
    for length, shape, ngram in settings:
        fold, ms = StatsFold(), 0.0
        for text in texts:
            live = Live(Speculation(n_draft_max=length, shape=shape, ngram=ngram), 0.0)
            reply = rig.reply(rig.prompt(text), live=live, max_tokens=n)
            ms += reply.end.timings.generation_ms
            for round_ in reply.rounds:
                fold.add(round_)
        stats = fold.stats()
        by = {name: f"{d.accepted}/{d.tested}" for name, d in stats.by_drafter.items()}
        print(
            f"{len(texts)} prompts, {shape} of {length}{', n-grams' if ngram else ''}: "
            f"mean accepted length {stats.mean_accepted_length:.3f}, {stats.tokens} tokens in "
            f"{stats.rounds} passes, {stats.tokens * 1000.0 / ms:.1f} tokens/s, {by}",
            flush=True,
        )


if __name__ == "__main__":
    main()
