"""Jinja for templates out of model files: they reach nothing outside, and they end.

Every turn of a loop and every call looks at the clock and at whether the reply was cancelled.
Whatever could make a text, a list or a number of any size is asked beforehand how large it will
be, so none of them keeps the processor or the memory for long between two such looks.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_eval_context
from jinja2.visitor import NodeTransformer

MOST_CHARACTERS = 1 << 22
"""Of one text, and of the prompt: more than the longest context holds."""
_MOST_SOURCE = 1 << 16
"""The longest template of a model known here has 25,000 characters; 65,536 compile in a second."""
_MOST_WRITTEN = 1 << 25
"""Of all that is written into the prompt, into macros and into blocks."""
_MOST_VALUES = 1 << 17
_MOST_BITS = 1 << 12

# No chat template needs them, and what they make has no bound.
_FILTERS_LEFT_OUT = (
    "batch", "center", "filesizeformat", "pprint", "random", "slice", "striptags", "truncate",
    "urlencode", "urlize", "wordcount", "wordwrap", "xmlattr",
)  # fmt: skip
_METHODS_LEFT_OUT = frozenset(
    {
        "center", "encode", "expandtabs", "format_map", "ljust", "maketrans", "rjust", "to_bytes",
        "translate", "zfill",
    }
)  # fmt: skip
_WIDTHS = re.compile(r"%[^a-zA-Z%]*(\d{5}|\*)")
"""`%99999d`, `%*d`"""
_FIELD = re.compile(r"\{([^{}]*)([{}]?)")
"""A field of the method `format`, and what ends it: `{:99999}`, or `{:{}}` with a field inside."""


_DIGITS = re.compile(r"\d{5}")
_LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


class TooMuchError(SecurityError):
    """The template takes too long, or makes something too large."""


class CancelledError(BaseException):
    """The reply was cancelled while its prompt was rendered; nothing takes it for an answer."""


class Meter:
    """What one rendering may take; `cancelled` is asked at every step."""

    def __init__(self, seconds: float, cancelled: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._cancelled = cancelled
        self._written = 0

    def tick(self) -> None:
        """Raises CancelledError, TooMuchError."""
        if self._cancelled():
            raise CancelledError
        if time.monotonic() > self._end:
            raise TooMuchError(f"it took longer than {self._seconds:g} s")

    def allow_text(self, length: int) -> None:
        """See that a text of this length may be made. Raises TooMuchError."""
        if length > MOST_CHARACTERS:
            raise TooMuchError(f"it makes a text of more than {MOST_CHARACTERS:,} characters")

    def note_written(self, length: int) -> None:
        """So many characters more go into the prompt. Raises TooMuchError."""
        self._written += length
        if self._written > _MOST_WRITTEN:
            raise TooMuchError(f"it writes more than {_MOST_WRITTEN:,} characters")


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja environment that holds the meter of what is rendered now."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, filters: Mapping[str, Callable[..., Any]], **options: Any) -> None:
        """`filters` are added to Jinja's, and watched like them."""
        written = pass_eval_context(lambda _context, value: self._written(value))
        super().__init__(optimized=False, finalize=written, **options)
        self.meter = Meter(0.0, lambda: False)
        del self.globals["lipsum"]
        for name in _FILTERS_LEFT_OUT:
            del self.filters[name]
        self.filters.update(
            filters,
            join=self._join,
            replace=self._replace,
            indent=self._indent,
            format=self._format,
            sum=self._sum,
            list=_few,
            sort=_of_few(self.filters["sort"]),
            unique=_of_few(self.filters["unique"]),
            groupby=_of_few(self.filters["groupby"]),
            title=_of_few(self.filters["title"]),
            round=_round,
            int=_int,
        )
        self.filters.update({name: self._watched(one) for name, one in self.filters.items()})
        self.tests.update({name: self._watched(one) for name, one in self.tests.items()})
        # Those that _Instrumented puts into the template.
        self.filters.update(_each=self._each, _weighed=weighed, _joined=self._join, _arguments=_few)

    def template(self, source: str) -> jinja2.Template:
        """Compile a template. It may raise anything."""
        if len(source) > _MOST_SOURCE:
            raise TooMuchError(f"it is longer than {_MOST_SOURCE:,} characters")
        tree = self.parse(source)
        _Instrumented().visit(tree)
        tree.set_environment(self)
        return self.template_class.from_code(self, self.compile(tree), self.make_globals(None))

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.meter.tick()
        # Jinja wraps the method `format`; the text it is of is that of the method inside.
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        if isinstance(owner, (str, int)):
            return self._call_method(context, owner, function, args, kwargs)
        return self._made(super().call(context, function, *args, **kwargs))

    def _call_method(
        self, context: Context, owner: str | int, method: Any, args: Any, kwargs: Any
    ) -> Any:
        name = method.__name__
        if name in _METHODS_LEFT_OUT:
            raise SecurityError(f"the method {name} is not open to templates")
        if name == "replace":
            return self._replace(owner, *args)
        if name == "join":
            return self._join(args[0], owner)
        if name == "format":
            self._allow_format(str(owner), (*args, *kwargs.values()))
        if name in ("split", "rsplit", "splitlines"):
            _allow_pieces(str(owner), name, *args, **kwargs)
        return self._made(super().call(context, method, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator != "%":
            self._allow_size(operator, left, right)
        elif isinstance(left, str):
            self._allow_format(left, right if isinstance(right, (tuple, dict)) else (right,))
        return self._made(super().call_binop(context, operator, left, right))

    def _allow_size(self, operator: str, left: Any, right: Any) -> None:
        """See that a sum, a product or a power is not too large."""
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * (right if operator == "**" else 1)
            if max(bits, right.bit_length()) > _MOST_BITS:
                raise TooMuchError(f"it makes a number of more than {_MOST_BITS:,} bits")
            return
        sized = [value for value in (left, right) if isinstance(value, (str, list, tuple))]
        times = [value for value in (left, right) if isinstance(value, int)]
        length = sum(map(len, sized)) * (times[0] if times and operator == "*" else 1)
        if sized and isinstance(sized[0], str):
            self.meter.allow_text(length)
        elif length > _MOST_VALUES:
            raise _too_many_values()

    def _allow_format(self, text: str, values: tuple[Any, ...] | dict[str, Any]) -> None:
        """See that a text with places for values is not too large; `str` of each is asked."""
        nested = (":" in field and end == "{" for field, end in _FIELD.findall(text))
        wide = (_DIGITS.search(field) for field, _ in _FIELD.findall(text))
        if _WIDTHS.search(text) or any(nested) or any(wide):
            raise TooMuchError("it formats a text to a width that no prompt has")
        listed = values.values() if isinstance(values, dict) else values
        longest = max((len(_text(value)) for value in listed), default=0)
        self.meter.allow_text(len(text) + (text.count("%") + text.count("{")) * longest)

    def _watched(self, function: Any) -> Callable[..., Any]:
        """A filter or a test that looks at the clock, and at what it made."""

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.meter.tick()
            return self._made(function(*args, **kwargs))

        return watched

    def _made(self, result: Any) -> Any:
        if isinstance(result, str):
            self.meter.allow_text(len(result))
            return result
        return weighed(result)

    def _written(self, value: Any) -> str:
        """What an expression or the text between two of them puts into the prompt."""
        text = _text(value)
        self.meter.allow_text(len(text))
        self.meter.note_written(len(text))
        return text

    def _each(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self.meter.tick()
            yield value

    def _join(self, value: Any, d: Any = "", attribute: Any = None) -> str:
        texts: list[str] = []
        length = 0
        for part in value:
            texts.append(_text(part if attribute is None else self.getitem(part, attribute)))
            length += len(texts[-1]) + len(str(d))
            self.meter.allow_text(length)
            if len(texts) > _MOST_VALUES:
                raise _too_many_values()
        return str(d).join(texts)

    def _replace(self, s: Any, old: Any, new: Any, count: Any = -1) -> str:
        s, old, new = _text(s), _text(old), _text(new)
        self.meter.allow_text(len(s) + s.count(old) * len(new))
        return str(s.replace(old, new, -1 if count is None else count))

    def _indent(self, s: Any, width: Any = 4, first: bool = False, blank: bool = False) -> str:
        indention = width if isinstance(width, str) else " " * min(width, MOST_CHARACTERS)
        head, *lines = f"{_text(s)}\n".splitlines()
        self.meter.allow_text(len(head) + sum(map(len, lines)) + (len(lines) + 1) * len(indention))
        behind = [indention + line if line or blank else line for line in lines]
        return "\n".join([indention + head if first else head, *behind])

    def _sum(self, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
        for part in iterable:
            one = part if attribute is None else self.getitem(part, attribute)
            if not isinstance(one, (int, float)):
                raise TypeError(f"sum takes numbers, not {type(one).__name__}")
            start += one
        return start

    def _format(self, value: Any, *args: Any, **kwargs: Any) -> str:
        self._allow_format(_text(value), kwargs or args)
        return _text(value) % (kwargs or args)


class _Instrumented(NodeTransformer):
    """Puts a filter of ours wherever a template turns, joins, or makes a list."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        if isinstance(node, nodes.For):
            node.iter = _through("_each", node.iter)
        elif isinstance(node, nodes.Concat):
            return _through("_joined", nodes.List(node.nodes, lineno=node.lineno))
        elif isinstance(node, (nodes.List, nodes.Dict)) or _makes_a_tuple(node):
            return _through("_weighed", node)
        elif isinstance(node, nodes.Call) and node.dyn_args is not None:
            # The arguments behind a star: as many as there are characters in a text.
            node.dyn_args = _through("_arguments", node.dyn_args)
        elif isinstance(node, nodes.TemplateData):
            # As a value it is counted each time it is written.
            return nodes.Const(node.data, lineno=node.lineno)
        return node


def _makes_a_tuple(node: nodes.Node) -> bool:
    """Also the arguments that a macro does not name, which Jinja makes a tuple and a dict."""
    if isinstance(node, nodes.Name):
        return node.ctx == "load" and node.name in ("varargs", "kwargs")
    return isinstance(node, nodes.Tuple) and node.ctx == "load"


def _through(name: str, value: Any) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


def weighed(value: Any) -> Any:
    """The value, if it is no larger than it looks. Raises TooMuchError.

    A list of one list twice, and of that twice, and so on, has no bound when it is written or
    compared. Every list is looked at when it is made, so what is inside it is bounded already.
    """
    if not isinstance(value, (list, tuple, dict)):
        return value
    rest: list[Any] = [value]
    n_values, n_characters = 0, 0
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            n_characters += len(one)
        elif isinstance(one, Namespace):
            raise TooMuchError("it puts a namespace into a list")
        elif isinstance(one, (list, tuple, dict)):
            n_values += len(one)
            if n_values > _MOST_VALUES or n_characters > MOST_CHARACTERS:
                raise _too_many_values()
            rest += one.values() if isinstance(one, dict) else one
    return value


def _few(value: Iterable[Any]) -> list[Any]:
    """A list of what is turned over, as long as there is not too much. Raises TooMuchError."""
    found = list(islice(value, _MOST_VALUES + 1))
    if len(found) > _MOST_VALUES:
        raise _too_many_values()
    return found


def _of_few(function: Any) -> Callable[..., Any]:
    """A filter that makes a list of its own of what it is given, or of the words of a text."""
    place = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        given = args[place]
        few = _few(given)
        return function(
            *args[:place], given if isinstance(given, str) else few, *args[place + 1 :], **kwargs
        )

    return limited


def _allow_pieces(
    text: str, method: str, sep: Any = None, maxsplit: Any = -1, *_: Any, **__: Any
) -> None:
    """See that a text is not cut into too many pieces. Raises TooMuchError."""
    if isinstance(maxsplit, int) and 0 <= maxsplit < _MOST_VALUES and method != "splitlines":
        return
    at_most = text.count(sep) if isinstance(sep, str) and sep else len(text)
    if at_most > _MOST_VALUES and method == "splitlines":
        at_most = sum(map(text.count, _LINE_ENDS))
    elif at_most > _MOST_VALUES and not (isinstance(sep, str) and sep):
        at_most = sum(map(str.isspace, text))
    if at_most > _MOST_VALUES:
        raise _too_many_values()


def _text(value: Any) -> str:
    """A value as it is written: a namespace shows all it holds, so it is not."""
    if isinstance(value, Namespace):
        raise TooMuchError("it writes a namespace")
    return str(value)


def _too_many_values() -> TooMuchError:
    return TooMuchError(f"it makes a list of more than {_MOST_VALUES:,} values")


def _round(value: Any, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > 100:
        raise TooMuchError("it rounds to more than 100 digits")
    return jinja2.filters.do_round(value, precision, method)  # type: ignore[arg-type]


def _int(value: Any, default: int = 0, base: int = 10) -> int:
    if isinstance(value, str) and len(value) > _MOST_BITS:
        return default
    return jinja2.filters.do_int(value, default, base)
