"""What someone types to find a chat: words, which match at their beginning, and "phrases".

The same cutting into words serves the index, the question to it, and the marks in a text. East
Asian scripts have no spaces: each of their characters counts as a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

_LEAST_BEGINNING, _INDEXED_BEGINNINGS = 3, 4
"""Letters from which a word matches longer ones, and up to which the index keeps beginnings."""
_EAST_ASIAN = re.compile(
    "[\u1100-\u11ff\u2e80-\u303f\u3040-\u30ff\u3100-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_WORD = re.compile(r"[^\W_]+")
_TYPED = re.compile(r'"([^"]*)("?)|([^\s"]+)')
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")


def prepared(text: str) -> str:
    """A text as it is indexed: every East Asian character a word, and nothing that is no text."""
    if text.isascii() and "\x00" not in text:
        return text
    return _NO_TEXT.sub(" ", _EAST_ASIAN.sub(r" \g<0> ", text))


Complete = Callable[[str], Sequence[str] | None]
"""The words of the index that begin so; None where there are too many."""


@dataclass(frozen=True)
class Term:
    """Words that stand in a row; the last one may go on where the term is a beginning."""

    text: str
    is_beginning: bool

    def match(self, complete: Complete) -> str:
        """The term in the language of FTS5."""
        text = prepared(self.text)
        if not self.is_beginning:
            return _quoted(text)
        last = [*_WORD.finditer(text)][-1]
        if len(last[0]) <= _INDEXED_BEGINNINGS or (longer := complete(folded(last[0]))) is None:
            return _quoted(text) + "*"
        before = text[: last.start()]
        return "(" + " OR ".join(_quoted(before + word) for word in (last[0], *longer)) + ")"

    @property
    def pattern(self) -> str:
        """What it finds in a folded text, as a regular expression."""
        words: list[str] = _WORD.findall(prepared(folded(self.text)))
        start = "" if _EAST_ASIAN.match(words[0]) else r"(?<![^\W_])"
        is_open = self.is_beginning or _EAST_ASIAN.match(words[-1])
        between = (
            r"[\W_]*" if _EAST_ASIAN.match(one) or _EAST_ASIAN.match(other) else r"[\W_]+"
            for one, other in pairwise(words)
        )
        middle = re.escape(words[0]) + "".join(
            gap + re.escape(word) for gap, word in zip(between, words[1:], strict=True)
        )
        return start + middle + ("" if is_open else r"(?![^\W_])")


@dataclass(frozen=True)
class Query:
    """All terms must be found in a turn."""

    terms: tuple[Term, ...]

    def match(self, column: str | None, complete: Complete) -> str:
        """The question to the index, of one column or all."""
        terms = " AND ".join(term.match(complete) for term in self.terms)
        return f"{{{column}}} : ({terms})" if column else terms

    def is_in(self, text: str) -> bool:
        """Whether all terms stand in a text."""
        plain = folded(text)
        return all(re.search(term.pattern, plain) for term in self.terms)

    def marks(self, text: str) -> list[tuple[int, int]]:
        """Where its terms stand in a text: start and end of each place, in order."""
        if not self.terms:
            return []
        return [match.span() for match in self._pattern.finditer(folded(text))]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(term.pattern for term in self.terms))


def parse(typed: str) -> Query:
    """The query behind what was typed, whatever that is."""
    return Query(tuple(_terms(typed)))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _terms(typed: str) -> Iterator[Term]:
    for found in _TYPED.finditer(_NO_TEXT.sub(" ", typed)):
        phrase, closed, word = found.groups()
        text = phrase if word is None else word
        words = _WORD.findall(prepared(text))
        if words:
            is_open = word is not None or not closed
            yield Term(text, is_open and len(words[-1]) >= _LEAST_BEGINNING)


class _Folding(dict[int, int]):
    """Characters without case and accents, one for one, so that places stay what they are."""

    def __missing__(self, code: int) -> int:
        base = unicodedata.normalize("NFD", chr(code))[0].lower()
        self[code] = ord(base) if len(base) == 1 else code
        return self[code]


_FOLDING = _Folding()


def folded(text: str) -> str:
    """A text as words are compared: without case and accents, and exactly as long."""
    return text.lower() if text.isascii() else text.translate(_FOLDING)
