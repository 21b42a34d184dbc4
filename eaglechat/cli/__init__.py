"""The command line. Importing this must stay cheap: no textual, llama_cpp or huggingface_hub."""

from __future__ import annotations

import argparse
import errno
import io
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
from eaglechat.cli.parsing import CommandParser, did_you_mean
from eaglechat.cli.status import FAILED, INTERRUPTED, complain, reason
from eaglechat.cli.train import command as train
from eaglechat.wire.errors import EngineError, LoadCancelledError
from eaglechat.wire.neutral import neutralise


class Command(Protocol):
    """What a command's module offers; the first line of its docstring is its help."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None: ...

    def run(self, args: argparse.Namespace, /) -> int:
        """The exit status. Raises EngineError and OSError for what went wrong."""


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

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BEHIND = "options of {0} go after it: eaglechat {0} ..."


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the process' exit status."""
    _open_streams()
    args = _parsed(sys.argv[1:] if argv is None else list(argv))
    command: Command = _COMMANDS.get(args.command, start)
    if args.command and isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.isatty():
        sys.stdout = _Terminal(sys.stdout)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a script starts its background jobs: SIGINT still ends a command, and keeps its work.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = command.run(args)
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, LoadCancelledError):
        return INTERRUPTED
    except EngineError as error:
        complain(str(error))
    except BrokenPipeError:
        # The reader of the pipe has enough.
        _drop_output()
    except OSError as error:
        # A file that a command writes has a name.
        is_output = error.filename is None and error.errno in _FULL
        complain(("the output cannot be written: " if is_output else "") + reason(error))
        _drop_output()
    return FAILED


class _Terminal(io.TextIOWrapper):
    """A terminal's output, on which nothing from a model, a server or a file is more than text.
    What is piped stays as it is."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        stream.flush()
        encoding, errors = stream.encoding, stream.errors
        super().__init__(stream.detach(), encoding, errors, line_buffering=True)

    def write(self, text: str) -> int:
        return super().write(neutralise(text))


def _open_streams() -> None:
    """Whatever this process was started with: three streams, and a question mark for what the
    encoding of the output lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It is closed; the lowest free descriptor is its own.
            empty = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(empty, mode, encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _drop_output() -> None:
    """Let what the output does not take go nowhere; Python would try again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    """The arguments. Ends the program where they are wrong, or where help is all it was for."""
    parser, commands = _parsers()
    first = given[0] if given else "--version"
    flag = first.split("=")[0]
    if flag.startswith("--") and not parser.has(flag):
        command = next((word for word in given if word in commands), "")
        if command and commands[command].has(flag):
            parser.error(_BEHIND.format(command))
        parser.refuse([first])
    if not first.startswith("-") and first not in commands:
        near = did_you_mean(first, commands)
        parser.error(f"there is no command {first!r}{near or '; --pair and --target name a model'}")
    args, unknown = parser.parse_known_args(given)
    if args.command and first.startswith("-"):
        # argparse would drop them without a word.
        parser.error(_BEHIND.format(args.command))
    if unknown:
        commands.get(args.command, parser).refuse(unknown)
    return args


def _parsers() -> tuple[CommandParser, dict[str, CommandParser]]:
    """The parser, and those of the commands."""
    parser = CommandParser(
        prog="eaglechat",
        # Its options are read ahead of the command: bench --n must not be short for one of them.
        allow_abbrev=False,
        description="Chat with local GGUF models and see what EAGLE-3 speculative decoding does. "
        "Without a command, the terminal app starts.",
    )
    parser.add_argument("--version", action="version", version=eaglechat.__version__)
    start.add_arguments(parser)
    added = parser.add_subparsers(dest="command", metavar="COMMAND", prog="eaglechat")
    commands: dict[str, CommandParser] = {}
    for name, module in _COMMANDS.items():
        assert module.__doc__ is not None
        summary = module.__doc__.splitlines()[0]
        commands[name] = added.add_parser(name, help=summary, description=summary)
        module.add_arguments(commands[name])
    return parser, commands
