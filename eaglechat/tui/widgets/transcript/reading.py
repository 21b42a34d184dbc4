"""Markdown as rows of a reply. Pure, so that a thread can do it: a long reply takes a while."""

from __future__ import annotations

import io
from dataclasses import dataclass

from markdown_it import MarkdownIt
from rich.console import Console
from rich.markdown import Markdown
from rich.segment import Segment
from rich.style import Style
from rich.theme import Theme

from eaglechat.tui.widgets.transcript.wrapping import Piece, Row, Wrapping


@dataclass(frozen=True)
class ReadingLook:
    """All that the rows depend on besides the text."""

    width: int
    dark: bool
    base: Style
    heading: Style
    code: Style
    faint: Style


@dataclass(frozen=True)
class Rendered:
    """Rows of a rendered text. What they show is what they copy, but for the note below."""

    look: ReadingLook
    rows: list[Row]
    text: str


def render(text: str, note: str, look: ReadingLook) -> Rendered:
    """Render neutralised Markdown. What is not Markdown (HTML) stays as it is written."""
    # Links stay text: a model's reply does not get to make clickable ones.
    markdown = Markdown(
        text, code_theme="ansi_dark" if look.dark else "ansi_light", hyperlinks=False
    )
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    markdown.parsed = parser.parse(text)
    console = Console(
        file=io.StringIO(), width=look.width, legacy_windows=False, theme=_rich_theme(look)
    )
    rows = [Row(0, 0)]
    for number, line in enumerate(console.render_lines(markdown, pad=False)):
        rows[number:] = [_row(number, line, look.base)]
    copied = "\n".join(row.text.rstrip() for row in rows)
    return Rendered(look, rows + _note_rows(note, rows[-1], look.width), copied)


def _row(number: int, line: list[Segment], base: Style) -> Row:
    row = Row(number, 0)
    stop = 0
    for text, style, _ in line:
        start, stop = stop, stop + len(text)
        row.pieces.append(Piece(text, base + style if style else base, start, stop))
    return row


def _note_rows(note: str, last: Row, width: int) -> list[Row]:
    """Rows of a note, placed at the end of the copied text."""
    if not note:
        return []
    end = last.pieces[-1].stop if last.pieces else 0
    wrapping = Wrapping(width)
    wrapping.append(note, "note", copied=False)
    return [
        Row(last.line, end, [Piece(piece.shown, piece.style, end, end) for piece in row.pieces])
        for row in wrapping.rows
    ]


def _rich_theme(look: ReadingLook) -> Theme:
    headings = {f"markdown.h{level}": look.heading for level in range(1, 7)}
    return Theme(
        {
            **headings,
            "markdown.h1": look.heading + Style(underline=True),
            "markdown.code": look.code,
            "markdown.code_block": look.code,
            "markdown.item.bullet": look.heading,
            "markdown.item.number": look.heading,
            "markdown.list": Style(),
            "markdown.link": look.heading,
            "markdown.link_url": look.faint,
            "markdown.block_quote": look.faint,
            "markdown.hr": look.faint,
            "markdown.table.border": look.faint,
            "markdown.table.header": look.heading,
        }
    )
