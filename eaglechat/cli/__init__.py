"""The command line. Importing this must stay cheap: no textual, llama_cpp or huggingface_hub."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Protocol

import eaglechat
from eaglechat.cli import convert, doctor, engine, models, pull, remove, run, start


class Command(Protocol):
    """What a command's module offers; the first line of its docstring is its help."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None: ...

    def run(self, args: argparse.Namespace, /) -> int: ...


_COMMANDS: dict[str, Command] = {
    "run": run,
    "pull": pull,
    "models": models,
    "remove": remove,
    "convert": convert,
    "doctor": doctor,
    "engine": engine,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the process' exit status."""
    args = _parser().parse_args(argv)
    command: Command = _COMMANDS.get(args.command, start)
    return command.run(args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="eaglechat",
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
