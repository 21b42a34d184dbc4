"""The program that renders chat templates, and nothing else: `python -m` this module.

A template comes out of a model file, so it is a program of a stranger. Jinja's sandbox keeps it
from touching anything; the system keeps it from taking more than this process may have. Whoever
started it (`sandbox.py`) ends it where a rendering takes too long or is no longer wanted.

Frames over standard input and output: the length in four bytes, then msgpack. One empty frame says
that it is ready. It imports little, so that it starts in a tenth of a second.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import functools
import json
import os
import sys
from pathlib import Path
from typing import IO, Any, Literal, NoReturn

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_CHARACTERS = 1 << 24
"""Of what a template writes: several times what the longest context holds."""
MOST_MEMORY = 1 << 30
_MOST_REASON = 2_000
_LONGEST_S = 10
"""A rendering that nobody ends, because whoever asked was killed, ends by itself."""


class Task(msgspec.Struct, array_like=True):
    """A template, and what it is rendered with; None: it is only compiled."""

    source: str
    variables: dict[str, Any] | None


class Outcome(msgspec.Struct, array_like=True):
    """The text, or why there is none."""

    kind: Literal["text", "invalid", "uncompilable", "refused", "recursion", "memory", "length"]
    text: str = ""


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; to a chat it means nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Undefined(jinja2.Undefined):
    """What is not there adds nothing to a text, as in llama.cpp."""

    def __add__(self, other: Any) -> Any:
        return other

    def __radd__(self, other: Any) -> Any:
        return other


def _to_json(value: Any, indent: int | None = None, **_options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


@functools.lru_cache(maxsize=8)
def _compiled(source: str) -> jinja2.Template:
    jinja = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=_Undefined,
        extensions=["jinja2.ext.loopcontrols", _GenerationTag],
    )
    jinja.filters["tojson"] = _to_json
    jinja.globals.update(raise_exception=_raise, strftime_now=_now)
    return jinja.from_string(source)


def outcome(task: Task) -> Outcome:
    """What comes of a task."""
    try:
        template = _compiled(task.source)
    except MemoryError:
        return Outcome("memory")
    except (jinja2.TemplateError, SyntaxError) as error:
        return Outcome("invalid", _reason(error))
    except Exception as error:  # Jinja's compiler and Python's may give up on it in any way
        return Outcome("uncompilable", f"{type(error).__name__}: {_reason(error)}")
    return Outcome("text") if task.variables is None else _rendered(template, task.variables)


def _rendered(template: jinja2.Template, variables: dict[str, Any]) -> Outcome:
    try:
        text = template.render(variables)
        if len(text) > MOST_CHARACTERS:
            return Outcome("length")
        text.encode()
    except MemoryError:
        return Outcome("memory")
    except RecursionError:
        return Outcome("recursion")
    except Exception as error:  # a template may raise anything
        return Outcome("refused", _reason(error))
    return Outcome("text", text)


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text[:_MOST_REASON].encode(errors="replace").decode()


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def read_frame(stream: IO[bytes], most: int = 0xFFFFFFFF) -> bytes | None:
    """The next one; None where there is no more, or it is longer than it may be."""
    length = int.from_bytes(head, "big") if len(head := stream.read(4)) == 4 else None
    if length is None or length > most:
        return None
    content = stream.read(length)
    return content if len(content) == length else None


def _limit_memory() -> None:
    """Where the system can: macOS and Windows do not, so there time alone is limited."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - Windows has none

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = MOST_MEMORY if most == resource.RLIM_INFINITY else min(MOST_MEMORY, most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    _limit_memory()
    decode = msgspec.msgpack.Decoder(Task).decode
    given, made = sys.stdin.buffer, sys.stdout.buffer
    with Path(os.devnull).open("w") as nowhere:
        content: bytes | None = b""
        while content is not None:
            if content:
                # A thread of C, so it ends a regular expression or a huge number, too.
                faulthandler.dump_traceback_later(_LONGEST_S, exit=True, file=nowhere)
                content = msgspec.msgpack.encode(outcome(decode(content)))
                faulthandler.cancel_dump_traceback_later()
            made.write(frame(content))
            made.flush()
            content = read_frame(given)


if __name__ == "__main__":
    main()
