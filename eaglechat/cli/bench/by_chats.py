"""Measures with chats alone: a server, or an engine that has no bench of its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.bench_records import AS_STARTED, PLAIN, BenchPrompt, BenchRun
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AUTO, Auto, Hello, Speculation

if TYPE_CHECKING:
    from eaglechat.engine.bench.measure import Write

_WARM_UP_TOKENS = 4
_OF_OUR_ENGINE = ("reference", "prefill", "by_turns", "shape", "ngram")
_PLAINLY = {PLAIN: Speculation(enabled=False)}


def wrong_flag(args: argparse.Namespace, *, is_server: bool) -> str | None:
    """The flag that only eaglechat's own engine can follow, if one is given."""
    given = [name for name in _OF_OUR_ENGINE if getattr(args, name)]
    if is_server and args.n is not None:
        given.append("n")
    return f"--{given[0].replace('_', '-')}" if given else None


def settings_of(
    hello: Hello, server: ServerSettings | None, lengths: Sequence[int | Auto]
) -> Mapping[str, Speculation]:
    """What is asked for each setting. Raises EngineError where nothing is left of the lengths."""
    if server is not None:
        return {**(_PLAINLY if hello.can.plain else {}), AS_STARTED: Speculation()}
    drafted = [n for n in lengths if n not in (0, AUTO)]
    if not drafted:
        raise EngineError(f"{hello.engine} drafts a fixed number of tokens: name some with --n")
    return {**_PLAINLY, **{str(n): Speculation(n_draft_max=n) for n in drafted}}


def runs_by_chats(
    write: Write,
    prompts: Sequence[BenchPrompt],
    settings: Mapping[str, Speculation],
    args: argparse.Namespace,
    cancelled: Callable[[], bool],
) -> Iterator[BenchRun]:
    """Every measured reply, as the engine or the clock here timed it; a cancelled one is not
    counted. Raises EngineError."""
    from eaglechat.engine.bench.measure import RunTally, order_of

    for prompt in prompts:
        for repeat in range(args.repeat):
            for setting in order_of(list(settings), repeat):
                asked = settings[setting]
                if repeat == 0:
                    for _ in write(prompt, asked, _WARM_UP_TOKENS):
                        pass
                tally = RunTally(prompt.name, asked if setting != AS_STARTED else None, repeat)
                for event in write(prompt, asked, args.max_tokens):
                    tally.add(event)
                if cancelled():
                    return
                run = tally.run()
                if not run.tokens_per_second:
                    raise EngineError(
                        f"the reply to “{prompt.name}” came all at once, so its speed is not known"
                    )
                yield run
