"""What `eaglechat bench` asks of an engine, and of the program it is compared with."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from eaglechat.cli.bench.by_chats import runs_by_chats
from eaglechat.cli.loading import CommandEngine, Interrupt
from eaglechat.wire.bench_records import BenchPrompt, BenchRun
from eaglechat.wire.errors import EngineError
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import (
    Bench,
    BenchRunDone,
    Chat,
    Done,
    PairInfo,
    RoundDone,
    Sampling,
    Speculation,
    SpeculationStopped,
)

if TYPE_CHECKING:
    from eaglechat.engine.bench.prefill import PrefillRun
    from eaglechat.engine.bench.reference import Reference
    from eaglechat.engine.generation.prompt import Prompter


class Measuring:
    """Measures a loaded pair. The engine does, by its own clock; the pipe to it costs nothing. With
    settings to ask for `by_chats`, it is asked for replies alone."""

    def __init__(
        self,
        args: argparse.Namespace,
        engine: CommandEngine,
        interrupt: Interrupt,
        by_chats: Mapping[str, Speculation] | None,
    ) -> None:
        self._args = args
        self._engine = engine
        self._interrupt = interrupt
        self._by_chats = by_chats

    def runs(
        self, prompts: Sequence[BenchPrompt], yardstick: Yardstick | None
    ) -> Iterator[BenchRun | PrefillRun]:
        """Every measured reply; prefill and the reference's runs follow each repeat of a prompt.

        Raises EngineError, ReferenceFailedError.
        """
        if self._by_chats:
            args = self._args
            yield from runs_by_chats(self._write, prompts, self._by_chats, args, self._cancelled)
            return
        for prompt in prompts:
            for repeat in range(self._args.repeat):
                yield from self._repeat(prompt, repeat)
                if self._args.prefill:
                    yield from self._prefill(prompt, repeat)
                if yardstick is not None:
                    yield from yardstick.runs(prompt, repeat, self._cancelled)
                if self._cancelled():
                    return

    def _repeat(self, prompt: BenchPrompt, repeat: int) -> Iterator[BenchRun]:
        request = Bench(
            prompts=(prompt,),
            n=self._args.n,
            shapes=self._args.shape,
            ngram=self._args.ngram,
            repeats=1,
            first_repeat=repeat,
            max_tokens=self._args.max_tokens,
            by_turns=self._args.by_turns,
        )
        for event in self._engine.ask(request):
            if isinstance(event, BenchRunDone):
                yield event.run

    def _prefill(self, prompt: BenchPrompt, repeat: int) -> Iterator[PrefillRun]:
        from eaglechat.engine.bench.prefill import measure_prefill

        return measure_prefill(self._write, prompt, repeat, cancelled=self._cancelled)

    def _write(
        self, prompt: BenchPrompt, speculation: Speculation, max_tokens: int
    ) -> Iterator[object]:
        """The records of a greedy reply, as the engine's loop gives them."""
        from eaglechat.engine.bench.measure import messages_of

        request = Chat(
            messages=messages_of(prompt),
            sampling=Sampling(temperature=0.0),
            speculation=speculation,
            max_tokens=max_tokens,
        )
        for event in self._engine.ask(request):
            if isinstance(event, RoundDone):
                yield event.round
            elif isinstance(event, SpeculationStopped):
                yield event.off
            elif isinstance(event, Done):
                yield event.end

    def _cancelled(self) -> bool:
        return self._interrupt.happened


class Yardstick:
    """The reference program on the same prompts, with each fixed length."""

    def __init__(
        self, args: argparse.Namespace, info: PairInfo, options: LoadOptions, stack: ExitStack
    ) -> None:
        """`stack` closes the vocabulary. Raises EngineError where the models are not here."""
        self._lengths = reference_lengths(args)
        self._prompter = _prompter_of(Path(info.target.path), stack)
        self._reference = _reference(args, info, options)

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


def _prompter_of(target: Path, stack: ExitStack) -> Prompter:
    """Renders what the reference is asked, with the target's vocabulary alone."""
    from eaglechat.engine.generation.prompt import Prompter
    from eaglechat.engine.llama import backend
    from eaglechat.engine.llama.objects import Model

    if not target.is_file():
        raise EngineError(
            f"--reference runs on this machine, where {target} is not; leave it out, or run "
            "eaglechat bench where the engine runs"
        )
    backend.start_backend(backend.LOG_ERRORS)
    return Prompter(stack.enter_context(Model(target, vocabulary_only=True)))


def bench_settings(args: argparse.Namespace) -> list[Speculation]:
    """What the engine compares."""
    from eaglechat.engine.bench.settings import settings_of

    return settings_of(args.n, args.shape, args.ngram)


def reference_lengths(args: argparse.Namespace) -> list[int]:
    return [0, *(n for n in args.n if isinstance(n, int) and n > 0)]


def _reference(args: argparse.Namespace, info: PairInfo, options: LoadOptions) -> Reference:
    from eaglechat.engine.bench.reference import Reference

    assert info.draft is not None
    return Reference(
        binary=args.reference,
        target=Path(info.target.path),
        draft=Path(info.draft.path),
        n_ctx=info.n_ctx,
        n_threads=info.n_threads,
        options=options,
        max_tokens=args.max_tokens,
    )
