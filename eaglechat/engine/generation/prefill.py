"""Reads into both caches what they lack of a prompt, chunk by chunk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from eaglechat.engine.auto.auto_length import AutoLength
from eaglechat.engine.auto.draft_plan import shapes_open
from eaglechat.engine.clock import ms_since
from eaglechat.engine.drafters.base import MOST_CAUGHT_UP
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
        self.ms = 0.0
        """What it has taken."""
        self.stopped = False
        """Whether it was cancelled with something left to read."""

    def read(
        self, tokens: Sequence[int], speculation: Speculation, boundaries: Sequence[int] = ()
    ) -> Iterator[Prefill]:
        """Bring the caches to exactly `tokens`; the drafter takes them in where it may draft,
        elsewhere they wait for it, at no cost. At `boundaries`, where a later prompt may differ,
        and at the end a checkpoint is saved. Raises DecodeError."""
        started = time.perf_counter()
        to_draft = self._will_draft(speculation, len(tokens))
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
            # Not what passes until the next chunk is asked for.
            started = time.perf_counter()
            chunk = tokens[first:last]
            self.stopped = self._cancelled() or not self._cache.read(chunk, self._cancelled)
            if not self.stopped:
                if speculation.n_draft_max != 0:
                    self._drafting.take_in()
                if last in ends:
                    self._cache.save_checkpoint()
            self.ms += ms_since(started)
            if self.stopped:
                return
            yield Prefill(last, len(tokens), reused)

    def catch_up(self, speculation: Speculation) -> Iterator[Prefill]:
        """Read again what the drafter has to see, where speculation came on in mid-reply. Where the
        length is automatic, the drafter takes in what plain rounds have left waiting, before it is
        too much for a trial of drafting to pay for."""
        if self._cache.is_behind:
            yield from self.read(list(self._cache.tokens), speculation)
        elif speculation.n_draft_max == AUTO and self._drafting.waiting > MOST_CAUGHT_UP:
            self._drafting.take_in()

    def _will_draft(self, speculation: Speculation, n_past: int) -> bool:
        if not self._drafting.on:
            return False
        if speculation.n_draft_max == AUTO:
            shapes = shapes_open(speculation.shape, self._drafting.grows_trees)
            return self._auto.expects_to_draft(n_past, shapes)
        return speculation.n_draft_max > 0
