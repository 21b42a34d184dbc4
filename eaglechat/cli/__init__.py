"""The command line. Importing this must stay cheap: no textual, llama_cpp or huggingface_hub."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import Protocol

import eaglechat
from eaglechat.cli import doctor, engine, prompt, run, start
from eaglechat.cli.bench import command as bench
from eaglechat.cli.chats import command as chats
from eaglechat.cli.chats import export
from eaglechat.cli.hub import convert, models, pull, remove
from eaglechat.cli.status import FAILED, INTERRUPTED
from eaglechat.cli.train import command as train


class Command(Protocol):
    """What a command's module offers; the first line of its docstring is its help."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None: ...

    def run(self, args: argparse.Namespace, /) -> int: ...


_COMMANDS: dict[str, Command] = {
    "run": run,
    "prompt": prompt,
    "bench": bench,
    "pull": pull,
    "models": models,
    "remove": remove,
    "convert": convert,
    "train": train,
    "chats": chats,
    "export": export,
    "doctor": doctor,
    "engine": engine,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the process' exit status."""
    given = sys.argv[1:] if argv is None else list(argv)
    parser = _parser()
    args = parser.parse_args(given)
    if args.command and given[0].startswith("-"):
        # argparse would drop them without a word.
        parser.error(f"options of {args.command} stand after it: eaglechat {args.command} ...")
    command: Command = _COMMANDS.get(args.command, start)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a script starts its background jobs: SIGINT still ends a command, and keeps its work.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = command.run(args)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe has enough; what Python still flushes at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="eaglechat",
        # Its options are read ahead of the command: bench --n must not be short for one of them.
        allow_abbrev=False,
        description="Chat with local GGUF models and see what EAGLE-3 speculative decoding does. "
        "Without a command, the terminal app starts.",
    )
    parser.add_argument("--version", action="version", version=eaglechat.__version__)
    start.add_arguments(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in _COMMANDS.items():
        assert module.__doc__ is not None
        summary = module.__doc__.splitlines()[0]
        sub = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(sub)
    return parser
