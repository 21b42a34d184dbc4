"""Convert an EAGLE-3 checkpoint (safetensors or .bin) to a GGUF draft for one target."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from eaglechat.cli.status import FAILED, INTERRUPTED, OK, WRONG_USAGE, complain

if TYPE_CHECKING:
    from eaglechat.hub.convert import ConversionReport, Progress

_BAR_CELLS = 24
_LINE_EVERY_PERCENT = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint",
        type=Path,
        metavar="CHECKPOINT",
        help="directory with config.json and the weights",
    )
    parser.add_argument(
        "--target",
        type=Path,
        required=True,
        metavar="TARGET.gguf",
        help="the model the draft was made for (of a split model, the first file)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT.gguf", help="the file to write"
    )
    parser.add_argument(
        "--type",
        default="q8_0",
        metavar="TYPE",
        help="f32, f16, bf16, q8_0 (default), or a mixture of llama.cpp such as q4_k_m",
    )


def run(args: argparse.Namespace) -> int:
    # Not at the top: it brings numpy and gguf, and the help of every command imports this module.
    from eaglechat.hub.convert import TYPES, ConversionError, convert

    kind = args.type.lower()
    if kind not in TYPES:
        complain(f"{args.type} is not a type; known are {', '.join(TYPES)}")
        return WRONG_USAGE
    display = _Bar() if sys.stderr.isatty() else _Lines()
    try:
        report = convert(args.checkpoint, args.target, args.output, kind, display.show)
    except KeyboardInterrupt:
        display.end()
        complain("interrupted; nothing was written")
        return INTERRUPTED
    except (ConversionError, OSError) as error:
        display.end()
        complain(str(error))
        return FAILED
    display.end()
    _print_report(report)
    return OK


def _print_report(report: ConversionReport) -> None:
    for note in report.notes:
        complain(f"note: {note}")
    layers = ", ".join(map(str, report.target_layers))
    print(
        f"{report.path}: {report.type}, {report.size_bytes / 1e6:,.1f} MB, "
        f"{report.n_parameters / 1e6:,.1f} M parameters, reads layers {layers} of its target, "
        f"drafts from {report.draft_vocabulary:,} tokens; {report.seconds:.1f} s"
    )


class _Bar:
    """One line on a terminal, written over and over."""

    def __init__(self) -> None:
        self._drawn = ""

    def show(self, progress: Progress) -> None:
        filled = _BAR_CELLS * progress.done // max(progress.total, 1)
        bar = "#" * filled + "-" * (_BAR_CELLS - filled)
        line = (
            f"{progress.stage:10} [{bar}] {_percent(progress):3}%  "
            f"{progress.done / 1e6:,.0f} of {progress.total / 1e6:,.0f} MB"
        )
        if line != self._drawn:
            print("\r" + line.ljust(len(self._drawn)), end="", file=sys.stderr, flush=True)
            self._drawn = line

    def end(self) -> None:
        if self._drawn:
            print(file=sys.stderr)
            self._drawn = ""


class _Lines:
    """A plain line now and then, for logs and pipes."""

    def __init__(self) -> None:
        self._shown = ("", -1)

    def show(self, progress: Progress) -> None:
        step = _percent(progress) // _LINE_EVERY_PERCENT
        if (progress.stage, step) != self._shown:
            self._shown = (progress.stage, step)
            print(f"{progress.stage} {_percent(progress)}%", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Nothing is left open."""


def _percent(progress: Progress) -> int:
    return 100 * progress.done // max(progress.total, 1)
