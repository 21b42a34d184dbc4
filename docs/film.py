"""Pictures of a terminal as SVG: one screen, or an animation of many.

An animation holds each version of a row once, with the times in which it is visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from textual.strip import Strip

CELL, LINE, BASELINE = 8.4, 18.0, 13.0
_EDGE = 10.0
_FONT = "ui-monospace,'SF Mono',Menlo,'DejaVu Sans Mono',Consolas,monospace"

BLOCKS = {
    **{chr(0x2580 + n): (0.0, 1 - n / 8, 1.0, n / 8) for n in range(1, 9)},
    **{chr(0x2588 + n): (0.0, 0.0, 1 - n / 8, 1.0) for n in range(1, 8)},
    "▀": (0.0, 0.0, 1.0, 0.5),
    "▐": (0.5, 0.0, 0.5, 1.0),
    "▔": (0.0, 0.0, 1.0, 0.125),
    "▕": (0.875, 0.0, 0.125, 1.0),
}
"""Block characters: left, top, width and height in a cell."""
_BLOCKS_OR_WORDS = re.compile(
    f"[{''.join(BLOCKS)}]+|[^\\s{''.join(BLOCKS)}]+(?: [^\\s{''.join(BLOCKS)}]+)*"
)
_SAME = re.compile(r"(.)\1*")

Row = str
"""A row of the screen as SVG, at the height 0."""


@dataclass(frozen=True)
class Frame:
    """What was on the screen from a time on, in seconds."""

    at: float
    rows: tuple[Row, ...]


def rows_of(strips: Iterable[Strip], background: str) -> tuple[Row, ...]:
    return tuple("".join(_runs(strip, background)) for strip in strips)


def still(rows: tuple[Row, ...], columns: int, background: str) -> str:
    return film([Frame(0.0, rows)], columns, background, 0.0)


def film(frames: list[Frame], columns: int, background: str, end: float) -> str:
    """The frames as an animation that repeats every `end` seconds."""
    width, height = columns * CELL + 2 * _EDGE, len(frames[0].rows) * LINE + 2 * _EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" '
        f'font-family="{_FONT}" font-size="14">',
        "<style>rect{shape-rendering:crispEdges}text{white-space:pre}.b{font-weight:bold}.i{font-style:italic}"
        ".u{text-decoration:underline}.s{text-decoration:line-through}</style>",
        f'<rect width="100%" height="100%" rx="8" fill="{background}"/>',
        f'<g transform="translate({_EDGE:.0f} {_EDGE:.0f})">',
    ]
    for line in range(len(frames[0].rows)):
        for row, spans in _versions(frames, line, end).items():
            shown = "" if len(frames) == 1 else _shown(spans, end)
            parts.append(f'<g transform="translate(0 {line * LINE:.0f})">{row}{shown}</g>')
    return "\n".join([*parts, "</g></svg>\n"])


def _versions(frames: list[Frame], line: int, end: float) -> dict[Row, list[tuple[float, float]]]:
    """The versions of a line, each with the times, in seconds, from and to which it was shown."""
    spans: dict[Row, list[tuple[float, float]]] = {}
    ends = [frame.at for frame in frames[1:]] + [end]
    for frame, until in zip(frames, ends, strict=True):
        times = spans.setdefault(frame.rows[line], [])
        if times and times[-1][1] == frame.at:
            times[-1] = (times[-1][0], until)
        else:
            times.append((frame.at, until))
    return {row: times for row, times in spans.items() if row}


def _shown(spans: list[tuple[float, float]], end: float) -> str:
    """The animation of a version of a row; empty if it is always visible."""
    if spans == [(0.0, end)]:
        return ""
    changes = {0.0: False}
    for start, until in spans:
        changes |= {start: True, until: False}
    times = ";".join(f"{min(time / end, 1):.4f}" for time in changes)
    values = ";".join("visible" if seen else "hidden" for seen in changes.values())
    return (
        f'<animate attributeName="visibility" dur="{end:.2f}s" repeatCount="indefinite" '
        f'calcMode="discrete" keyTimes="{times}" values="{values}"/>'
    )


def _runs(strip: Strip, background: str) -> Iterator[str]:
    column = 0
    texts: list[str] = []
    for segment in strip.simplify():
        style = segment.style or Style()
        cells = cell_len(segment.text)
        colour, behind = _colours(style, background)
        x, width = column * CELL, cells * CELL
        if behind != background:
            yield f'<rect x="{x:.1f}" width="{width:.1f}" height="{LINE:.0f}" fill="{behind}"/>'
        texts += _pieces(segment.text, x, colour, _kind(style))
        column += cells
    yield from texts


def _pieces(text: str, x: float, colour: str, kind: str) -> Iterator[str]:
    """Words as text; blocks as rectangles, because fonts leave gaps between theirs."""
    for piece in _BLOCKS_OR_WORDS.finditer(text):
        left = x + cell_len(text[: piece.start()]) * CELL
        if piece[0][0] in BLOCKS:
            for same in _SAME.finditer(piece[0]):
                at = left + same.start() * CELL
                yield from _blocks(BLOCKS[same[1]], at, len(same[0]), colour)
        else:
            yield (
                f'<text x="{left:.1f}" y="{BASELINE:.0f}" '
                f'textLength="{cell_len(piece[0]) * CELL:.1f}" lengthAdjust="spacingAndGlyphs" '
                f'fill="{colour}"{kind}>{escape(piece[0], quote=False)}</text>'
            )


def _blocks(
    part: tuple[float, float, float, float], x: float, count: int, colour: str
) -> Iterator[str]:
    """`count` cells with the same part filled, as one rectangle if they touch."""
    left, top, width, height = part
    widths = [count * CELL] if width == 1 else [width * CELL] * count
    for number, wide in enumerate(widths):
        yield (
            f'<rect x="{x + (number + left) * CELL:.2f}" y="{top * LINE:.2f}" '
            f'width="{wide:.2f}" height="{height * LINE:.2f}" fill="{colour}"/>'
        )


def _kind(style: Style) -> str:
    marks = {"b": style.bold, "i": style.italic, "u": style.underline, "s": style.strike}
    named = " ".join(mark for mark, is_on in marks.items() if is_on)
    return f' class="{named}"' if named else ""


def _colours(style: Style, background: str) -> tuple[str, str]:
    front, behind = _hex(style.color, "#e0e0e0"), _hex(style.bgcolor, background)
    if style.reverse:
        front, behind = behind, front
    if style.dim:
        front = _mixed(front, behind)
    return front, behind


def _hex(colour: Color | None, otherwise: str) -> str:
    if colour is None or colour.is_default:
        return otherwise
    return colour.get_truecolor().hex


def _mixed(one: str, other: str) -> str:
    pairs = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{(a + b) // 2:02x}" for a, b in pairs)
