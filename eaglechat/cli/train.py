"""Train an EAGLE-3 draft for a target, and measure it in the engine."""

from __future__ import annotations

import argparse
import re
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from eaglechat import paths
from eaglechat.cli import options
from eaglechat.cli.loading import Interrupt
from eaglechat.cli.parsing import checked_type
from eaglechat.cli.progress import Progress
from eaglechat.cli.status import INTERRUPTED, OK, CommandError, WrongUsageError, complain
from eaglechat.hub.units import format_bytes, format_seconds
from eaglechat.settings import find

if TYPE_CHECKING:
    from eaglechat.train.report import MeasuredDraft
    from eaglechat.train.run import TrainingOutcome, TrainingProgress
    from eaglechat.train.settings import Budget, RunSettings

_BUDGET = re.compile(r"^(\d+(?:\.\d+)?)\s*([smh]?)$")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_NO_TORCH = (
    "training needs torch, which is not installed: pip install torch (smaller, for the CPU "
    "only: pip install torch --index-url https://download.pytorch.org/whl/cpu)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    whole = options.number(int, 1, None)
    parser.add_argument(
        "--target", type=Path, required=True, metavar="TARGET.gguf", help="the model to draft for"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DRAFT.gguf", help="the file to write"
    )
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="directory for chats, features and checkpoints (default: DRAFT.training)",
    )
    parser.add_argument(
        "--restart",
        action="store_true",
        help="train again from the start; chats and features are kept",
    )
    data = parser.add_argument_group("what it learns from (default: chats the target writes)")
    data.add_argument(
        "--write",
        type=whole,
        metavar="TOKENS",
        help="chats the target writes itself, in tokens (default 1000000 without other data)",
    )
    data.add_argument(
        "--prompts",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="prompts the target answers, one a line or each after a line “=== name”; repeatable",
    )
    data.add_argument(
        "--chats",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help='JSONL, also .gz: {"messages": [...]} a line, or tokens; repeatable',
    )
    data.add_argument(
        "--text",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="plain text to learn from; repeatable",
    )
    data.add_argument(
        "--from-history", action="store_true", help="learn from your own chats in eaglechat too"
    )
    options.add_flags(data, find("generation", "thinking"))
    data.add_argument(
        "--longest",
        # Below, not even a BOS and the fewest tokens that teach anything have room.
        type=options.number(int, 8, None),
        default=1024,
        metavar="N",
        help="longest sample, in tokens (default: %(default)s)",
    )
    draft = parser.add_argument_group("the draft")
    draft.add_argument("--init", type=Path, metavar="DRAFT.gguf", help="start from this draft")
    draft.add_argument(
        "--compare", type=Path, metavar="OLD.gguf", help="measure this draft too, for comparison"
    )
    draft.add_argument(
        "--layers",
        type=_layers,
        metavar="A,B,C",
        help="layers of the target whose inputs it reads (default: 2, the middle, the last but 3)",
    )
    draft.add_argument(
        "--draft-vocab",
        type=whole,
        metavar="N",
        help="tokens it can propose: the most frequent in the data (default 8192, or --init's)",
    )
    draft.add_argument(
        "--name", metavar="NAME", help="the draft's name (default: the target's, and EAGLE-3)"
    )
    draft.add_argument(
        "--type",
        default="q8_0",
        metavar="TYPE",
        help="type of its matrices: q8_0 (default), bf16, q4_k_m, ...",
    )
    draft.add_argument(
        "--head-type", metavar="TYPE", help="type of its output head, if different: q5_0, ..."
    )
    how = parser.add_argument_group("how to train")
    how.add_argument(
        "--budget",
        type=parse_budget,
        default="60m",
        metavar="B",
        help="how long to train once the data is there: 90m, 2h, or "
        "tokens such as 2000000 (default: %(default)s)",
    )
    how.add_argument(
        "--steps", type=options.number(int, 1, 8), default=4, metavar="K",
        help="unrolled steps of training-time test (default: %(default)s)",
    )  # fmt: skip
    how.add_argument(
        "--batch",
        type=whole,
        default=4096,
        metavar="TOKENS",
        help="tokens in a batch (default: %(default)s)",
    )
    how.add_argument(
        "--rate", type=options.number(float, 0.0, 1.0), default=1e-3, metavar="R",
        help="highest learning rate (default: %(default)s)",
    )  # fmt: skip
    how.add_argument(
        "--seed", type=options.number(int, 0, 2**31), default=1, metavar="S",
        help="seed of the training, and of the chats the target writes (default: %(default)s)",
    )  # fmt: skip
    how.add_argument(
        "--recompute",
        action="store_true",
        help="compute features in every pass instead of storing them: for a small disk",
    )
    how.add_argument(
        "--report-prompts",
        type=whole,
        default=24,
        metavar="N",
        help="held-out prompts to measure the draft on (default: %(default)s)",
    )
    options.add_flags(how, find("engine", "n_threads"), find("engine", "n_gpu_layers"))


def run(args: argparse.Namespace) -> int:
    if find_spec("torch") is None:
        raise CommandError(_NO_TORCH)
    from eaglechat.hub.errors import ConversionError
    from eaglechat.train.settings import PausedError

    _check_types(args)
    settings = run_settings(args)
    report_file = _beside(settings.out, ".md")
    check_report(report_file, settings.out)
    display = TrainingDisplay()
    try:
        with Interrupt() as interrupt:
            # Not before: they load torch, which takes seconds.
            from eaglechat.train.preparation import forget_run
            from eaglechat.train.run import TrainingRun

            if args.restart:
                forget_run(settings.work)
            run = TrainingRun(settings, display.show, lambda: interrupt.happened)
            outcome = run.go()
    except PausedError:
        display.end()
        complain("stopped; everything is saved, and the same command resumes")
        return INTERRUPTED
    except ConversionError as error:
        raise CommandError(str(error)) from error
    finally:
        display.end()
    report = _report(outcome, settings)
    print(report)
    paths.write_atomically(report_file, (report + "\n").encode())
    return OK


def _beside(out: Path, ending: str) -> Path:
    """The path of what belongs to a draft: a dot in its name is no ending."""
    return out.with_name(out.name.removesuffix(".gguf") + ending)


def check_report(report: Path, out: Path) -> None:
    """Raises CommandError if the report of this draft would replace another file."""
    if not report.exists():
        return
    first = report.read_bytes().partition(b"\n")[0] if report.is_file() else b""
    if first != _title(out).encode():
        raise CommandError(
            f"{report}, where the report goes, is not a report of {out.name}: move it, or choose "
            "another --output"
        )


def _title(out: Path) -> str:
    return f"# {out.name}"


def _check_types(args: argparse.Namespace) -> None:
    """Raises WrongUsageError."""
    from eaglechat.hub.convert import DIRECT_TYPES, TYPES
    from eaglechat.train.draft_file import HEAD_TYPES

    checked_type(args.type, TYPES)
    if args.head_type is None:
        return
    checked_type(args.head_type, HEAD_TYPES, "a type of a head")
    if args.type.lower() not in DIRECT_TYPES:
        raise WrongUsageError(
            f"{args.type} is a mixture, of which llama.cpp chooses the head's type too; "
            f"--head-type goes with {', '.join(DIRECT_TYPES)}"
        )


def run_settings(args: argparse.Namespace) -> RunSettings:
    from eaglechat.train.settings import SELF_WRITTEN_TOKENS, Recipe, RunSettings
    from eaglechat.wire.protocol import Thinking

    configured, problems = options.load_settings(args)
    options.report(problems)
    engine = configured.to_load_options()
    given = args.prompts or args.chats or args.text or args.from_history
    return RunSettings(
        target=args.target,
        out=args.output,
        work=args.work or _beside(args.output, ".training"),
        prompts=tuple(args.prompts),
        chats=tuple(args.chats),
        text=tuple(args.text),
        history=paths.chats_dir() if args.from_history else None,
        self_written_tokens=args.write or (0 if given else SELF_WRITTEN_TOKENS),
        thinking=Thinking(enabled=configured.to_thinking().enabled),
        longest=args.longest,
        name=args.name,
        layers=args.layers,
        draft_vocab=args.draft_vocab,
        init=args.init,
        compare=args.compare,
        budget=args.budget,
        recipe=Recipe(
            steps=args.steps,
            batch_tokens=args.batch,
            learning_rate=args.rate,
            seed=args.seed,
        ),
        type=args.type.lower(),
        head_type=args.head_type.lower() if args.head_type else None,
        recompute=args.recompute,
        n_threads=engine.n_threads,
        n_gpu_layers=engine.n_gpu_layers,
        report_prompts=args.report_prompts,
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
    from eaglechat.train.settings import Budget

    match = _BUDGET.match(text.strip().lower())
    if match is None or float(match[1]) < (0 if match[2] else 1) or not float(match[1]):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time such as 90m or 2h nor a number of tokens"
        )
    if match[2]:
        return Budget(seconds=float(match[1]) * _SECONDS[match[2]])
    return Budget(tokens=int(float(match[1])))


class TrainingDisplay:
    """The progress of a run: a bar for each stage, with the time that it still takes."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._stage, self._begun = "", (0.0, 0.0)

    def show(self, progress: TrainingProgress) -> None:
        now = time.monotonic()
        if progress.stage != self._stage:
            self._stage, self._begun = progress.stage, (now, progress.done)
        started, before = self._begun
        left = ""
        if before < progress.done < progress.total:
            share_left = (progress.total - progress.done) / (progress.done - before)
            left = f"{format_seconds((now - started) * share_left)} left"
        text = ", ".join(filter(None, (left, progress.note)))
        self._progress.show(progress.stage, progress.done, progress.total, text)

    def end(self) -> None:
        """Leave the bars as they are."""
        self._progress.close()


def _report(outcome: TrainingOutcome, settings: RunSettings) -> str:
    """The report of a run, as Markdown."""
    state = outcome.state
    lines = [
        _title(outcome.out),
        "",
        f"An EAGLE-3 draft for {settings.target.name}: {format_bytes(outcome.size_bytes)}, reads "
        f"layers {', '.join(map(str, outcome.layers))}, drafts from "
        f"{outcome.draft_vocabulary:,} tokens.",
        "",
        f"Trained for {format_seconds(state.seconds)} ({state.tokens:,} tokens seen, "
        f"{settings.recipe.steps} unrolled steps) on {outcome.n_samples:,} samples; "
        f"{outcome.n_held_out:,} were held out. Training predicts on held-out replies: "
        f"{_rates(outcome.prediction.per_position)}, mean accepted length "
        f"{outcome.prediction.mean_accepted_length:.2f}.",
        "",
        f"Measured in the engine, greedy replies of at most {settings.report_tokens} tokens to "
        "held-out prompts:",
        "",
        "| Draft | n | Accepted at each position | Mean accepted length | Tokens/s | Plain | "
        "Speed-up |",
        "|---|---|---|---|---|---|---|",
    ]
    earlier = [(draft.name, measured) for draft, measured in outcome.before]
    for name, measured in (*earlier, ("this one", outcome.after)):
        lines += [_row(name, one) for one in measured]
    return "\n".join(lines)


def _row(name: str, measured: MeasuredDraft) -> str:
    length = measured.stats.mean_accepted_length
    return (
        f"| {name} | {measured.n_draft_max} | {_rates(measured.stats.per_position)} | "
        f"{'-' if length is None else f'{length:.2f}'} | {measured.tokens_per_second:.0f} | "
        f"{measured.plain_tokens_per_second:.0f} | {measured.speed_up:.2f}x |"
    )


def _rates(per_position: tuple[float, ...]) -> str:
    return " ".join(f"{100 * rate:.0f}%" for rate in per_position) or "-"
