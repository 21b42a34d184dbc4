"""Rows of cells as a table; the first row has the heads of the columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

Row = Sequence[str]


def aligned(rows: Sequence[Row], right: Collection[int] = ()) -> list[str]:
    """The cells below each other, for a terminal; `right`: the columns of figures."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def in_markdown(rows: Sequence[Row], right: Collection[int] = ()) -> list[str]:
    head, *others = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    dashes = ["---:" if place in right else "---" for place in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, dashes, *others)]
