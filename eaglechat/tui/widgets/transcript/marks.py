"""The Markdown marks in a line that grows: which characters begin and end code, strong text and
emphasis."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

STRONG, EMPHASIS, CODE = "strong", "emphasis", "code"
REACH = 2000
"""Marks farther apart than this, in characters, are no pair, and a longer run of them is none. It
bounds the open part of a line."""
_RUNS = re.compile(r"`+|\*+")
_WORD = re.compile(r"\w")


class Mark(NamedTuple):
    """Characters that begin or end a format."""

    start: int
    stop: int
    format: str
    opens: bool


def marks_of(source: str, start: int, before: str, is_over: bool) -> tuple[list[Mark], int]:
    """The marks in a line from `start` on, where `before` is the character before it, and up to
    where no text that follows can change them. If the line still grows, what its last marks begin
    is taken to be closed later.

    One pass over runs of marks, each of which is stacked at most once: a model in a loop writes
    thousands that are never closed.
    """
    runs = [found.span() for found in _RUNS.finditer(source, start)]
    closing_ticks = _closing_ticks(source, runs)
    end = len(source)
    marks: list[Mark] = []
    opened = _Opened()
    settled, at = end, start
    for run in runs:
        is_rest = run[0] == start and source[start] == before
        if run[0] < at or is_rest or run[1] - run[0] > REACH:
            continue
        opened.forget(run[0] - REACH)
        is_tick, at = source[run[0]] == "`", run[1]
        if is_tick:
            to_end = (end, end) if not is_over and end - run[0] <= REACH else None
            if closed := closing_ticks.get(run[0], to_end):
                at = closed[1]
                marks += [Mark(*run, CODE, True), Mark(*closed, CODE, False)]
        if at == end:
            # It may grow, and mean something else.
            settled = opened.start(run[0])
        if not is_tick:
            previous = source[run[0] - 1] if run[0] > start else before
            following = source[run[1]] if run[1] < end else "" if is_over else "growing"
            marks += opened.asterisks(*run, previous or " ", following or " ")
    opened.forget(end - REACH)
    return sorted(marks if is_over else [*marks, *opened.marks]), min(settled, opened.start(end))


def _closing_ticks(source: str, runs: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """By the start of each run of backticks, the next one of the same length within reach."""
    closing: dict[int, tuple[int, int]] = {}
    next_of: dict[int, tuple[int, int]] = {}
    for begin, end in reversed(runs):
        if source[begin] == "`":
            after = next_of.get(end - begin)
            if after and after[0] - begin <= REACH:
                closing[begin] = after
            next_of[end - begin] = begin, end
    return closing


class _Opened:
    """The asterisks that may still be closed, the last ones first."""

    def __init__(self) -> None:
        self.marks: deque[Mark] = deque()
        self._count: Counter[str] = Counter()

    def start(self, otherwise: int) -> int:
        return self.marks[0].start if self.marks else otherwise

    def forget(self, before: int) -> None:
        """Drop what starts before a character, and the rest of its run."""
        stop = -1
        while self.marks and (self.marks[0].start < before or self.marks[0].start == stop):
            self._count[self.marks[0].format] -= 1
            stop = self.marks.popleft().stop

    def asterisks(self, start: int, stop: int, previous: str, following: str) -> list[Mark]:
        """Take a run of asterisks between two characters. Returns the marks that it completes."""
        completed: list[Mark] = []
        if not previous.isspace():
            while format := self._closed_by(stop - start):
                opening = self._pop(format)
                size = opening.stop - opening.start
                completed += [opening, Mark(start, start + size, format, False)]
                start, previous = start + size, "*"
        if not following.isspace() and stop - start <= 3:
            for format in _opened_by(stop - start, previous):
                size = 2 if format == STRONG else 1
                self.marks.append(Mark(start, start + size, format, True))
                self._count[format] += 1
                start += size
        return completed

    def _closed_by(self, size: int) -> str:
        """The open format that the first of `size` asterisks end; empty if they end none."""
        is_in_emphasis = bool(self.marks) and self.marks[-1].format == EMPHASIS
        if size >= 2 and self._count[STRONG] and not (size > 2 and is_in_emphasis):
            return STRONG
        return EMPHASIS if size and self._count[EMPHASIS] else ""

    def _pop(self, format: str) -> Mark:
        """The last mark that opens the format; those after it are none."""
        while True:
            mark = self.marks.pop()
            self._count[mark.format] -= 1
            if mark.format == format:
                return mark


def _opened_by(size: int, previous: str) -> list[str]:
    """The formats that up to 3 asterisks begin after this character."""
    strong = [STRONG] if size >= 2 else []
    has_emphasis = size == 3 or (size == 1 and previous != "*" and not _WORD.match(previous))
    return [*strong, EMPHASIS] if has_emphasis else strong
