"""Measure a pair: plain decoding, each draft length and the automatic one."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from eaglechat.cli import options
from eaglechat.cli.bench import tables as bench_tables
from eaglechat.cli.loading import Interrupt, choose_pair, load_pair
from eaglechat.cli.progress import Bars
from eaglechat.cli.status import FAILED, INTERRUPTED, OK, WRONG_USAGE, complain
from eaglechat.wire.errors import EngineError, LoadCancelledError
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import AUTO, Auto

if TYPE_CHECKING:
    from eaglechat.engine.bench.measure import Write
    from eaglechat.engine.bench.prefill import PrefillRun
    from eaglechat.engine.bench.profile import RoundProfile
    from eaglechat.engine.loading.pair import LoadedPair
    from eaglechat.wire.bench_records import BenchPrompt, BenchRun

    Measure = Callable[[BenchPrompt], Iterator[BenchRun]]
    Yardstick = Callable[[BenchPrompt, int], Iterator[BenchRun]]

_LENGTHS: tuple[int | Auto, ...] = (0, 1, 2, 3, 4, 5, 6, 8, AUTO)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="PAIR", help="a pair by name")
    options.add_pair_options(parser)
    parser.add_argument(
        "--n",
        type=_lengths,
        default=_LENGTHS,
        metavar="LIST",
        help="draft lengths to measure, such as 0,3,5,auto",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="your own prompts: each after a line “=== name” (default: eight kinds of work)",
    )
    parser.add_argument(
        "--max-tokens",
        type=options.number(int, 1, None),
        default=256,
        metavar="N",
        help="longest reply, in tokens",
    )
    parser.add_argument(
        "--repeat",
        type=options.number(int, 1, None),
        default=3,
        metavar="N",
        help="times each reply is measured",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="BINARY",
        help="your llama-speculative-simple, to run on the same prompts",
    )
    parser.add_argument(
        "--prefill", action="store_true", help="measure how fast the prompts are read, too"
    )
    parser.add_argument(
        "--profile", action="store_true", help="show where the time of a round goes"
    )
    parser.add_argument(
        "--by-turns",
        action="store_true",
        help="all settings write each reply together, a few tokens at a time by turns: far less "
        "noise on a busy machine; every setting loads the pair anew, which takes its memory",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    options.add_setting_options(parser, "engine")


def run(args: argparse.Namespace) -> int:
    problem = options.wrong_pair_usage(args)
    if args.name and (args.pair or args.target):
        problem = "the pair is named twice; give PAIR, --pair or --target"
    if problem:
        complain(problem)
        return WRONG_USAGE
    args.pair = args.name or args.pair
    from eaglechat.engine.bench.measure import builtin_prompts, parse_prompts

    try:
        prompts = parse_prompts(_read(args.prompts)) if args.prompts else builtin_prompts()
        with Interrupt() as interrupt:
            return _bench(args, prompts, interrupt)
    except LoadCancelledError:
        return INTERRUPTED
    except (EngineError, OSError, ValueError) as error:
        complain(str(error))
        return FAILED


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _bench(args: argparse.Namespace, prompts: list[BenchPrompt], interrupt: Interrupt) -> int:
    from eaglechat.engine.bench import measure as bench
    from eaglechat.engine.bench.prefill import prefill_results
    from eaglechat.engine.bench.reference import ReferenceFailedError
    from eaglechat.wire import bench_records

    settings, problems = options.load_settings(args)
    options.report(problems)
    pair = choose_pair(args)
    trouble: str | None = None
    runs: list[BenchRun] = []
    prefills: list[PrefillRun] = []
    profiles: list[RoundProfile] = []
    with ExitStack() as stack:

        def load() -> LoadedPair:
            return stack.enter_context(closing(load_pair(pair, settings, interrupt)))

        loaded = load()
        if loaded.info.speculation_off:
            raise EngineError(f"there is nothing to compare: {loaded.info.speculation_off}")
        write = bench.writer(loaded, lambda: interrupt.happened)
        progress = _Progress(len(prompts) * args.repeat * _settings_per_repeat(args))
        measure = _measure(args, write, load, interrupt)
        yardstick = _yardstick(args, loaded, settings.to_load_options(), interrupt)
        try:
            for measured in _runs(
                args, prompts, interrupt, measure=measure, write=write, yardstick=yardstick
            ):
                if isinstance(measured, bench_records.BenchRun):
                    runs.append(measured)
                else:
                    prefills.append(measured)
                progress.show(measured)
        except (ReferenceFailedError, EngineError) as error:
            trouble = str(error)
        finally:
            progress.clear()
        if args.profile and trouble is None and not interrupt.happened:
            profiles = _profiles(args, prompts[0], write, interrupt)
        info = loaded.info
    report = bench.report_of(runs)
    if args.json:
        document = {"pair": info, "report": report, "prefill": prefills, "profile": profiles}
        args.json.write_bytes(msgspec.json.format(msgspec.json.encode(document)))
    read = prefill_results(prefills, runs)
    for line in bench_tables.lines(info, report, read, profiles, markdown=args.markdown):
        print(line)
    if interrupt.happened:
        trouble = "stopped"
    if trouble is None:
        return OK
    complain(f"{trouble}; the tables hold what was measured until then")
    return INTERRUPTED if interrupt.happened else FAILED


def _measure(
    args: argparse.Namespace, write: Write, load: Callable[[], LoadedPair], interrupt: Interrupt
) -> Measure:
    """Measures a prompt with all settings: one after another, or by turns on a pair each."""
    from eaglechat.engine.bench import measure as bench
    from eaglechat.engine.bench.turns import measure_by_turns

    def cancelled() -> bool:
        return interrupt.happened

    settings = bench.settings_of(args.n)
    how = {"repeats": args.repeat, "max_tokens": args.max_tokens, "cancelled": cancelled}
    if not args.by_turns:
        return lambda prompt: bench.measure(write, [prompt], settings, **how)
    writers = {name: bench.writer(load(), cancelled) for name in settings[1:]}
    return lambda prompt: measure_by_turns({settings[0]: write, **writers}, [prompt], **how)


def _runs(
    args: argparse.Namespace,
    prompts: list[BenchPrompt],
    interrupt: Interrupt,
    *,
    measure: Measure,
    write: Write,
    yardstick: Yardstick | None,
) -> Iterator[BenchRun | PrefillRun]:
    """Every measured reply; prefill and the reference's runs follow each repeat of a prompt."""
    from eaglechat.engine.bench.prefill import measure_prefill

    for prompt in prompts:
        for count, run_ in enumerate(measure(prompt), start=1):
            yield run_
            if count % (1 + len(args.n)) != 0:
                continue
            if args.prefill:
                yield from measure_prefill(
                    write, prompt, run_.repeat, cancelled=lambda: interrupt.happened
                )
            if yardstick is not None:
                yield from yardstick(prompt, run_.repeat)
        if interrupt.happened:
            return


def _yardstick(
    args: argparse.Namespace, loaded: LoadedPair, how: LoadOptions, interrupt: Interrupt
) -> Yardstick | None:
    """Runs the reference program on a prompt, with each fixed length."""
    from eaglechat.engine.bench.measure import messages_of
    from eaglechat.engine.bench.reference import Reference

    info = loaded.info
    if args.reference is None or info.draft is None:
        return None
    reference = Reference(
        binary=args.reference,
        target=Path(info.target.path),
        draft=Path(info.draft.path),
        n_ctx=info.n_ctx,
        n_threads=info.n_threads,
        options=how,
        max_tokens=args.max_tokens,
    )

    def measure(prompt: BenchPrompt, repeat: int) -> Iterator[BenchRun]:
        text = loaded.prompter.text(messages_of(prompt))
        for n in _reference_lengths(args):
            run_ = reference.run(prompt.name, text, n, repeat, lambda: interrupt.happened)
            if run_ is None:
                return
            yield run_

    return measure


def _reference_lengths(args: argparse.Namespace) -> list[int]:
    return [0, *(n for n in args.n if isinstance(n, int) and n > 0)]


def _settings_per_repeat(args: argparse.Namespace) -> int:
    reference = len(_reference_lengths(args)) if args.reference else 0
    return 1 + len(args.n) + (2 if args.prefill else 0) + reference


def _profiles(
    args: argparse.Namespace, prompt: BenchPrompt, write: Write, interrupt: Interrupt
) -> list[RoundProfile]:
    """Extra replies under the clock of native calls, which costs a little itself."""
    from eaglechat.engine.bench import measure as bench
    from eaglechat.engine.bench import profile

    profiles = []
    with profile.native_clock() as clock:
        for setting in bench.settings_of(args.n):
            events = write(prompt, bench.speculation_of(setting), args.max_tokens)
            profiled = profile.profile(setting, events, clock)
            if interrupt.happened:
                break
            profiles.append(profiled)
    return profiles


class _Progress:
    """A bar on standard error, where that is a terminal."""

    def __init__(self, total: int) -> None:
        self._bars = Bars(vanish=True)
        self._total = total
        self._done = 0
        self._started = time.monotonic()

    def show(self, run_: BenchRun | PrefillRun) -> None:
        self._done += 1
        elapsed = time.monotonic() - self._started
        left = elapsed / self._done * (self._total - self._done)
        if self._bars.live:
            self._bars.draw(
                "replies",
                f"{run_.prompt}, {run_.setting}",
                self._done,
                self._total,
                f"{self._done} of {self._total}, {run_.tokens_per_second:.1f} tokens/s; "
                f"about {_duration(left)} left",
            )

    def clear(self) -> None:
        self._bars.close()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _lengths(text: str) -> tuple[int | Auto, ...]:
    """An argparse type for a list of draft lengths."""
    parse: Callable[[str], int | Auto] = options.draft_length
    return tuple(dict.fromkeys(parse(part.strip()) for part in text.split(",")))
