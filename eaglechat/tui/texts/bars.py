"""Bars of block characters, in eighths of a cell."""

from __future__ import annotations

from eaglechat.wire.records import Round

_EIGHTHS_WIDE = " ▏▎▍▌▋▊▉█"
_EIGHTHS_HIGH = " ▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """A line of `width` cells, filled from the left to a share of 0 to 1."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS_WIDE[rest] if rest else "")).ljust(width)


def column(share: float, row: int, rows: int) -> str:
    """One cell of a column that is `rows` cells high and filled from below; row 0 is the top. The
    lowest cell is never empty."""
    below = (rows - 1 - row) * 8
    eighths = min(max(round(share * rows * 8) - below, 0), 8)
    return _EIGHTHS_HIGH[max(eighths, 1) if below == 0 else eighths]


def round_glyph(round_: Round) -> str:
    """A round in one cell: the share of the draft's longest path that was accepted, or a dot where
    nothing was drafted."""
    if not round_.drafted:
        return "·"
    return _EIGHTHS_HIGH[1 + round(7 * round_.n_accepted / round_.depth)]
