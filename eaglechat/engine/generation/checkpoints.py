"""Saved states of a recurrent target. It cannot be rewound, so a chat goes back to one of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Checkpoint:
    """The state behind the first `length` tokens that the target holds."""

    length: int
    state: bytes
    """The recurrent part; keys and values of attention layers stay in the KV cache."""
    drafter: object
    """What the draft model needs to go on there; None if it had not seen all the tokens."""


class Checkpoints:
    """The checkpoints of one conversation, up to a number of bytes; the oldest make room."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: list[Checkpoint] = []

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def n_bytes(self) -> int:
        return sum(len(checkpoint.state) for checkpoint in self._kept)

    def save(self, length: int, size: int, drafter: object, read: Callable[[], bytes]) -> None:
        """Keep the state behind `length` tokens: `size` bytes, which `read` returns. A checkpoint
        of the same length is replaced only if it has nothing for the draft model and this one
        has."""
        kept = next((one for one in self._kept if one.length == length), None)
        if size > self._most_bytes or (kept and (kept.drafter is not None or drafter is None)):
            return
        if kept:
            self._kept.remove(kept)
        while self.n_bytes + size > self._most_bytes:
            del self._kept[0]
        state = read()
        if state:
            self._kept.append(Checkpoint(length, state, drafter))

    def up_to(self, length: int) -> list[Checkpoint]:
        """The checkpoints of at most `length` tokens, longest first."""
        fitting = [one for one in self._kept if one.length <= length]
        return sorted(fitting, key=lambda one: one.length, reverse=True)

    def cut(self, length: int) -> None:
        """The target no longer holds the tokens from `length` on."""
        self._kept = [one for one in self._kept if one.length <= length]
