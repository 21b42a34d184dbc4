"""The Jinja that chat templates are written for.

A template comes out of a model file, so it runs in a sandbox, and not for ever.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from eaglechat.engine.templates.sandbox import Meter, Sandbox
from eaglechat.wire.errors import PromptError

DEADLINE_S = 5.0
"""A long chat is rendered in milliseconds."""
_MOST_INDENT = 16


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


class Template:
    """A chat template, ready to be rendered within limits."""

    def __init__(self, source: str) -> None:
        """Raises PromptError for one that is no valid Jinja."""
        self._sandbox = Sandbox(
            {"tojson": _to_json},
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=_Undefined,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
        )
        self._sandbox.globals.update(raise_exception=_raise, strftime_now=_now)
        self._meter: Meter | None = None
        try:
            self._template = self._sandbox.template(source)
        except (jinja2.TemplateError, SyntaxError) as error:
            raise PromptError(f"the model's chat template is not valid Jinja: {error}") from error
        except Exception as error:  # Jinja's compiler and Python's may give up on it in any way
            reason = f"{type(error).__name__}: {error}"
            raise PromptError(f"the model's chat template cannot be compiled ({reason})") from error

    def render(self, **variables: Any) -> str:
        """The text of the template. It may raise anything, CancelledError too."""
        self._sandbox.meter = self._meter or Meter(DEADLINE_S, lambda: False)
        return self._template.render(variables)

    @contextmanager
    def limits(
        self, cancelled: Callable[[], bool] = lambda: False, deadline_s: float | None = None
    ) -> Iterator[None]:
        """What is rendered inside shares one deadline, and ends when it is cancelled."""
        outer = self._meter
        self._meter = outer or Meter(deadline_s or DEADLINE_S, cancelled)
        try:
            yield
        finally:
            self._meter = outer


def _to_json(value: Any, indent: int | None = None, **_options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent and min(indent, _MOST_INDENT))


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)
