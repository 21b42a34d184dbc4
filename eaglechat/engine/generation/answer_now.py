"""Ends a model's reasoning in mid-reply, where the user wants the answer now."""

from __future__ import annotations

from collections.abc import Generator

from eaglechat.engine.generation.cache_state import CacheState
from eaglechat.engine.generation.live import Live
from eaglechat.engine.generation.prefill import Reader
from eaglechat.engine.generation.reply import ReplyState
from eaglechat.wire.protocol import Speculation
from eaglechat.wire.records import Prefill


def end_reasoning(
    live: Live, reply: ReplyState, cache: CacheState, reader: Reader, speculation: Speculation
) -> Generator[Prefill, None, tuple[int, ...]]:
    """Read the tokens that end the reasoning as if they had been sampled; returns them, or none
    where nobody asked or there is no reasoning to end."""
    if not live.answer_now:
        return ()
    live.answer_now = False
    id_last = reply.id_last
    given = reply.end_reasoning(context_left=cache.room)
    if given:
        yield from reader.read([*cache.tokens, id_last, *given[:-1]], speculation)
    return given
