"""What `eaglechat bench` asks of an engine or a server."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count

from eaglechat.cli.loading import CommandEngine, Interrupt
from eaglechat.cli.status import CommandError
from eaglechat.engine.bench.looks import LEVEL, Looks
from eaglechat.engine.bench.measure import measure, messages_of
from eaglechat.engine.bench.report import report_of
from eaglechat.engine.bench.verdict import judge
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.bench_records import BenchPrompt, BenchRun
from eaglechat.wire.errors import Cancelled, EngineError
from eaglechat.wire.protocol import (
    AUTO,
    Auto,
    Bench,
    BenchRunDone,
    Chat,
    Done,
    Hello,
    RoundDone,
    Sampling,
    Speculation,
    SpeculationStopped,
)

_OF_OUR_ENGINE = ("by_turns", "shape", "ngram", "drafter")

_UNCOMPARED_PASSES = 2
"""Where there is no plain decoding to compare with."""

ChatSettings = Sequence[Speculation | None]
"""Settings that are measured with single chats, by the clock of the engine or the server; None for
a server that drafts as it was started to."""


def wrong_flag(args: argparse.Namespace, *, is_server: bool) -> str | None:
    """The first flag given that only eaglechat's own engine can follow."""
    given = [name for name in _OF_OUR_ENGINE if getattr(args, name)]
    if is_server and args.n is not None:
        given.append("n")
    return f"--{given[0].replace('_', '-')}" if given else None


def chat_settings(
    hello: Hello, server: ServerSettings | None, lengths: Sequence[int | Auto]
) -> ChatSettings:
    """The settings of a server, or of an engine that has no bench of its own. Raises CommandError
    where it can follow none of the draft lengths."""
    plainly = Speculation(enabled=False)
    if server is not None:
        return [plainly, None] if hello.can.plain else [None]
    drafted = [n for n in lengths if n not in (0, AUTO)]
    if not drafted:
        raise CommandError(f"{hello.engine} drafts a fixed number of tokens: name some with --n")
    return [plainly, *(Speculation(n_draft_max=n) for n in drafted)]


class Measuring:
    """Measures a loaded pair. eaglechat's engine runs the bench itself, by its own clock, so the
    pipe to it costs nothing; others are asked for chats with each setting of `by_chats`."""

    def __init__(
        self,
        args: argparse.Namespace,
        engine: CommandEngine,
        interrupt: Interrupt,
        by_chats: ChatSettings | None,
        ends_at: float,
    ) -> None:
        """Nothing is measured after `ends_at`, by the monotonic clock."""
        self._args = args
        self._looks, self._level = Looks(1), 0.0
        self._ends_at = ends_at
        self._engine = engine
        self._interrupt = interrupt
        self._by_chats = by_chats

    def runs(self, prompts: Sequence[BenchPrompt]) -> Iterator[BenchRun]:
        """Every measured reply of the passes over the prompts: of so many as `--repeat` says, or
        until it can tell. Raises EngineError."""
        runs: list[BenchRun] = []
        for repeat in count():
            for run in self._one_pass(prompts, repeat):
                runs.append(run)
                yield run
            if self.is_over() or self._is_enough(repeat + 1, runs):
                return

    def _is_enough(self, n_passes: int, runs: Sequence[BenchRun]) -> bool:
        if self._args.repeat:
            return n_passes >= int(self._args.repeat)
        if n_passes < self._looks.next:
            return False
        level = self._looks.take()
        verdict = judge(report_of(runs), level)
        if verdict is None:
            return n_passes >= _UNCOMPARED_PASSES
        if verdict.is_certain:
            self._level = level
        return verdict.is_certain

    @property
    def level(self) -> float:
        """The probability of a wrong claim that the runs may be judged with."""
        return LEVEL if self._args.repeat else self._level or self._looks.last()

    def _one_pass(self, prompts: Sequence[BenchPrompt], repeat: int) -> Iterator[BenchRun]:
        """One repeat of all prompts."""
        if self._by_chats:
            yield from self._chats(prompts, repeat, self._by_chats)
            return
        args = self._args
        request = Bench(
            prompts=tuple(prompts),
            n=args.n,
            shapes=args.shape,
            ngram=args.ngram,
            drafters=args.drafter,
            repeats=1,
            first_repeat=repeat,
            max_tokens=args.max_tokens,
            by_turns=args.by_turns,
        )
        for event in self._engine.ask(request, ends_at=self._ends_at):
            if isinstance(event, BenchRunDone):
                yield event.run

    def _chats(
        self, prompts: Sequence[BenchPrompt], repeat: int, settings: ChatSettings
    ) -> Iterator[BenchRun]:
        repeats = range(repeat, repeat + 1)
        runs = measure(
            self._write, prompts, settings, repeats=repeats, max_tokens=self._args.max_tokens
        )
        with suppress(Cancelled):
            for run in runs:
                if not run.tokens_per_second:
                    raise EngineError(
                        f"the reply to “{run.prompt}” came all at once, so its speed is not known"
                    )
                yield run

    def _write(
        self, prompt: BenchPrompt, setting: Speculation | None, max_tokens: int
    ) -> Iterator[object]:
        """Ask for a greedy reply; yields the same events as `Generator.reply`, and before the last
        the statistics that the engine or the server counts at its end. Raises Cancelled if it was
        cut off."""
        request = Chat(
            messages=messages_of(prompt),
            sampling=Sampling(temperature=0.0),
            speculation=setting or Speculation(),
            max_tokens=max_tokens,
        )
        for event in self._engine.ask(request, ends_at=self._ends_at):
            if isinstance(event, RoundDone):
                yield event.round
            elif isinstance(event, SpeculationStopped):
                yield event.off
            elif isinstance(event, Done):
                yield event.stats
                yield event.end
        if self.is_over():
            raise Cancelled

    def is_over(self) -> bool:
        """Whether the user stopped it, or its time is up."""
        return self._interrupt.happened or time.monotonic() >= self._ends_at
