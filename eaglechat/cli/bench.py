"""Measure a pair: plain decoding, draft lengths, shapes and drafters; or a server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import product
from math import ceil
from pathlib import Path
from typing import TypeVar

import msgspec

from eaglechat import paths
from eaglechat.chat.comparing import Asked, Comparison, contenders
from eaglechat.chat.recording import Terms
from eaglechat.chat.refusals import misfit, no_comparison
from eaglechat.cli import options
from eaglechat.cli.loading import CommandEngine, Interrupt
from eaglechat.cli.pairs import choose_pair
from eaglechat.cli.progress import Progress
from eaglechat.cli.status import (
    FAILED,
    INTERRUPTED,
    OK,
    CommandError,
    WrongUsageError,
    complain,
)
from eaglechat.engine.bench.prompts import (
    Prompt,
    builtin_prompts,
    copy_prompts,
    parse_lines,
    parse_prompts,
)
from eaglechat.hub.local.speeds import Speeds
from eaglechat.hub.units import format_seconds
from eaglechat.wire.drafters import DrafterChoice
from eaglechat.wire.protocol import (
    AUTO,
    PLAINLY,
    Auto,
    Hello,
    PairInfo,
    Sampling,
    Shape,
    Speculation,
)
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT
from eaglechat.wire.stats import DrafterStats, of_the_draft
from eaglechat.words import wording
from eaglechat.words.card import card, ran_on, shipped_with, why_no_card, why_not
from eaglechat.words.comparing import category_rows, in_json, named, sentence, setting_rows
from eaglechat.words.gain import at_most
from eaglechat.words.statistics import of_whole_reply
from eaglechat.words.tables import aligned
from eaglechat.words.wording import plural

T = TypeVar("T")

_COPY = "copy"
_HEAT_TOKENS = 64
"""At most: auto begins anew in each heat, and has so many tokens to learn in."""
_LENGTHS: tuple[int | Auto, ...] = (0, 1, 2, 3, 4, 5, 6, 8, AUTO)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="PAIR", help="a pair by name")
    options.add_pair_options(parser)
    options.add_server_options(parser)
    parser.add_argument(
        "--n",
        type=_list_of(options.value_of("speculation", "n_draft_max")),
        metavar="LIST",
        help="draft lengths to measure, such as 0,3,5,auto "
        f"(default: {','.join(map(str, _LENGTHS))})",
    )
    parser.add_argument(
        "--shape",
        type=_list_of(options.value_of("speculation", "shape")),
        metavar="LIST",
        help="shapes to measure, such as chain,tree (default: chain)",
    )
    parser.add_argument(
        "--ngram",
        type=_list_of(_off_or_on),
        metavar="LIST",
        help="with n-grams ahead of the draft (on), without (off), or both: off,on (default: off)",
    )
    parser.add_argument(
        "--drafter",
        type=_list_of(options.value_of("speculation", "drafter")),
        metavar="LIST",
        help="drafters to measure, such as eagle3,mtp (default: all that the pair has)",
    )
    parser.add_argument(
        "--prompts",
        metavar="FILE",
        help="your own prompts: each after a line “=== name”, or as JSON lines with “prompt” and "
        "“category” (default: eight kinds of work); "
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
        "--temperature",
        type=options.value_of("generation", "temperature"),
        default=0.0,
        metavar="T",
        help="temperature of the replies (default: %(default)g)",
    )
    parser.add_argument(
        "--minutes",
        type=options.number(int, 1, None),
        metavar="N",
        help="longest time in which replies are measured again and again until it can tell "
        "(default: 10, or for two passes over all prompts)",
    )
    parser.add_argument(
        "--repeat",
        type=options.number(int, 1, None),
        metavar="N",
        help="measure each reply exactly N times instead",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    parser.add_argument(
        "--card",
        action="store_true",
        help="print a card in Markdown that others can cite, in place of the tables: machine, "
        "files, protocol, figures and their limits",
    )
    options.add_setting_options(parser, "engine")


def run(args: argparse.Namespace) -> int:
    if args.name and (args.pair or args.target):
        raise WrongUsageError("the pair is named twice; give PAIR, --pair or --target")
    args.pair = args.name or args.pair
    options.check_pair(args)
    prompts = _prompts(args.prompts)
    if args.json and (reason := paths.why_unwritable(args.json.parent)):
        # Complain now, not after an hour of measuring.
        raise CommandError(f"{args.json} cannot be written: {reason}")
    with Interrupt() as interrupt:
        return _bench(args, prompts, interrupt)


def _prompts(chosen: str | None) -> list[Prompt]:
    """Raises OSError, CommandError."""
    if chosen is None:
        return builtin_prompts()
    if chosen == _COPY:
        return copy_prompts()
    try:
        text = Path(chosen).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{chosen} is not text in UTF-8") from error
    is_json = chosen.endswith(".jsonl") or text.lstrip().startswith("{")
    try:
        return parse_lines(text) if is_json else parse_prompts(text)
    except ValueError as error:
        raise CommandError(f"{chosen}: {error}") from error


def _bench(args: argparse.Namespace, prompts: list[Prompt], interrupt: Interrupt) -> int:
    settings = options.settings_of(args)
    pair = choose_pair(args, settings)
    with CommandEngine(settings, interrupt, pair.server) as engine:
        info, hello = engine.load(pair), engine.hello
        if args.card and (reason := why_no_card(hello, info, settings.engine)):
            raise CommandError(f"no card can be made: {reason}")
        n_heats = ceil(args.max_tokens / _HEAT_TOKENS)
        asked = Asked(
            {prompt.name: prompt.messages for prompt in prompts},
            Terms(sampling=Sampling(temperature=args.temperature), max_tokens=args.max_tokens),
            heat_tokens=ceil(args.max_tokens / n_heats),
            in_a_row=n_heats,
            repeats=args.repeat,
            minutes=args.minutes,
            least_minutes=10,
        )
        who = _contenders(args, info, hello, settings.speculation)
        comparison = Comparison(engine.link, hello, info, asked, who, changed=lambda: None)
        _measure(comparison, engine, interrupt)
        failure = comparison.failure
        trouble = str(engine.failure(failure)) if failure is not None else None
    result = comparison.so_far()
    said = sentence(result) if result.best is not None else ""
    source = f"of {args.prompts}" if args.prompts else shipped_with(hello)
    categories = {prompt.name: prompt.category for prompt in prompts}
    no_card = why_not(comparison) if args.card else None
    if args.card and no_card is None:
        print(card(comparison, settings.engine, source, categories))
    else:
        name = wording.pair_in_short(info, pair.name)
        print(f"{name}, {ran_on(info, hello)}, {wording.today()}")
        _print(comparison, said, categories)
    if args.json:
        document = {
            "engine": {"name": hello.engine, "version": hello.llama_cpp or hello.eaglechat},
            "pair": info,
            "verdict": said,
            **in_json(result, categories),
        }
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_bytes(msgspec.json.format(msgspec.json.encode(document)))
    if args.prompts is None and trouble is None:
        result.note(Speeds(paths.state_dir()), pair, settings.engine, "bench")
    if interrupt.happened:
        trouble = "stopped"
    if trouble is None and no_card is None:
        return OK
    complain(trouble or f"no card: {no_card}")
    return INTERRUPTED if interrupt.happened else FAILED


def _measure(comparison: Comparison, engine: CommandEngine, interrupt: Interrupt) -> None:
    """Run a comparison to its end, with a bar: how many of the passes that were asked for are over,
    or how much of the time, if it goes on until it can tell."""
    limit_s = 60.0 * comparison.minutes
    if comparison.share is None:
        limit = plural(round(comparison.minutes), "minute")
        print(f"Up to {limit}, until it can tell.", file=sys.stderr)
    bars, shown = Progress(vanish=True), ""
    try:
        comparison.start()
        while comparison.result is None:
            if interrupt.happened or not comparison.seconds_left:
                comparison.stop()
            engine.pump()
            heat = f"heat {len(comparison.heats) + 1} of {comparison.prompt}, {comparison.running}"
            if heat == shown:
                # Drawing takes time of what is measured.
                continue
            shown, left = heat, comparison.seconds_left
            if comparison.share is None:
                text = f"at most {format_seconds(left)} left"
                bars.show(heat, limit_s - left, limit_s, text)
            else:
                bars.show(heat, comparison.share, 1.0, timed=True)
    finally:
        bars.close()


def _contenders(
    args: argparse.Namespace, info: PairInfo, hello: Hello, now: Speculation
) -> dict[str, Speculation]:
    """By name, the one that the others are compared with first. Raises WrongUsageError for a flag
    that the engine cannot follow, CommandError if there would be nothing to compare."""
    ours = ("shape", "ngram", "drafter", *(() if hello.can.draft_length else ("n",)))
    given = [name for name in ours if getattr(args, name)]
    if given and not hello.can.own:
        raise WrongUsageError(f"--{given[0]} is for eaglechat's own engine, not for {hello.engine}")
    if not hello.can.draft_length:
        plain = [PLAINLY] if hello.can.plain else []
        return named([*plain, *contenders(now, info, hello)], hello.can)
    if info.speculation_off is not None:
        raise CommandError(f"there is nothing to compare: {info.speculation_off}")
    longest = max((one.longest for one in info.drafters), default=N_DRAFT_MAX_LIMIT)
    lengths = args.n or [n for n in _LENGTHS if n == AUTO or n <= longest]
    shapes: tuple[Shape, ...] = args.shape or ("chain",)
    if info.chains_only is not None and shapes != ("chain",):
        complain(f"drafts stay chains: {info.chains_only}")
        shapes = ("chain",)
    # Without a draft there are only n-grams.
    ngram = (args.ngram or (False,)) if info.drafters else (True,)
    for choice in args.drafter or ():
        if why := info.no_drafter(choice):
            raise CommandError(f"{choice} cannot draft: {why}")
    kinds = tuple(drafter.kind for drafter in info.drafters)
    drafters: tuple[DrafterChoice, ...] = args.drafter or (kinds if len(kinds) > 1 else (AUTO,))
    if not hello.can.own:
        lengths = [n for n in lengths if n not in (0, AUTO)]
        if not lengths:
            raise CommandError(
                f"{hello.engine} drafts a fixed number of tokens: name some with --n"
            )
        drafters = (AUTO,)
    combined = [
        # A tree needs two tokens, and n-grams are looked up only to draft.
        Speculation(
            n_draft_max=n,
            shape="chain" if n in (0, 1) else shape,
            ngram=ngrams and n != 0,
            drafter=drafter,
        )
        for drafter, ngrams, shape, n in product(drafters, ngram, shapes, lengths)
    ]
    return named([PLAINLY, *dict.fromkeys(combined)], hello.can)


def _print(comparison: Comparison, said: str, categories: dict[str, str]) -> None:
    """Print what was found, `said` in a sentence, and the tables."""
    result, info, hello = comparison.so_far(), comparison.info, comparison.hello
    if not result.scores:
        print("Nothing was measured.")
        return
    tables = [*category_rows(result, categories)], [*setting_rows(result)]
    found = [said, *("\n".join(aligned(rows, range(1, len(rows[0])))) for rows in tables)]
    found += [
        f"{score.name}: {of_whole_reply(score.stats)}; which were tested is not reported"
        for score in result.scores
        if score.stats.is_of_whole_reply
    ]
    found.append(at_most(info, result.best))
    drafted = sum((of_the_draft(one.stats.by_drafter) for one in result.scores), DrafterStats())
    if info.speculation_off:
        found.append(f"Nothing is drafted: {info.speculation_off}.")
    else:
        found.append(no_comparison(hello) or misfit(drafted, info) or "")
    for paragraph in filter(None, found):
        print(f"\n{paragraph}")


def _list_of(one: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """An argparse type for a list of what `one` is the type of, each once."""
    return lambda text: tuple(dict.fromkeys(one(part.strip()) for part in text.split(",")))


def _off_or_on(text: str) -> bool:
    if text not in ("off", "on"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither off nor on")
    return text == "on"
