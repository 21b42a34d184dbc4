"""Reasoning that a server leaves in the text: `<think>` ... `</think>` at the beginning of a reply,
as vLLM, Ollama and others write it unless they are told to send it apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from eaglechat.links.http.servers.base import Written
from eaglechat.wire.records import Part

_OPEN, _CLOSE = "<think>", "</think>"


class _At(Enum):
    BEGINNING = auto()
    THOUGHT = auto()
    GAP = auto()
    ANSWER = auto()


class ThoughtSplitter:
    """Takes one reply apart as it comes. What may be a tag, or the space before one, is held back
    until that is clear."""

    def __init__(self) -> None:
        self._at = _At.BEGINNING
        self._held = ""
        self._has_thought = False

    def split(self, written: Iterable[Written]) -> list[Written]:
        """What is clear now of what came."""
        return [piece for text, part in written for piece in self._take(text, part)]

    def rest(self) -> list[Written]:
        """What is held when nothing more comes."""
        left, self._held = self._held, ""
        if not left or self._at is _At.GAP:
            return []
        return [(left, Part.REASONING if self._at is _At.THOUGHT else Part.ANSWER)]

    def _take(self, text: str, part: Part) -> Iterator[Written]:
        if part is not Part.ANSWER or self._at is _At.ANSWER:
            # This server takes its replies apart itself, or the thought is over.
            yield from self.rest()
            self._at = _At.ANSWER
            yield text, part
            return
        self._held += text
        if self._at is _At.BEGINNING and not self._begins():
            return
        if self._at is _At.THOUGHT:
            yield from self._thought()
        if self._at is _At.GAP:
            self._held = self._held.lstrip()
            if self._held:
                self._at = _At.ANSWER
        if self._at is _At.ANSWER:
            yield from self.rest()

    def _begins(self) -> bool:
        """Whether it is clear what the reply begins with."""
        begun = self._held.lstrip()
        if begun.startswith(_OPEN):
            self._at, self._held = _At.THOUGHT, begun.removeprefix(_OPEN)
        elif not _OPEN.startswith(begun):
            self._at = _At.ANSWER
        return self._at is not _At.BEGINNING

    def _thought(self) -> Iterator[Written]:
        if not self._has_thought:
            self._held = self._held.lstrip()
        thought, closed, behind = self._held.partition(_CLOSE)
        if closed:
            thought, self._held, self._at = thought.rstrip(), behind, _At.GAP
        else:
            clear = self._clear_until()
            thought, self._held = thought[:clear], thought[clear:]
        if thought:
            self._has_thought = True
            yield thought, Part.REASONING

    def _clear_until(self) -> int:
        """Where the end of the thought may begin."""
        held = self._held
        lengths = range(len(_CLOSE) - 1, 0, -1)
        begun = next((n for n in lengths if held.endswith(_CLOSE[:n])), 0)
        return len(held[: len(held) - begun].rstrip())
