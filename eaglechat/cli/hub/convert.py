"""Convert an EAGLE-3 checkpoint (safetensors or .bin) to a GGUF draft for one target."""

from __future__ import annotations

import argparse
import time
from contextlib import closing
from functools import partial
from pathlib import Path

from eaglechat.cli.parsing import checked_type
from eaglechat.cli.progress import Progress
from eaglechat.cli.status import INTERRUPTED, OK, complain
from eaglechat.hub.convert import TYPES, convert


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
        help=f"{', '.join(TYPES)} (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    kind, started = checked_type(args.type, TYPES), time.monotonic()
    with closing(Progress()) as progress:
        try:
            report = convert(
                args.checkpoint,
                args.target,
                args.output,
                kind,
                partial(progress.show_bytes, "converting"),
            )
        except KeyboardInterrupt:
            progress.close()
            complain("interrupted; nothing was written")
            return INTERRUPTED
    for note in report.notes:
        complain(f"note: {note}")
    layers = ", ".join(map(str, report.target_layers))
    print(
        f"{report.path}: {kind}, {report.path.stat().st_size / 1e6:,.1f} MB, "
        f"{report.n_parameters / 1e6:,.1f} M parameters, reads layers {layers} of its target, "
        f"drafts from {report.draft_vocabulary:,} tokens; "
        f"{time.monotonic() - started:.1f} s"
    )
    return OK
