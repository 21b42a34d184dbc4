"""Answers to requests about one conversation: a reply, round by round, or the prompt it reads."""

from __future__ import annotations

from collections.abc import Callable

from eaglechat.engine.live import Live
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.wire.errors import SettingsError
from eaglechat.wire.protocol import AnyEvent, Chat, Done, Progress, Render, Rendered
from eaglechat.wire.records import ReplyEnd, Round
from eaglechat.wire.stats import SpeculationStats


def write_reply(
    request: Chat,
    pair: LoadedPair,
    live: Live,
    say: Callable[[AnyEvent], None],
) -> None:
    """Answers a `chat` request on a loaded pair: a Done ends its events. Raises EngineError,
    Cancelled before the reply has begun."""
    if why := pair.info.no_drafter(live.speculation.drafter):
        raise SettingsError(f"{live.speculation.drafter} cannot draft: {why}")
    asked = pair.prompter.conversation(request.messages, request.thinking, request.begun)
    stats, reply, seed = SpeculationStats(), list[int](), request.sampling.draw_seed()
    for record in pair.generator.reply(
        asked,
        request.sampling,
        live,
        seed=seed,
        max_tokens=request.max_tokens,
        stop=request.stop,
        top=request.top,
    ):
        if isinstance(record, ReplyEnd):
            asked.note_reply(reply)
            say(Done(id=request.id, end=record, stats=stats))
            continue
        if isinstance(record, Round):
            reply += [*record.given, *(t.id for t in record.tokens if t.id is not None)]
            stats = stats.plus(record)
        say(Progress(id=request.id, step=record))
    pair.generator.keep()


def rendered(request: Render, pair: LoadedPair) -> Rendered:
    """Answers a `render` request with the prompt that a reply would read.

    Raises PromptError, Cancelled.
    """
    asked = pair.prompter.conversation(request.messages, request.thinking)
    first_turn, tokens = pair.generator.would_read(asked, request.max_tokens)
    checkpoints, checkpoint_bytes = pair.generator.checkpoints
    return Rendered(
        id=request.id,
        runs=pair.prompter.runs(tokens),
        tokens=len(tokens),
        first_turn=first_turn,
        checkpoints=checkpoints,
        checkpoint_bytes=checkpoint_bytes,
    )
