"""What sampling a row costs, beside llama.cpp's own chain on the same logits.

`python -m tests.engine.llama.measure_sampling [VOCABULARY ...]` makes a tiny model of each size.
llama-speculative-simple samples with that chain.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from eaglechat.engine.llama import backend
from eaglechat.engine.llama.bindings import C
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.llama.sampler import Sampler
from tests.engine.rig import decode
from tests.tiny_family import write_model

_VOCABULARIES = (128_256, 151_936, 262_144)
_ROWS = 300


def main() -> None:
    backend.start_backend(backend.LOG_ERRORS)
    sizes = [int(size) for size in sys.argv[1:]] or _VOCABULARIES
    print("| Vocabulary | eaglechat | llama.cpp's chain | Ratio |")
    print("| ---: | ---: | ---: | ---: |")
    for size in sizes:
        ours, theirs = _measure(size)
        print(f"| {size:,} | {ours:.3f} ms | {theirs:.3f} ms | {ours / theirs:.2f} |", flush=True)


def _measure(size: int) -> tuple[float, float]:
    """Milliseconds a row, medians, by turns."""
    with tempfile.TemporaryDirectory(prefix="eaglechat-sampling-") as folder:
        control = [f"<|{number}|>" for number in range(size - 257)]
        path = write_model(Path(folder) / "tiny.gguf", "{{ messages }}", control)
        with (
            Model(path) as model,
            Context(model, n_ctx=512, n_batch=32, n_threads=1) as context,
            Batch(context) as batch,
            _sampler(model) as ours,
            _sampler(model) as theirs,
        ):
            draws = (
                lambda: ours.sample(context, 0),
                lambda: C.sample(theirs.pointer, context.pointer, 0),
            )
            times: tuple[list[float], list[float]] = ([], [])
            for position in range(_ROWS):
                # A decode before each: what was decoded last lies nearest.
                decode(context, batch, [position % 256], position)
                times[position % 2].append(_ms(draws[position % 2]))
            return median(times[0]), median(times[1])


def _sampler(model: Model) -> Sampler:
    return Sampler(
        model, temperature=0.7, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.0, seed=1
    )


def _ms(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000.0


if __name__ == "__main__":
    main()
