"""Train an EAGLE-3 draft for a target, and measure it in the engine."""

from __future__ import annotations

import argparse
import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import NODEFAULT

from eaglechat.cli import options
from eaglechat.cli.loading import Interrupt
from eaglechat.cli.parsing import checked_type
from eaglechat.cli.progress import Progress
from eaglechat.cli.status import INTERRUPTED, OK, CommandError, complain
from eaglechat.hub.units import format_bytes, format_seconds
from eaglechat.settings.description import SettingDoc, docs_of, find
from eaglechat.train.settings import (
    SAID,
    SELF_WRITTEN_TOKENS,
    Budget,
    PausedError,
    Recipe,
    RunSettings,
    beside,
)
from eaglechat.wire.protocol import Thinking
from eaglechat.words.tables import Row, in_markdown
from eaglechat.words.wording import one_decimal, percent, plural, times, two_decimals

if TYPE_CHECKING:
    # They load torch, which takes seconds and may be missing.
    from eaglechat.train.report import MeasuredDraft
    from eaglechat.train.run import TrainingOutcome

_BUDGET = re.compile(r"^(\d+(?:\.\d+)?)\s*([smh]?)$")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_HEADS: Row = (
    "Draft", "n", "Accepted at each position", "Mean accepted length", "tok/s", "Plain", "Speed-up",
)  # fmt: skip
_NO_TORCH = (
    "training needs torch, which is not installed: pip install torch (smaller, for the CPU "
    "only: pip install torch --index-url https://download.pytorch.org/whl/cpu)"
)


def described() -> list[SettingDoc]:
    """What a run is asked for by flags, in the order in which the help shows it."""
    fields = (*docs_of(RunSettings, "run", SAID), *docs_of(Recipe, "recipe", SAID))
    return [field for field in fields if field.description]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for field in described():
        title = field.group
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        _add_flag(groups[title], field)
    of_app = (("generation", "thinking"), ("engine", "n_threads"), ("engine", "n_gpu_layers"))
    options.add_flags(parser.add_argument_group("as in eaglechat run"), *(find(*n) for n in of_app))


def _add_flag(group: argparse._ActionsContainer, field: SettingDoc) -> None:
    flags = ["-o", field.flag] if field.key == "out" else [field.flag]
    about = options.help_text(field.description)
    how: dict[str, Any] = {"dest": field.key, "help": about}
    if field.kind is bool:
        group.add_argument(*flags, action="store_true", **how)
        return
    if field.item_kind is Path:
        how |= {"action": "append", "type": Path, "default": []}
    elif field.kind in (int, float):
        how["type"] = options.number(field.kind, field.range.minimum or 0, field.range.maximum)
    else:
        how["type"] = {Path: Path, str: str, Budget: parse_budget, tuple: _layers}[field.kind]
    if isinstance(field.default, int | float | str) and field.default:
        how |= {"default": field.default, "help": f"{about} (default: %(default)s)"}
    is_needed = field.default is NODEFAULT and field.key != "work"
    group.add_argument(*flags, metavar=metavar_of(field), required=is_needed, **how)


def metavar_of(field: SettingDoc) -> str:
    """What stands for the value of its flag; empty if it takes none."""
    is_file = Path in (field.kind, field.item_kind)
    usual = "" if field.kind is bool else "FILE" if is_file else "N"
    return field.metavar or usual


def run(args: argparse.Namespace) -> int:
    if find_spec("torch") is None:
        raise CommandError(_NO_TORCH)
    from eaglechat.hub.convert import TYPES

    args.type = checked_type(args.type, TYPES)
    if args.head_type is not None:
        args.head_type = checked_type(args.head_type, TYPES)
    settings = run_settings(args)
    bars = Progress()
    try:
        with Interrupt() as interrupt:
            # Not before: it loads torch, which takes seconds.
            from eaglechat.train.run import TrainingRun

            show = partial(bars.show, timed=True)
            training = TrainingRun(settings, show, lambda: interrupt.happened)
            outcome = training.go()
    except PausedError:
        bars.close()
        complain("stopped; what is finished is saved, and the same command resumes")
        return INTERRUPTED
    finally:
        bars.close()
    report = _report(outcome, settings)
    print(report)
    training.write(settings.report, (report + "\n").encode())
    return OK


def run_settings(args: argparse.Namespace) -> RunSettings:
    """The settings of a run; those that no flag gave have their defaults."""
    configured = options.settings_of(args)
    engine = configured.to_load_options()
    given: dict[str, dict[str, Any]] = {"run": {}, "recipe": {}}
    for field in described():
        value = getattr(args, field.key)
        if value is not None:
            value = tuple(value) if isinstance(value, list) else value
            given[field.table][field.key] = value
    if not any((args.self_written_tokens, args.prompts, args.chats, args.text, args.from_history)):
        given["run"]["self_written_tokens"] = SELF_WRITTEN_TOKENS
    return RunSettings(
        **{"work": beside(args.out, ".training"), **given["run"]},
        recipe=Recipe(**given["recipe"]),
        thinking=Thinking(enabled=configured.to_thinking().enabled),
        n_threads=engine.n_threads,
        n_gpu_layers=engine.n_gpu_layers,
    )


def _layers(text: str) -> tuple[int, ...]:
    try:
        layers = tuple(int(part) for part in text.split(","))
    except ValueError:
        layers = ()
    if len(layers) != 3:
        raise argparse.ArgumentTypeError(f"{text!r} is not three layers such as 2,15,27")
    return layers


def parse_budget(text: str) -> Budget:
    """An argparse type for a time or a number of tokens."""
    match = _BUDGET.match(text.strip().lower())
    if match is None or float(match[1]) < (0 if match[2] else 1) or not float(match[1]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time such as 90m or 2h nor a number of tokens"
        )
    if match[2]:
        return Budget(seconds=float(match[1]) * _SECONDS[match[2]])
    return Budget(tokens=int(float(match[1])))


def _report(outcome: TrainingOutcome, settings: RunSettings) -> str:
    """The report of a run, as Markdown."""
    state = outcome.state
    lines = [
        f"# {outcome.out.name}",
        "",
        f"An EAGLE-3 draft for {settings.target.name}: {format_bytes(outcome.size_bytes)}, reads "
        f"layers {', '.join(map(str, outcome.layers))}, drafts from "
        f"{outcome.draft_vocabulary:,} tokens.",
        "",
        f"Trained for {format_seconds(state.seconds)} ({state.tokens:,} tokens seen, "
        f"{settings.recipe.steps} unrolled steps) on {outcome.n_samples:,} samples; "
        f"{outcome.n_held_out:,} were held out.",
        "",
        f"Measured in the engine, greedy replies of at most {settings.report_tokens} tokens to "
        f"{plural(outcome.n_prompts, 'held-out prompt')}:",
        "",
    ]
    rows = [_HEADS]
    begun_with = settings.init.name if settings.init else ""
    for name, measured in ((begun_with, outcome.before), ("this one", outcome.after)):
        rows += [_row(name, one) for one in measured]
    return "\n".join([*lines, *in_markdown(rows, range(1, len(_HEADS)))])


def _row(name: str, measured: MeasuredDraft) -> Row:
    stats = measured.stats
    return (
        name,
        f"{measured.n_draft_max}",
        " ".join(map(percent, stats.per_position)) or "-",
        two_decimals(stats.mean_accepted_length),
        one_decimal(measured.tokens_per_second),
        one_decimal(measured.plain_tokens_per_second),
        times(measured.speed_up),
    )
