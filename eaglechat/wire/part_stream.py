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
    def __init__(self, modes: Mapping[str, Mode], start: str) -> None:
        """`start` names the mode in which the reply begins."""
        self._modes = modes
        self._mode, self._held, self._header = modes[start], "", ""
        self._drops_space = self._mode.drops_space

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
        return bool(self._held)

    def push(self, text: str) -> list[Segment]:
        """The next text of the reply; returns what is decided now, in order."""
        self._held += text
        return self._decided(final=False)

    def flush(self) -> list[Segment]:
        """The end of the reply; returns what was held back."""
        return self._decided(final=True)

    def _decided(self, *, final: bool) -> list[Segment]:
        segments: list[Segment] = []
        while self._step(segments, final=final):
            pass
        return joined(segments)

    def _step(self, segments: list[Segment], *, final: bool) -> bool:
        """Decide about the beginning of the held text; False when nothing more can be decided."""
        mode, held = self._mode, self._held
        if mode.otherwise is not None:
            text = held.lstrip()
            here = [exit_ for exit_ in mode.exits if text.startswith(exit_[0])]
            if here:
                self._enter(here[0][1], text[len(here[0][0]) :])
            elif not held or (not final and any(one.startswith(text) for one, _ in mode.exits)):
                return False
            else:
                self._enter(mode.otherwise, held)
            return True
        if self._drops_space:
            held = self._held = held.lstrip()
        if not held:
            return False
        self._drops_space = False
        found = [(held.find(exit_[0]), exit_) for exit_ in mode.exits]
        # Of markers that begin at one place, the longest.
        ends = [(at, -len(exit_[0]), exit_) for at, exit_ in found if at >= 0]
        if ends:
            at, _, (marker, following) = min(ends)
        else:
            at = len(held) if final else len(held) - beginning(held, [one for one, _ in mode.exits])
        if mode.part is None:
            self._header += held[:at]
        elif at:
            segments.append((mode.part, held[:at]))
        if not ends:
            self._held = held[at:]
            return False
        self._enter(mode.by_name.get(self._header.strip(), following), held[at + len(marker) :])
        return True

    def _enter(self, name: str, held: str) -> None:
        self._mode, self._held = self._modes[name], held
        self._header, self._drops_space = "", self._mode.drops_space


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
