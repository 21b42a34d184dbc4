"""Prefill: decodes, chunk by chunk, what the KV caches lack of a prompt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from eaglechat.engine.clock import ms_since
from eaglechat.engine.generation.cache_state import CacheState
from eaglechat.engine.generation.guarded_drafters import GuardedDrafters
from eaglechat.engine.generation.planner import Planner
from eaglechat.wire.protocol import Speculation
from eaglechat.wire.records import Prefill


class Reader:
    """Reads tokens into the KV caches, for one reply."""

    def __init__(
        self,
        cache: CacheState,
        drafters: GuardedDrafters,
        planner: Planner,
        n_batch: int,
        cancelled: Callable[[], bool],
    ) -> None:
        self._cache = cache
        self._drafters = drafters
        self._planner = planner
        self._n_batch = n_batch
        self._cancelled = cancelled
        self.ms = 0.0
        """Milliseconds that reading has taken so far."""
        self.stopped = False
        """Whether the reply was cancelled before all was read."""

    def read(
        self, tokens: Sequence[int], speculation: Speculation, boundaries: Sequence[int] = ()
    ) -> Iterator[Prefill]:
        """Bring the KV caches to exactly `tokens`. The draft model takes them in if it may draft;
        otherwise they wait for it, at no cost. A checkpoint is saved at the end and at
        `boundaries`, behind which a later prompt may differ. Raises DecodeError."""
        started = time.perf_counter()
        to_draft = self._planner.will_draft(speculation, len(tokens))
        reused = self._cache.resume(tokens, to_draft=to_draft)
        self.ms += ms_since(started)
        yield Prefill(reused, len(tokens), reused)
        ends = [*sorted({end for end in boundaries if reused < end < len(tokens)}), len(tokens)]
        stretches = zip([reused, *ends], ends, strict=False)
        chunks = [
            (first, min(first + self._n_batch, end))
            for start, end in stretches
            for first in range(start, end, self._n_batch)
        ]
        for first, last in chunks:
            # The time that the caller takes between two chunks does not count.
            started = time.perf_counter()
            chunk = tokens[first:last]
            self.stopped = self._cancelled() or not self._cache.read(chunk, self._cancelled)
            if not self.stopped:
                if speculation.n_draft_max != 0:
                    self._drafters.take_in()
                if last in ends:
                    self._cache.save_checkpoint()
            self.ms += ms_since(started)
            if self.stopped:
                return
            yield Prefill(last, len(tokens), reused)

    def catch_up(self, speculation: Speculation) -> Iterator[Prefill]:
        """Between two rounds: if speculation was switched on, read again what the drafters have not
        seen."""
        if self._cache.is_behind:
            yield from self.read(list(self._cache.tokens), speculation)
