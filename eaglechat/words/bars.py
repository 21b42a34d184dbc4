"""Bars made of block characters, with a resolution of an eighth of a cell."""

from __future__ import annotations

from eaglechat.wire.records import Round

_EIGHTHS_WIDE = " ▏▎▍▌▋▊▉█"
_EIGHTHS_HIGH = " ▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """A line of `width` cells whose left part is filled; `share`, from 0 to 1, says how much."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS_WIDE[rest] if rest else "")).ljust(width)


def column(share: float, row: int, rows: int) -> str:
    """The cell in row `row` (0 is the top) of a column `rows` cells high that is filled from below
    to `share`, from 0 to 1. The lowest cell is never empty."""
    below = (rows - 1 - row) * 8
    eighths = min(max(round(share * rows * 8) - below, 0), 8)
    return _EIGHTHS_HIGH[max(eighths, 1) if below == 0 else eighths]


def round_glyph(round_: Round) -> str:
    """A round in one cell: a bar for the share of the draft's longest path that was accepted, a dot
    if nothing was drafted, a ring if that was to measure plain decoding."""
    if not round_.drafted:
        return "◦" if round_.is_plain_check else "·"
    return _EIGHTHS_HIGH[1 + round(7 * round_.n_accepted / round_.depth)]
