"""Makes room in the context: the oldest turns leave the conversation and both KV caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eaglechat.engine.generation.cache_state import CacheState
from eaglechat.engine.generation.context_window import ContextWindow
from eaglechat.engine.generation.prefill import Reader
from eaglechat.wire.errors import PromptError
from eaglechat.wire.protocol import Speculation
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, Prefill, Window


def open_window(window: ContextWindow, cache: CacheState, tokens_left: int) -> Iterator[Window]:
    """Have turns leave until there is room for a reply of `tokens_left` tokens behind the
    prompt."""
    before = fit(window, cache, tokens_left)
    kv_kept = before is window.tokens or cache.shift(before, window.tokens)
    cache.first_turn = window.first_turn
    if window.first_turn > 0:
        yield Window(window.first_turn, window.tokens_left, kv_kept)


def fit(window: ContextWindow, cache: CacheState, tokens_left: int) -> Sequence[int]:
    """Move a window until there is room for a reply of `tokens_left` tokens. Returns the tokens it
    had before it moved, which the KV cache may hold. The KV cache is not touched."""
    if not window.has_room(tokens_left):
        # Turns that left before an earlier reply stay away.
        window.begin_where_held(cache.first_turn, cache.tokens)
    before = window.tokens
    if not window.has_room(tokens_left):
        window.move()
    return before


def make_room(
    window: ContextWindow, cache: CacheState, reader: Reader, speculation: Speculation
) -> Iterator[Window | Prefill]:
    """Have turns leave when a reply has come to the end of the context."""
    if cache.room > N_DRAFT_MAX_LIMIT + 1:
        return
    # The prompt's last token is the first that a round decodes.
    before, written = window.tokens[:-1], cache.tokens[len(window.tokens) - 1 :]
    try:
        moved = window.move(len(written))
    except PromptError:
        # The template refuses the shorter conversation: the reply ends where the context does.
        moved = False
    if not moved:
        return
    cache.first_turn = window.first_turn
    kv_kept = cache.shift(before, window.tokens[:-1])
    yield Window(window.first_turn, window.tokens_left, kv_kept)
    if not kv_kept:
        yield from reader.read([*window.tokens[:-1], *written], speculation)
