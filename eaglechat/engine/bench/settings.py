"""What a bench compares: draft lengths, shapes, with and without n-grams, and plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from eaglechat.wire.bench_records import AS_STARTED, PLAIN
from eaglechat.wire.protocol import Auto, Shape, Speculation

PLAINLY = Speculation(enabled=False)


def settings_of(
    lengths: Sequence[int | Auto], shapes: Sequence[Shape], ngram: Sequence[bool]
) -> list[Speculation]:
    """The settings a bench runs: plain decoding, then every combination, each once."""
    combined = (_setting(*chosen) for chosen in product(ngram, shapes, lengths))
    return [PLAINLY, *dict.fromkeys(combined)]


def _setting(ngram: bool, shape: Shape, n: int | Auto) -> Speculation:
    # Fewer than two tokens make no tree, and none are looked up where none are drafted.
    return Speculation(
        n_draft_max=n, shape="chain" if n in (0, 1) else shape, ngram=ngram and n != 0
    )


def name_of(setting: Speculation | None) -> str:
    """As it stands in tables: `plain`, `3`, `tree 8`, `auto + n-grams`; None is a server's own."""
    if setting is None:
        return AS_STARTED
    if not setting.enabled:
        return PLAIN
    shape = "" if setting.shape == "chain" else f"{setting.shape} "
    return f"{shape}{setting.n_draft_max}{' + n-grams' if setting.ngram else ''}"
