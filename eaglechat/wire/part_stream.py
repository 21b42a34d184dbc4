"""Splits the text of a reply into reasoning, answer and what is neither, while it streams.

A reply is in one mode at a time. A mode has a part and the markers that end it; a marker belongs to
no part. Text that may be the beginning of a marker is held back until that is decided.

Both engines split with it: eaglechat's own, with the modes that it finds in the chat template, and
the one that asks a server, for servers that leave `<think>` in the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eaglechat.wire.records import Part


@dataclass(frozen=True)
class Mode:
    """What one stretch of a reply is, and what ends it."""

    part: Part | None
    """None for a header, whose text is not shown."""
    exits: tuple[tuple[str, str], ...] = ()
    """Pairs of a marker that ends the mode and the name of the mode that follows."""
    otherwise: str | None = None
    """If set, this mode only looks for an exit at its beginning, after any white space. When other
    text stands there, the mode of this name takes it."""
    by_name: Mapping[str, str] = field(default_factory=dict)
    """For a header: its text -> the mode that follows instead of the exit's own."""
    drops_space: bool = False
    """Whether white space at the beginning of the mode is dropped."""


Segment = tuple[Part | None, str]


class PartStream:
    """Splits one reply."""

    def __init__(self, modes: Mapping[str, Mode], start: str) -> None:
        """`start` names the mode in which the reply begins."""
        self._modes = modes
        self._mode = modes[start]
        self._held = ""
        self._header = ""
        self._at_start = True

    @property
    def part(self) -> Part | None:
        """The part that the next character most likely belongs to; None within a header."""
        if self._mode.otherwise is not None:
            return self._modes[self._mode.otherwise].part
        return self._mode.part

    @property
    def is_plain(self) -> bool:
        """Whether the rest of the reply is one part, with no markers to look for."""
        return not self._mode.exits and self._mode.otherwise is None

    @property
    def holds(self) -> bool:
        """Whether some text is held back."""
        return bool(self._held)

    def push(self, text: str) -> list[Segment]:
        """The next text of the reply; returns what is decided now, in order."""
        self._held += text
        return self._decided(final=False)

    def flush(self) -> list[Segment]:
        """The end of the reply; returns what was held back."""
        return self._decided(final=True)

    def leave(self, marker: str) -> None:
        """Continue as if the model had written `marker` here."""
        for literal, following in self._mode.exits:
            if literal == marker:
                self._enter(following)

    def _decided(self, *, final: bool) -> list[Segment]:
        segments: list[Segment] = []
        while self._step(segments, final=final):
            pass
        return joined(segments)

    def _step(self, segments: list[Segment], *, final: bool) -> bool:
        """Decide about the beginning of the held text; False when nothing more can be decided."""
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
        keep = 0 if final else beginning(self._held, [literal for literal, _ in self._mode.exits])
        certain = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        self._take(certain, segments)
        return False

    def _decide(self, *, final: bool) -> bool:
        """In a mode with `otherwise`: follow the exit that stands here, or go to `otherwise`.

        Returns False while the held text may still become an exit.
        """
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


def beginning(text: str, literals: Sequence[str]) -> int:
    """Length of the longest suffix of `text` that is a proper prefix of one of `literals`."""
    longest = max((len(literal) for literal in literals), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(literal.startswith(text[-length:]) for literal in literals):
            return length
    return 0


def joined(segments: list[Segment]) -> list[Segment]:
    """Adjacent segments of the same part joined into one."""
    merged: list[Segment] = []
    for part, text in segments:
        if merged and merged[-1][0] is part:
            merged[-1] = (part, merged[-1][1] + text)
        else:
            merged.append((part, text))
    return merged
