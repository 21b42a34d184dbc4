"""Reads into both caches what they lack of a prompt, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from eaglechat.engine.auto.auto_length import AutoLength
from eaglechat.engine.auto.draft_plan import shapes_open
from eaglechat.engine.generation.cache_state import CacheState
from eaglechat.engine.generation.drafting import Drafting
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import Prefill


class Reader:
    """Reads for one reply, until it is cancelled."""

    def __init__(
        self,
        cache: CacheState,
        drafting: Drafting,
        auto: AutoLength,
        n_batch: int,
        cancelled: Callable[[], bool],
    ) -> None:
        self._cache = cache
        self._drafting = drafting
        self._auto = auto
        self._n_batch = n_batch
        self._cancelled = cancelled
        self.stopped = False
        """Whether it was cancelled with something left to read."""

    def read(
        self, tokens: Sequence[int], speculation: Speculation, boundaries: Sequence[int] = ()
    ) -> Iterator[Prefill]:
        """Bring the caches to exactly `tokens`; the drafter takes them in where it is about to
        draft, elsewhere they wait for it, at no cost. At `boundaries`, where a later
        prompt may differ, and at the end a checkpoint is saved. Raises DecodeError."""
        will_draft = self._will_draft(speculation, len(tokens))
        reused = self._cache.resume(tokens, to_draft=will_draft)
        yield Prefill(reused, len(tokens), reused)
        ends = [*sorted({end for end in boundaries if reused < end < len(tokens)}), len(tokens)]
        stretches = zip([reused, *ends], ends, strict=False)
        starts = [
            (first, min(first + self._n_batch, end))
            for start, end in stretches
            for first in range(start, end, self._n_batch)
        ]
        for first, last in starts:
            chunk = tokens[first:last]
            if self._cancelled() or not self._cache.read(chunk, self._cancelled):
                self.stopped = True
                return
            if will_draft:
                self._drafting.take_in()
            if last in ends:
                self._cache.save_checkpoint()
            yield Prefill(first + len(chunk), len(tokens), reused)

    def catch_up(self, speculation: Speculation) -> Iterator[Prefill]:
        """Read again what the drafter has to see, where speculation came on in mid-reply."""
        if self._cache.is_behind:
            yield from self.read(list(self._cache.tokens), speculation)

    def _will_draft(self, speculation: Speculation, n_past: int) -> bool:
        if not self._drafting.on:
            return False
        if speculation.n_draft_max == AUTO:
            shapes = shapes_open(speculation.shape, self._drafting.grows_trees)
            return self._auto.expects_to_draft(n_past, shapes)
        return speculation.n_draft_max > 0
