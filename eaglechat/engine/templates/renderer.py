"""Renders chat templates: a program of its own, started by `sandbox.py`.

A template comes with a model file, so it is a stranger's program. Jinja's sandbox keeps it from
touching anything, the operating system limits the memory of this process, and a thread of C ends
the process when a template takes too long.

Each line of JSON on standard input has a template, its variables, and how many seconds it may take.
The answer is a line of JSON on standard output: `text` and the rendered text; or the end of a
sentence about the template, after `refused` if it may render other variables, or after `stopped`.
It imports little, so it starts fast.
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
from typing import Any, NoReturn

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_CHARACTERS = 1 << 24
"""What a template may write: several times the longest context."""
MOST_MEMORY = 1 << 30
_MOST_REASON = 2_000


class _GenerationTag(Extension):
    """`{% generation %}` marks what training learns from; it has no meaning for a prompt."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Undefined(jinja2.Undefined):
    """An undefined value, which adds nothing to a text, as in llama.cpp."""

    def __add__(self, other: Any) -> Any:
        return other

    def __radd__(self, other: Any) -> Any:
        return other


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # The order of the arguments is that of transformers, for which templates are written.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


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


def _answer(source: str, variables: dict[str, Any]) -> tuple[str, str]:
    template = None
    try:
        template = _compiled(source)
        text = template.render(variables)
        text.encode()
        if len(text) <= MOST_CHARACTERS:
            return "text", text
        why = f"was stopped: it writes more than {MOST_CHARACTERS:,} characters"
    except MemoryError:
        why = f"was stopped: it takes more than {MOST_MEMORY >> 20:,} MiB of memory"
    except Exception as error:  # a template, and Jinja's compiler, may raise anything
        reason = str(error) or type(error).__name__
        reason = reason[:_MOST_REASON].encode(errors="replace").decode()
        if template is not None:
            if isinstance(error, RecursionError):
                return "refused", "calls itself without end"
            return "refused", f"refuses this conversation: {reason}"
        if isinstance(error, (jinja2.TemplateError, SyntaxError)):
            why = f"is not valid Jinja: {reason}"
        else:
            why = f"cannot be compiled ({type(error).__name__}: {reason})"
    return "stopped", why


def _limit_memory() -> None:
    """On Linux. macOS and Windows cannot, so only the time is limited there."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - Windows has none

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = MOST_MEMORY if most == resource.RLIM_INFINITY else min(MOST_MEMORY, most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    _limit_memory()
    decode = msgspec.json.Decoder(tuple[str, dict[str, Any], float]).decode
    answers = sys.stdout.buffer
    with Path(os.devnull).open("w") as nowhere:
        for line in sys.stdin.buffer:
            source, variables, seconds = decode(line)
            # It runs in a thread of C, so it also ends a regular expression or a huge number.
            faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
            answer = msgspec.json.encode(_answer(source, variables))
            faulthandler.cancel_dump_traceback_later()
            answers.write(answer + b"\n")
            answers.flush()


if __name__ == "__main__":
    main()
