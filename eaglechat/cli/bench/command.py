"""Measure a pair: plain decoding, each draft length and the automatic one."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from eaglechat.cli import options
from eaglechat.cli.bench import tables as bench_tables
from eaglechat.cli.bench.measuring import Measuring, Yardstick, reference_lengths
from eaglechat.cli.loading import CommandEngine, Interrupt, choose_pair
from eaglechat.cli.progress import Bars
from eaglechat.cli.status import FAILED, INTERRUPTED, OK, WRONG_USAGE, complain
from eaglechat.wire.bench_records import BenchPrompt, BenchRun, RoundProfile
from eaglechat.wire.errors import EngineError, LoadCancelledError
from eaglechat.wire.protocol import AUTO, Auto

if TYPE_CHECKING:
    from eaglechat.engine.bench.prefill import PrefillRun

_LENGTHS: tuple[int | Auto, ...] = (0, 1, 2, 3, 4, 5, 6, 8, AUTO)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="PAIR", help="a pair by name")
    options.add_pair_options(parser)
    options.add_server_options(parser)
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
    if args.server is not None:
        problem = (
            "a server has no bench: it neither takes turns between draft lengths nor tells what a "
            "round is made of; a chat with it shows its acceptance and speed"
        )
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

    settings, problems = options.load_settings(args)
    options.report(problems)
    pair = choose_pair(args, settings)
    trouble: str | None = None
    runs: list[BenchRun] = []
    prefills: list[PrefillRun] = []
    profiles: list[RoundProfile] = []
    with CommandEngine(settings, interrupt) as engine, ExitStack() as stack:
        info = engine.load(pair)
        if info.no_bench:
            raise EngineError(f"there is nothing to compare: {info.no_bench}")
        yardstick = None
        if args.reference is not None:
            yardstick = Yardstick(args, info, settings.to_load_options(), stack)
        measuring = Measuring(args, engine, interrupt)
        progress = _Progress(len(prompts) * args.repeat * _runs_per_repeat(args))
        try:
            for measured in measuring.runs(prompts, yardstick):
                if isinstance(measured, BenchRun):
                    runs.append(measured)
                else:
                    prefills.append(measured)
                progress.show(measured)
            if args.profile and not interrupt.happened:
                profiles = measuring.profiles(prompts[0])
        except (ReferenceFailedError, EngineError) as error:
            trouble = str(error)
        finally:
            progress.clear()
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


def _runs_per_repeat(args: argparse.Namespace) -> int:
    reference = len(reference_lengths(args)) if args.reference else 0
    return 1 + len(args.n) + (2 if args.prefill else 0) + reference


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
