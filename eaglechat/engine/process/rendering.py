"""A prompt as the target would read it, for who wants to see it."""

from __future__ import annotations

from collections.abc import Callable

from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.wire.protocol import Render, Rendered


def rendered(request: Render, pair: LoadedPair, cancelled: Callable[[], bool]) -> Rendered:
    """Answers a `render` request. Raises PromptError, PromptCancelledError."""
    prompter, asked = pair.prompter, (request.messages, request.thinking, cancelled)
    first_turn, tokens = pair.generator.would_read(
        prompter.as_tokens(*asked), prompter.turns(*asked), request.max_tokens
    )
    checkpoints, checkpoint_bytes = pair.generator.checkpoints
    return Rendered(
        id=request.id,
        runs=prompter.runs(tokens),
        tokens=len(tokens),
        first_turn=first_turn,
        checkpoints=checkpoints,
        checkpoint_bytes=checkpoint_bytes,
    )
