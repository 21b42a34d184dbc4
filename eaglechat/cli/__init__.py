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
from eaglechat import paths
from eaglechat.cli import doctor, engine, prompt, run, start, train
from eaglechat.cli.bench import command as bench
from eaglechat.cli.chats import command as chats
from eaglechat.cli.chats import export
from eaglechat.cli.hub import convert, drafts, models, pull, remove, search
from eaglechat.cli.parsing import CommandParser, did_you_mean
from eaglechat.cli.status import (
    FAILED,
    INTERRUPTED,
    CommandError,
    complain,
    reason,
)
from eaglechat.wire.errors import EngineError, LoadCancelledError
from eaglechat.wire.neutral import neutralise


class CommandModule(Protocol):
    """The interface of a command's module; the first line of its docstring is its help."""

    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None: ...

    def run(self, args: argparse.Namespace, /) -> int:
        """Return the exit status. Raises CommandError, EngineError and OSError."""


_COMMANDS: dict[str, CommandModule] = {
    "run": run,
    "prompt": prompt,
    "bench": bench,
    "search": search,
    "drafts": drafts,
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
_OPTIONS_AFTER = "options of {0} go after it: eaglechat {0} ..."


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the process' exit status."""
    _open_streams()
    # Before huggingface_hub is imported, which reads its variables then.
    paths.tidy_environment(os.environ)
    args = parse(sys.argv[1:] if argv is None else list(argv))
    command: CommandModule = _COMMANDS.get(args.command, start)
    if args.command and isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.isatty():
        sys.stdout = _Terminal(sys.stdout)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell script starts its background jobs with SIGINT ignored. It has to end a command
        # all the same, so that the command keeps its work.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = command.run(args)
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, LoadCancelledError):
        return INTERRUPTED
    except CommandError as error:
        complain(str(error))
        return error.status
    except EngineError as error:
        complain(str(error))
    except BrokenPipeError:
        # The program that reads our output has ended, as `head` does.
        _drop_output()
    except OSError as error:
        # An error about a file has its name; one without a name is about standard output.
        is_output = error.filename is None and error.errno in _FULL
        complain(("the output cannot be written: " if is_output else "") + reason(error))
        _drop_output()
    return FAILED


class _Terminal(io.TextIOWrapper):
    """Standard output where it is a terminal: escape sequences in the text of a model, a server or
    a file are neutralised. Piped output is not changed."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        stream.flush()
        encoding, errors = stream.encoding, stream.errors
        super().__init__(stream.detach(), encoding, errors, line_buffering=True)

    def write(self, text: str) -> int:
        return super().write(neutralise(text))


def _open_streams() -> None:
    """Make sure that all three standard streams are open, and that a character which the encoding
    of the output lacks is printed as a question mark."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The stream was closed before the start, so the lowest free descriptor is its own.
            empty = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(empty, mode, encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _drop_output() -> None:
    """Discard what could not be written; Python would try to write it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parse(given: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments. Ends the program if they are wrong, and after --help."""
    parser, commands = parsers()
    first = given[0] if given else "--version"
    flag = first.split("=")[0]
    if flag.startswith("--") and not parser.has(flag):
        command = next((word for word in given if word in commands), "")
        if command and commands[command].has(flag):
            parser.error(_OPTIONS_AFTER.format(command))
        parser.refuse([first])
    if not first.startswith("-") and first not in commands:
        near = did_you_mean(first, commands)
        parser.error(f"there is no command {first!r}{near or '; --pair and --target name a model'}")
    args, unknown = parser.parse_known_args(given)
    if args.command and first.startswith("-"):
        # argparse would ignore options that stand before the command.
        parser.error(_OPTIONS_AFTER.format(args.command))
    if unknown:
        commands.get(args.command, parser).refuse(unknown)
    return args


def parsers() -> tuple[CommandParser, dict[str, CommandParser]]:
    """The main parser, and the parser of each command."""
    parser = CommandParser(
        prog="eaglechat",
        # The main parser reads its options before it knows the command, so `bench --n` must not
        # be taken for an abbreviation of one of them.
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
