"""Stretches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def runs(seq_ids: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Stretches of equal sequence ids: (seq_id, first row, row after the last)."""
    first = 0
    for row in range(1, len(seq_ids) + 1):
        if row == len(seq_ids) or seq_ids[row] != seq_ids[first]:
            yield seq_ids[first], first, row
            first = row


def chunks(count: int, size: int) -> list[tuple[int, int]]:
    return [(first, min(first + size, count)) for first in range(0, count, size)]
