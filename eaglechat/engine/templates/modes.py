"""Divides a reply into reasoning, answer and what is neither, as its text streams.

A reply is always in one mode. A mode has a part, and markers that end it; markers belong to no
part. Text that may be the beginning of a marker waits until it is certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eaglechat.wire.records import Part


@dataclass(frozen=True)
class Mode:
    """A stretch of a reply."""

    part: Part | None
    """None: a header, whose text is not shown."""
    exits: tuple[tuple[str, str], ...] = ()
    """Markers that end the mode, and the names of the modes they lead to."""
    otherwise: str | None = None
    """The mode that follows unless an exit stands here, white space before it aside; then the mode
    is over with the first other character."""
    by_name: Mapping[str, str] = field(default_factory=dict)
    """For a header: the modes its text may name instead of the one the exit leads to."""
    drops_space: bool = False
    """White space at its beginning belongs to the marker before."""


Segment = tuple[Part | None, str]


class PartStream:
    """Follows one reply through its modes."""

    def __init__(self, modes: Mapping[str, Mode], start: str) -> None:
        """`start` names the mode in which the reply begins."""
        self._modes = modes
        self._mode = modes[start]
        self._held = ""
        self._header = ""
        self._at_start = True

    @property
    def part(self) -> Part | None:
        """The part that the next character most likely belongs to."""
        if self._mode.otherwise is not None:
            return self._modes[self._mode.otherwise].part
        return self._mode.part

    @property
    def is_plain(self) -> bool:
        """Whether all that comes is one part, without markers."""
        return not self._mode.exits and self._mode.otherwise is None

    @property
    def holds(self) -> bool:
        """Whether some text is not certain yet."""
        return bool(self._held)

    def push(self, text: str) -> list[Segment]:
        """The stretches of text that became certain, in order."""
        self._held += text
        segments: list[Segment] = []
        while self._step(segments, final=False):
            pass
        return joined(segments)

    def flush(self) -> list[Segment]:
        """What was held back, when nothing follows."""
        segments: list[Segment] = []
        while self._step(segments, final=True):
            pass
        return joined(segments)

    def leave(self, marker: str) -> None:
        """Go on as if `marker` had been written here."""
        for literal, following in self._mode.exits:
            if literal == marker:
                self._enter(following)

    def _step(self, segments: list[Segment], *, final: bool) -> bool:
        """Take a stretch off what is held; False when nothing more is certain."""
        if self._mode.otherwise is not None:
            return self._decide(final=final)
        if self._mode.drops_space and self._at_start:
            self._held = self._held.lstrip()
        if not self._held:
            return False
        self._at_start = False
        found = [(self._held.find(exit_[0]), exit_) for exit_ in self._mode.exits]
        ends = [(at, -len(exit_[0]), exit_) for at, exit_ in found if at >= 0]
        if ends:
            at, _, (literal, following) = min(ends)
            self._take(self._held[:at], segments)
            self._held = self._held[at + len(literal) :]
            self._enter(self._mode.by_name.get(self._header.strip(), following))
            return True
        keep = 0 if final else _beginning(self._held, [literal for literal, _ in self._mode.exits])
        certain = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        self._take(certain, segments)
        return False

    def _decide(self, *, final: bool) -> bool:
        """Whether an exit stands here; what is held stays, but for the exit."""
        assert self._mode.otherwise is not None
        rest = self._held.lstrip()
        for literal, following in self._mode.exits:
            if rest.startswith(literal):
                self._held = rest[len(literal) :]
                self._enter(following)
                return True
        undecided = any(literal.startswith(rest) for literal, _ in self._mode.exits)
        if undecided and not final:
            return False
        if not self._held:
            return False
        self._enter(self._mode.otherwise)
        return True

    def _take(self, text: str, segments: list[Segment]) -> None:
        if self._mode.part is None:
            self._header += text
        elif text:
            segments.append((self._mode.part, text))

    def _enter(self, name: str) -> None:
        self._mode = self._modes[name]
        self._header = ""
        self._at_start = True


def _beginning(text: str, literals: list[str]) -> int:
    """Length of the longest end of `text` that begins one of `literals`."""
    longest = max((len(literal) for literal in literals), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(literal.startswith(text[-length:]) for literal in literals):
            return length
    return 0


def joined(segments: list[Segment]) -> list[Segment]:
    """Neighbours of the same part as one."""
    merged: list[Segment] = []
    for part, text in segments:
        if merged and merged[-1][0] is part:
            merged[-1] = (part, merged[-1][1] + text)
        else:
            merged.append((part, text))
    return merged
