"""Measure a pair: plain decoding, draft lengths, shapes and drafters; or a server."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import TypeVar, get_args

import msgspec

from eaglechat import paths
from eaglechat.chat.refusals import misfit, no_comparison
from eaglechat.cli import options
from eaglechat.cli.bench import tables as bench_tables
from eaglechat.cli.bench.measuring import Measuring, chat_settings, wrong_flag
from eaglechat.cli.loading import CommandEngine, Interrupt, choose_pair
from eaglechat.cli.progress import Progress
from eaglechat.cli.status import FAILED, INTERRUPTED, OK, CommandError, WrongUsageError, complain
from eaglechat.engine.bench.looks import minutes_for
from eaglechat.engine.bench.measure import settings_of
from eaglechat.engine.bench.prompts import builtin_prompts, copy_prompts, parse_prompts
from eaglechat.engine.bench.report import BenchReport, by_drafter, report_of
from eaglechat.engine.bench.verdict import judge
from eaglechat.hub.local.speeds import Speeds, note_bench, setup_of
from eaglechat.hub.units import format_seconds
from eaglechat.wire.bench_records import BenchPrompt, BenchRun
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AUTO, Auto, DrafterChoice, Hello, PairInfo, Shape
from eaglechat.wire.stats import of_the_draft
from eaglechat.words.bench import verdict_in_words
from eaglechat.words.refusals import sentence_of
from eaglechat.words.wording import plural

T = TypeVar("T")

_SHAPES: tuple[Shape, ...] = get_args(Shape)
_DRAFTERS: tuple[DrafterChoice, ...] = get_args(DrafterChoice)
_COPY = "copy"
_MINUTES = 10
_LENGTHS: tuple[int | Auto, ...] = (0, 1, 2, 3, 4, 5, 6, 8, AUTO)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="PAIR", help="a pair by name")
    options.add_pair_options(parser)
    options.add_server_options(parser)
    parser.add_argument(
        "--n",
        type=_lengths,
        metavar="LIST",
        help="draft lengths to measure, such as 0,3,5,auto "
        f"(default: {','.join(map(str, _LENGTHS))})",
    )
    parser.add_argument(
        "--shape",
        type=_shapes,
        metavar="LIST",
        help=f"shapes to measure: {', '.join(_SHAPES)} (default: chain)",
    )
    parser.add_argument(
        "--ngram",
        type=_switches,
        metavar="LIST",
        help="with n-grams ahead of the draft (on), without (off), or both: off,on (default: off)",
    )
    parser.add_argument(
        "--drafter",
        type=_drafters,
        metavar="LIST",
        help=f"drafters to measure: {', '.join(_DRAFTERS)} (default: all that the pair has)",
    )
    parser.add_argument(
        "--prompts",
        metavar="FILE",
        help="your own prompts: each after a line “=== name” (default: eight kinds of work); "
        f"or “{_COPY}”: built-in prompts whose answers repeat much of them",
    )
    parser.add_argument(
        "--max-tokens",
        type=options.number(int, 1, None),
        default=256,
        metavar="N",
        help="longest reply, in tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--minutes",
        type=options.number(int, 1, None),
        metavar="N",
        help="longest time in which replies are measured again and again until it can tell "
        f"(default: {_MINUTES}, or for two passes over all prompts)",
    )
    parser.add_argument(
        "--repeat",
        type=options.number(int, 1, None),
        metavar="N",
        help="measure each reply exactly N times instead",
    )
    parser.add_argument(
        "--by-turns",
        action="store_true",
        help="measure all settings side by side, a few tokens at a time: far less noise on a busy "
        "machine, but each setting loads its own copy of the pair",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    options.add_setting_options(parser, "engine")


def run(args: argparse.Namespace) -> int:
    if args.name and (args.pair or args.target):
        raise WrongUsageError("the pair is named twice; give PAIR, --pair or --target")
    args.pair = args.name or args.pair
    options.check_pair(args)
    if args.server is not None and (flag := wrong_flag(args, is_server=True)):
        raise WrongUsageError(
            f"{flag} does not go with --server: a server drafts the way it was started"
        )
    prompts = _prompts(args.prompts)
    if args.json and (reason := paths.why_unwritable(args.json.parent)):
        # Complain now, not after an hour of measuring.
        raise CommandError(f"{args.json} cannot be written: {reason}")
    with Interrupt() as interrupt:
        return _bench(args, prompts, interrupt)


def _prompts(chosen: str | None) -> list[BenchPrompt]:
    """Raises OSError, CommandError."""
    if chosen is None:
        return builtin_prompts()
    if chosen == _COPY:
        return copy_prompts()
    try:
        return parse_prompts(Path(chosen).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise CommandError(f"{chosen} is not text in UTF-8") from error
    except ValueError as error:
        raise CommandError(f"{chosen}: {error}") from error


def _bench(args: argparse.Namespace, prompts: list[BenchPrompt], interrupt: Interrupt) -> int:
    settings, problems = options.load_settings(args)
    options.report(problems)
    pair = choose_pair(args, settings)
    trouble: str | None = None
    runs: list[BenchRun] = []
    server = pair.server
    with CommandEngine(settings, interrupt, server) as engine:
        info, hello = engine.load(pair), engine.hello
        by_chats = None
        if not hello.can.own:
            if flag := wrong_flag(args, is_server=False):
                raise CommandError(f"{flag} is for eaglechat's own engine, not for {hello.engine}")
            by_chats = chat_settings(hello, server, args.n or _LENGTHS)
        args.shape, args.ngram = _open_shapes(args, info), args.ngram or (False,)
        if server is None:
            args.ngram = _open_drafters(args, info)
        args.drafter = _open_kinds(args, info)
        args.n = args.n or _LENGTHS
        measured = by_chats or settings_of(args.n, args.shape, args.ngram, args.drafter)
        n_runs = len(prompts) * len(measured)
        minutes = args.minutes or minutes_for(n_runs * args.max_tokens, info.plain_ms, _MINUTES)
        limit_s = inf if args.repeat and not args.minutes else 60.0 * minutes
        progress = BenchProgress(n_runs * args.repeat if args.repeat else None, limit_s)
        measuring = Measuring(args, engine, interrupt, by_chats, time.monotonic() + limit_s)
        try:
            for run_ in measuring.runs(prompts):
                runs.append(run_)
                progress.show(run_)
        except EngineError as error:
            trouble = str(error)
        finally:
            progress.clear()
    report = report_of(runs)
    _give_out(args, hello, info, report, name=pair.name, level=measuring.level)
    if args.prompts is None and trouble is None:
        setup = setup_of(pair, settings.engine, settings.speculation.drafter)
        note_bench(Speeds(paths.state_dir()), setup, report)
    if interrupt.happened:
        trouble = "stopped"
    if trouble is None:
        return OK
    complain(f"{trouble}; the tables show what was measured before that" if runs else trouble)
    return INTERRUPTED if interrupt.happened else FAILED


def _give_out(
    args: argparse.Namespace,
    hello: Hello,
    info: PairInfo,
    report: BenchReport,
    *,
    name: str,
    level: float,
) -> None:
    """Print the verdict and the tables, and write everything as JSON if asked to. `level` is the
    probability that the verdict is wrong."""
    verdict = judge(report, level)
    said = verdict_in_words(verdict) if verdict is not None else ""
    for line in bench_tables.lines(name, info, hello, report, said, markdown=args.markdown):
        print(line)
    if info.speculation_off:
        print(f"\nNothing is drafted: {info.speculation_off}.")
    elif reason := no_comparison(hello):
        print(f"\n{sentence_of(reason)}")
    elif warning := misfit(of_the_draft(by_drafter(report.runs)), info):
        print(f"\n{sentence_of(warning)}")
    if args.json:
        document = {
            "engine": {"name": hello.engine, "version": hello.llama_cpp or hello.eaglechat},
            "pair": info,
            "verdict": said,
            "report": report,
        }
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_bytes(msgspec.json.format(msgspec.json.encode(document)))


def _open_shapes(args: argparse.Namespace, info: PairInfo) -> tuple[Shape, ...]:
    """The shapes to measure: chains alone where the target can verify nothing else."""
    wanted: tuple[Shape, ...] = args.shape or ("chain",)
    if info.chains_only is None or wanted == ("chain",):
        return wanted
    complain(f"drafts stay chains: {info.chains_only}")
    return ("chain",)


def _open_drafters(args: argparse.Namespace, info: PairInfo) -> tuple[bool, ...]:
    """Whether to measure with n-grams, without, or both; only with them if there is no draft.
    Raises CommandError if there would be nothing to compare."""
    if reason := info.no_bench(ngram=any(args.ngram)):
        hint = "; --ngram on measures n-grams" if info.speculation_off is None else ""
        raise CommandError(f"there is nothing to compare: {reason}{hint}")
    return args.ngram if info.drafters else (True,)


def _open_kinds(args: argparse.Namespace, info: PairInfo) -> tuple[DrafterChoice, ...]:
    """The drafters to measure. Raises CommandError for one that the pair does not have."""
    for choice in args.drafter or ():
        if why := info.no_drafter(choice):
            raise CommandError(f"{choice} cannot draft: {why}")
    several = [drafter.kind for drafter in info.drafters]
    return args.drafter or (tuple(several) if len(several) > 1 else (AUTO,))


class BenchProgress:
    """How far the bench is, by its replies or, if their number is not known before, by its time."""

    def __init__(self, total: int | None, limit_s: float) -> None:
        self._progress = Progress(vanish=True)
        self._total, self._limit_s = total, limit_s
        self._done = 0
        self._started = time.monotonic()
        if total is None:
            limit = plural(round(limit_s / 60), "minute")
            print(f"Up to {limit}, until it can tell.", file=sys.stderr)

    def show(self, run_: BenchRun) -> None:
        self._done += 1
        elapsed = time.monotonic() - self._started
        done, total, left = elapsed, self._limit_s, max(self._limit_s - elapsed, 0.0)
        replies, at_most = f"{self._done}", "at most "
        if self._total is not None:
            done, total = self._done, self._total
            left = min(left, elapsed / done * (total - done))
            replies, at_most = f"{self._done} of {self._total}", ""
        speed = f"{run_.tokens_per_second:.1f} tokens/s"
        text = f"{replies}, {speed}; {at_most}{format_seconds(left)} left"
        self._progress.show(f"{run_.prompt}, {run_.setting}", done, total, text, key="replies")

    def clear(self) -> None:
        self._progress.close()


def _lengths(text: str) -> tuple[int | Auto, ...]:
    """An argparse type for a list of draft lengths."""
    parse: Callable[[str], int | Auto] = options.draft_length
    return tuple(dict.fromkeys(parse(part.strip()) for part in text.split(",")))


def _shapes(text: str) -> tuple[Shape, ...]:
    """An argparse type for a list of shapes."""
    return tuple(_chosen(text, {shape: shape for shape in _SHAPES}))


def _drafters(text: str) -> tuple[DrafterChoice, ...]:
    """An argparse type for a list of drafters."""
    return tuple(_chosen(text, {name: name for name in _DRAFTERS}))


def _switches(text: str) -> tuple[bool, ...]:
    """An argparse type for a list of on and off."""
    return tuple(_chosen(text, {"off": False, "on": True}))


def _chosen(text: str, choices: Mapping[str, T]) -> Iterator[T]:
    for part in dict.fromkeys(part.strip() for part in text.split(",")):
        if part not in choices:
            raise argparse.ArgumentTypeError(f"{part!r} is none of {', '.join(choices)}")
        yield choices[part]
