"""The command line: `eaglechat COMMAND`, or the app. A command is imported when it runs."""

from __future__ import annotations

import argparse
import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import eaglechat
from eaglechat import paths
from eaglechat.cli.parsing import CommandParser, did_you_mean
from eaglechat.cli.status import (
    FAILED,
    INTERRUPTED,
    complain,
    reason,
)
from eaglechat.wire.errors import Cancelled, EngineError
from eaglechat.words.neutral import neutralise

COMMANDS = {
    "run": ("run", "Reply to one prompt and print the reply."),
    "bench": ("bench", "Measure a pair or a server: is drafting faster than not?"),
    "search": ("hub.search", "Search the Hub for targets and drafts, by name, author or address."),
    "drafts": ("hub.drafts", "Find everything that can draft for a model, here and on the Hub."),
    "pull": ("hub.pull", "Download a model, or a pair of the catalogue with its draft."),
    "models": ("hub.models", "List the models on this machine and the pairs of the catalogue."),
    "remove": ("hub.remove", "Delete a model, or a pair of the catalogue, from this machine."),
    "convert": ("hub.convert", "Convert an EAGLE-3 checkpoint to a GGUF draft for one target."),
    "train": ("train", "Train an EAGLE-3 draft for a target, and measure it in the engine."),
    "chats": ("chats", "List the chats on this machine, or find words in them."),
    "export": ("export", "Export a chat as Markdown, JSON or a page with its tokens."),
    "doctor": ("doctor", "Say what runs where, what is wrong, and what would be faster."),
    "engine": ("engine", "Serve a client over standard input and output (docs/protocol.md)."),
}
"""The module of each command, and what it does. A module has `add_arguments(parser)` and
`run(args)`, which returns the exit status and raises EngineError and OSError."""
_ABOUT = """Chat with local GGUF models and see what speculative decoding does.
Without a command, the terminal app starts.

commands:
"""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the process' exit status."""
    _open_streams()
    # Before huggingface_hub is imported, which reads its variables then.
    paths.tidy_environment(os.environ)
    given = sys.argv[1:] if argv is None else list(argv)
    command, args = parse(given)
    is_app = not given or given[0] not in COMMANDS
    if not is_app and isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.isatty():
        sys.stdout = _Terminal(sys.stdout)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell script starts its background jobs with SIGINT ignored. It has to end a command
        # all the same, so that the command keeps its work.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status: int = command.run(args)
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, Cancelled):
        return INTERRUPTED
    except EngineError as error:
        complain(str(error))
        return error.status
    except BrokenPipeError:
        # The program that reads our output has ended, as `head` does.
        _drop_output()
    except OSError as error:
        # An error about a file has its name; one without a name is about standard output.
        is_output = error.filename is None and error.errno in _FULL
        complain(("the output cannot be written: " if is_output else "") + reason(error))
        _drop_output()
    return FAILED


def parse(given: Sequence[str]) -> tuple[Any, argparse.Namespace]:
    """The module of the command, and its arguments. Ends the program if they are wrong, and after
    --help."""
    name = given[0] if given and given[0] in COMMANDS else ""
    module, parser = parser_of(name)
    if given and not name and not given[0].startswith("-"):
        near = did_you_mean(given[0], COMMANDS) or "; --pair and --target name a model"
        parser.error(f"there is no command {given[0]!r}{near}")
    args, unknown = parser.parse_known_args(given[1:] if name else given)
    if unknown:
        command = next((word for word in unknown if word in COMMANDS and not name), None)
        if command is not None:
            parser.error(f"options of {command} go after it: eaglechat {command} ...")
        parser.refuse(unknown)
    return module, args


def parser_of(name: str) -> tuple[Any, CommandParser]:
    """The module and the parser of a command; those of the app for an empty name."""
    if not name:
        listed = "\n".join(f"  {one:<9}{about}" for one, (_, about) in COMMANDS.items())
        usage = "eaglechat [OPTION ...]\n       eaglechat COMMAND [OPTION ...]"
        parser = CommandParser(prog="eaglechat", usage=usage, description=_ABOUT + listed)
        parser.add_argument("--version", action="version", version=eaglechat.__version__)
        where = "start"
    else:
        where, about = COMMANDS[name]
        parser = CommandParser(prog=f"eaglechat {name}", description=about)
    module = import_module(f"eaglechat.cli.{where}")
    module.add_arguments(parser)
    return module, parser


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
