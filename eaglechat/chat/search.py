"""Finding words: what was typed as a query, where it stands in a text, and every place of a text
in the open chat.

A query is words and "phrases", all of which must stand in a text; case and accents do not matter.
A word of three letters or more also finds longer words that begin with it. East Asian scripts have
no spaces: each of their characters counts as a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from eaglechat.chat.turns import Question, Turn, TurnId
from eaglechat.chat.writing.question import shown

_LEAST_BEGINNING = 3
"""Letters from which a word also finds longer ones."""
_EAST_ASIAN = re.compile(
    "[\u1100-\u11ff\u2e80-\u303f\u3040-\u30ff\u3100-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_WORD = re.compile(r"[^\W_]+")
_TYPED = re.compile(r'"([^"]*)("?)|([^\s"]+)')
_BEFORE, _EXCERPT = 24, 120
"""Characters of an excerpt before the first hit, and in all."""


@dataclass(frozen=True)
class Query:
    """Terms that must all be found, each a word or words that follow each other."""

    match: str
    """The query for an index of `plain_words`, in the language of SQLite's FTS5; empty if it has no
    term."""
    patterns: tuple[str, ...]
    """What each term finds in a folded text, as a regular expression."""

    def is_in(self, text: str) -> bool:
        plain = folded(text)
        return all(re.search(pattern, plain) for pattern in self.patterns)

    def marks(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each place in a text where a term stands, in order."""
        if not self.patterns:
            return []
        return [found.span() for found in re.finditer("|".join(self.patterns), folded(text))]


def parse(typed: str) -> Query:
    """The query that was typed. Any text makes one; without words it has no terms, and finds
    nothing."""
    matches, patterns = [], []
    for found in _TYPED.finditer(typed):
        phrase, closed, word = found.groups()
        words = _words(folded(phrase if word is None else word))
        if words:
            is_open = word is not None or not closed
            is_beginning = is_open and len(words[-1]) >= _LEAST_BEGINNING
            matches.append(f'"{" ".join(words)}"{" *" if is_beginning else ""}')
            patterns.append(_pattern(words, is_beginning=is_beginning))
    return Query(" AND ".join(matches), tuple(patterns))


def _pattern(words: Sequence[str], *, is_beginning: bool) -> str:
    """Finds these folded words, of which the last one may be longer if `is_beginning`."""
    first, last = words[0], words[-1]
    # Not before the word: a regular expression that begins with letters is faster.
    alone = "" if _EAST_ASIAN.match(first) else rf"(?<![^\W_]{re.escape(first)})"
    is_open = is_beginning or _EAST_ASIAN.match(last)
    rest = ""
    for one, other in pairwise(words):
        is_dense = _EAST_ASIAN.match(one) or _EAST_ASIAN.match(other)
        rest += (r"[\W_]*" if is_dense else r"[\W_]+") + re.escape(other)
    return re.escape(first) + alone + rest + ("" if is_open else r"(?![^\W_])")


def plain_words(text: str) -> str:
    """The words of a text as an index takes them: folded, with spaces between them."""
    return " ".join(_words(folded(text)))


def _words(plain: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(_EAST_ASIAN.sub(r" \g<0> ", plain)))


def excerpt(text: str, query: Query) -> str:
    """The words around the first hit in a text; the beginning of the text if there is no hit."""
    places = query.marks(text)
    start = max(0, places[0][0] - _BEFORE) if places else 0
    if start:
        start = text.find(" ", start, places[0][0]) + 1 or start
    cut = " ".join(text[start : start + _EXCERPT].split())
    return ("…" if start else "") + cut + ("…" if len(text) > start + _EXCERPT else "")


@dataclass(frozen=True)
class Spot:
    """A place in a turn."""

    turn: TurnId
    span: tuple[int, int] | None
    """Start and end in its text; None: all of it."""
    in_reasoning: bool = False


def first_spot(turn: Turn, typed: str) -> Spot:
    """The first place of a query that was found in this turn."""
    query = parse(typed)
    in_reasoning = not query.is_in(turn.text) and query.is_in(turn.reasoning)
    marks = query.marks(turn.reasoning if in_reasoning else _shown(turn))
    return Spot(turn.id, marks[0] if marks else None, in_reasoning)


def _shown(turn: Turn) -> str:
    return shown(turn.parts) if isinstance(turn, Question) else turn.text


def spots(path: Sequence[Turn], typed: str, known: dict[str, str]) -> list[Spot]:
    """Every place where `typed`, taken literally, stands in these turns, in reading order. Case
    and accents do not matter.

    `known` keeps the folded texts from one call to the next: folding takes longer than searching.
    """
    wanted = folded(typed)
    if not wanted.strip():
        return []
    found = []
    for turn in path:
        for text, in_reasoning in ((turn.reasoning, True), (_shown(turn), False)):
            if text not in known:
                known[text] = folded(text)
            found += [Spot(turn.id, span, in_reasoning) for span in places(wanted, known[text])]
    return found


def places(wanted: str, plain: str) -> list[tuple[int, int]]:
    """Start and end of each place of `wanted` in `plain`, both folded."""
    return [found.span() for found in re.finditer(re.escape(wanted), plain)]


class _Folding(dict[int, int]):
    """Maps a character to its base letter in lower case: one for one, so that places in a folded
    text are places in the text."""

    def __missing__(self, code: int) -> int:
        base = unicodedata.normalize("NFD", chr(code))[0].lower()
        self[code] = ord(base) if len(base) == 1 else code
        return self[code]


_FOLDING = _Folding()


def folded(text: str) -> str:
    """The text without case and accents, of the same length."""
    return text.lower() if text.isascii() else text.translate(_FOLDING)
