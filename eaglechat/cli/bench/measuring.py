"""What `eaglechat bench` asks of an engine or a server, and of the program it compares with."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from eaglechat.cli.loading import CommandEngine, Interrupt
from eaglechat.cli.status import CommandError
from eaglechat.engine.bench.looks import LEVEL, Looks
from eaglechat.engine.bench.report import report_of
from eaglechat.engine.bench.verdict import judge
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.bench_records import BenchPrompt, BenchRun
from eaglechat.wire.errors import EngineError
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import (
    AUTO,
    Auto,
    Bench,
    BenchRunDone,
    Chat,
    Done,
    Hello,
    PairInfo,
    RoundDone,
    Sampling,
    Speculation,
    SpeculationStopped,
)

if TYPE_CHECKING:
    from eaglechat.engine.bench.prefill import PrefillRun

_OF_OUR_ENGINE = ("reference", "prefill", "by_turns", "shape", "ngram", "drafter")

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

    def runs(
        self, prompts: Sequence[BenchPrompt], yardstick: Yardstick | None
    ) -> Iterator[BenchRun | PrefillRun]:
        """Every measured reply of the passes over the prompts: of so many as `--repeat` says, or
        until it can tell.

        Raises EngineError, ReferenceFailedError.
        """
        runs: list[BenchRun] = []
        for repeat in count():
            for measured in self._one_pass(prompts, repeat, yardstick):
                if isinstance(measured, BenchRun):
                    runs.append(measured)
                yield measured
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

    def _one_pass(
        self, prompts: Sequence[BenchPrompt], repeat: int, yardstick: Yardstick | None
    ) -> Iterator[BenchRun | PrefillRun]:
        """One repeat of all prompts. Prefill and the runs of the reference program follow each
        prompt."""
        if self._by_chats:
            yield from self._chats(prompts, repeat, self._by_chats)
            return
        from eaglechat.engine.bench.prefill import measure_prefill

        args, is_over = self._args, self.is_over
        is_alone = args.prefill or yardstick is not None
        for some in [(one,) for one in prompts] if is_alone else [tuple(prompts)]:
            request = Bench(
                prompts=some,
                n=args.n,
                shapes=args.shape,
                ngram=args.ngram,
                drafters=args.drafter,
                repeats=1,
                first_repeat=repeat,
                max_tokens=args.max_tokens,
                by_turns=args.by_turns,
            )
            for event in self._engine.ask(request):
                if isinstance(event, BenchRunDone):
                    yield event.run
                elif is_over():
                    return
            if args.prefill:
                yield from measure_prefill(self._write, some[0], repeat, cancelled=is_over)
            if yardstick is not None:
                yield from yardstick.runs(some[0], repeat, is_over)
            if is_over():
                return

    def _chats(
        self, prompts: Sequence[BenchPrompt], repeat: int, settings: ChatSettings
    ) -> Iterator[BenchRun]:
        from eaglechat.engine.bench.measure import measure

        for run in measure(
            self._write,
            prompts,
            settings,
            repeats=range(repeat, repeat + 1),
            max_tokens=self._args.max_tokens,
            cancelled=self.is_over,
        ):
            if not run.tokens_per_second:
                raise EngineError(
                    f"the reply to “{run.prompt}” came all at once, so its speed is not known"
                )
            yield run

    def _write(
        self, prompt: BenchPrompt, setting: Speculation | None, max_tokens: int
    ) -> Iterator[object]:
        """Ask for a greedy reply; yields the same events as `Generator.reply`, and before the last
        the statistics that the engine or the server counts at its end."""
        from eaglechat.engine.bench.measure import messages_of

        request = Chat(
            messages=messages_of(prompt),
            sampling=Sampling(temperature=0.0),
            speculation=setting or Speculation(),
            max_tokens=max_tokens,
        )
        for event in self._engine.ask(request):
            if isinstance(event, RoundDone):
                yield event.round
            elif isinstance(event, SpeculationStopped):
                yield event.off
            elif isinstance(event, Done):
                yield event.stats
                yield event.end

    def is_over(self) -> bool:
        """Whether the user stopped it, or its time is up."""
        return self._interrupt.happened or time.monotonic() >= self._ends_at


class Yardstick:
    """Runs the reference program on the same prompts, with each fixed draft length."""

    def __init__(
        self, args: argparse.Namespace, info: PairInfo, options: LoadOptions, stack: ExitStack
    ) -> None:
        """`stack` closes the vocabulary. Raises CommandError where the models are not here."""
        from eaglechat.engine.bench.reference import Reference
        from eaglechat.engine.generation.prompt import Prompter
        from eaglechat.engine.llama import backend
        from eaglechat.engine.llama.objects import Model

        assert info.draft is not None
        target = Path(info.target.path)
        if not target.is_file():
            raise CommandError(
                f"--reference runs on this machine, where {target} is not; leave it out, or run "
                "eaglechat bench where the engine runs"
            )
        backend.start_backend(backend.LOG_ERRORS)
        # It renders the prompts, for which the target's vocabulary is enough.
        self._prompter = Prompter(stack.enter_context(Model(target, vocabulary_only=True)))
        self._lengths = reference_lengths(args)
        self._reference = Reference(
            binary=args.reference,
            target=target,
            draft=Path(info.draft.path),
            n_ctx=info.n_ctx,
            n_threads=info.n_threads,
            options=options,
            max_tokens=args.max_tokens,
        )

    def runs(
        self, prompt: BenchPrompt, repeat: int, cancelled: Callable[[], bool]
    ) -> Iterator[BenchRun]:
        """Raises ReferenceFailedError."""
        from eaglechat.engine.bench.measure import messages_of

        text = self._prompter.text(messages_of(prompt))
        for n in self._lengths:
            run = self._reference.run(prompt.name, text, n, repeat, cancelled)
            if run is None:
                return
            yield run


def reference_lengths(args: argparse.Namespace) -> list[int]:
    """Draft lengths of the reference program; 0 is plain decoding."""
    return [0, *(n for n in args.n if isinstance(n, int) and n > 0)]
