"""Finding a command, a setting or a word of the help by what somebody calls it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Run = Callable[[], object]


@dataclass(frozen=True)
class Entry:
    """Something that can be found."""

    name: str
    sentence: str
    words: tuple[str, ...] = ()
    """What else it is called."""
    mark: str = ""
    """Its key, or a note."""
    run: Run | None = None
    """What choosing it does; None if it is only read."""


def ranked(entries: Iterable[Entry], query: str) -> list[Entry]:
    """The entries that have every word of the query, best first: those with the words in their
    name, then in what else they are called, then in their sentence."""
    words = query.casefold().replace(":", " ").split()
    ranks = [(max(_ranks(entry, words)), entry) for entry in entries if words]
    return [entry for rank, entry in sorted(ranks, key=lambda one: -one[0]) if rank > 0]


def _ranks(entry: Entry, words: list[str]) -> Iterator[float]:
    name = entry.name.casefold()
    in_name, called = _words_of(name), [word.casefold() for word in entry.words]
    yield 1.0 if " ".join(words) == name.replace(":", "") else 0.0
    yield 0.9 * _share(words, in_name, str.__eq__)
    yield 0.8 * _share(words, called, str.__eq__)
    yield 0.7 * _share(words, in_name, str.startswith)
    yield 0.6 * _share(words, [*in_name, *called], str.startswith)
    yield 0.5 * all(word in name for word in words)
    yield 0.3 * _share(words, [*in_name, *called, *_words_of(entry.sentence)], str.startswith)


def _words_of(text: str) -> list[str]:
    """The words of a text, and their parts: `eagle-light` is also `eagle` and `light`."""
    return [
        word
        for whole in re.findall(r"[\w.+#-]+", text.casefold())
        for word in {whole, *re.split(r"[._-]", whole)}
        if word
    ]


def _share(words: list[str], among: list[str], fits: Callable[[str, str], bool]) -> float:
    """1 if each of the words fits one of `among`, else 0."""
    return float(all(any(fits(one, word) for one in among) for word in words))
