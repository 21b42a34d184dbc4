"""Start the terminal app."""

from __future__ import annotations

import argparse
import sys

from eaglechat.cli import options
from eaglechat.cli.status import FAILED, WRONG_USAGE, complain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_pair_options(parser)
    options.add_setting_options(parser)
    parser.add_argument("--theme", metavar="NAME", help="a theme by name")


def run(args: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        complain("the chat needs a terminal; for pipes and scripts there is eaglechat run")
        return FAILED
    problem = options.wrong_pair_usage(args)
    if problem:
        complain(problem)
        return WRONG_USAGE
    raise NotImplementedError
