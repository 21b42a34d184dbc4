"""Markdown that is over: drawn to be read, and the code blocks and links that it has; which links
may be opened, and how one is shown before that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import NamedTuple
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len
from rich.syntax import Syntax

from eaglechat.settings.model import View
from eaglechat.tui.widgets.transcript.formatting import STRONG, WRITTEN_LINK, GrowingText, Line, Run
from eaglechat.tui.widgets.transcript.wrapping import FAINT, TEXT, Piece, Row
from eaglechat.words.neutral import neutralise, neutralise_line

_CODE_TYPES = ("fence", "code_block")
_MOST_SCHEMES = 20
"""Addresses in one word. Finding them takes time that grows with the square of their number."""
_PIPE = re.compile(r"(?<!\\)\|")
_BETWEEN, _CROSSING = " │ ", "─┼─"
"""What stands between two columns of a table."""
_NARROWEST = 4
"""Cells of a column."""


_parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "linkify"])
assert _parser.linkify is not None
# Only addresses with a scheme become links: many file names look like host names (README.md).
_parser.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
_parser.linkify.add("//", None)


def _parse(text: str) -> list[Token]:
    is_linked = all(word.count("://") <= _MOST_SCHEMES for word in text.split())
    _parser.options["linkify"] = is_linked
    return _parser.parse(text)


@dataclass(frozen=True)
class Look:
    """How replies are drawn: everything except the text that the rows depend on."""

    view: View
    width: int
    """The cells in a row for text."""
    dark: bool


@dataclass(frozen=True)
class Code:
    """A code block; `text` is exactly what the model wrote."""

    language: str
    text: str


def code_blocks(text: str) -> list[Code]:
    return [_code(token) for token in _parse(text) if token.type in _CODE_TYPES]


def _code(token: Token) -> Code:
    return Code(neutralise_line(token.info.split()[0]) if token.info.split() else "", token.content)


def code_ending_at(text: str, at: int) -> Code | None:
    """The code block whose closing fence is in the line of this character of a Markdown text."""
    line = text.count("\n", 0, at)
    blocks = [token for token in _parse(text) if token.type == "fence"]
    return next((_code(one) for one in blocks if one.map and one.map[1] - 1 == line), None)


def link_at(text: str, at: int) -> str | None:
    """The address of the link that is written at a character of a Markdown text."""
    begin = text.rfind("\n", 0, at) + 1
    for found in WRITTEN_LINK.finditer(text[begin:].partition("\n")[0]):
        if found.start() <= at - begin < found.end():
            address = next(iter(links(found.group())), None)
            return address if address in links(text) else None
    return None


def links(text: str) -> list[str]:
    """The addresses of the links in a Markdown text, in order."""
    inline = (child for token in _parse(text) for child in token.children or ())
    # Neutralised: the parser has decoded their entities, which may be those of control characters.
    return [
        neutralise_line(str(child.attrs.get("href", "")))
        for child in inline
        if child.type == "link_open"
    ]


def cannot_open(address: str) -> str | None:
    """Why an address in a reply may not be opened; None if it may."""
    try:
        scheme = urlsplit(address).scheme.lower()
    except ValueError:
        scheme = ""
    if scheme in ("http", "https", "mailto"):
        return None
    return f"Only web and mail addresses are opened, not {neutralise(address)}"


def shown_address(address: str) -> str:
    """An address in full. If its host is not plain ASCII, its ASCII form (IDNA) is added, for such
    a host can look like another one."""
    host = urlsplit(address).hostname or ""
    try:
        plain = host.encode("idna").decode("ascii")
    except UnicodeError:
        plain = ascii(host)
    is_plain = plain.casefold() == host.casefold()
    return neutralise(address) if is_plain else f"{neutralise(address)}\n\nIts host is {plain}."


def render(text: str, look: Look) -> GrowingText:
    """A neutralised Markdown text as it is read: as while it was written, but with its code in
    colours and its tables in columns."""
    lines = re.findall(r".*\n|.+\Z", text)
    page, done = GrowingText(look.width), 0
    for token in _parse(text):
        start, stop = token.map or (0, 0)
        if token.type == "fence":
            begin = start + 1
            page.add([Run("".join(lines[done:begin]), TEXT)])
            done = begin + token.content.count("\n")
            page.add(_coloured("".join(lines[begin:done]), _code(token).language, look))
        elif token.type == "table_open" and not token.level:
            page.add([Run("".join(lines[done:start]), TEXT)])
            done, source = start, lines[start:stop]
            if (rows := _table(source, len(page.text), look.width)) is not None:
                page.put(rows, "".join(source))
                done = stop
    if rest := "".join(lines[done:]):
        page.add([Run(rest, TEXT)], is_over=True)
    return page


def _coloured(code: str, language: str, look: Look) -> Iterator[Run]:
    """The lines of a code block in the colours of its language, if that is known."""
    try:
        lexer = Syntax("", language, tab_size=0).lexer
        tokens = [*lexer.get_tokens(code)] if lexer is not None else []
    except Exception:
        # Whatever a model writes, a fault of one of the many lexers must not end the app.
        tokens = []
    if "".join(text for _, text in tokens) != code:
        yield Run(code, TEXT)
        return
    theme = Syntax.get_theme("ansi_dark" if look.dark else "ansi_light")
    for kind, text in tokens:
        yield Run(text, theme.get_style_for_token(kind))


class _Cell(NamedTuple):
    """A cell of a table, and its place in the copied text."""

    text: str
    at: int


def _cells(line: str, at: int) -> list[_Cell]:
    pipes = [found.start() for found in _PIPE.finditer(line)]
    begins, ends = [0, *(pipe + 1 for pipe in pipes)], [*pipes, len(line)]
    texts = [line[begin:end] for begin, end in zip(begins, ends, strict=True)]
    cells = [
        _Cell(text.strip(), at + begin + len(text) - len(text.lstrip()))
        for text, begin in zip(texts, begins, strict=True)
    ]
    # Pipes at the ends of the line have no cell beside them.
    first, last = not cells[0].text, not cells[-1].text
    return cells[first : len(cells) - last] or cells[:1]


def _table(lines: Sequence[str], at: int, width: int) -> list[Row] | None:
    """The rows of a table at this place, with its columns beside each other; None if they have no
    room."""
    places = accumulate(map(len, lines), initial=at)
    head, rule, *body = (_cells(line, place) for line, place in zip(lines, places, strict=False))
    room = width - len(_BETWEEN) * (len(head) - 1)
    if len(head) * _NARROWEST > room or any(len(cells) > len(head) for cells in body):
        return None
    columns = zip_longest(*([cell_len(cell.text) for cell in cells] for cells in (head, *body)))
    wanted = [max(cells or 1 for cells in column) for column in columns]
    # No more than each needs; the others share what is left alike.
    most = next(
        most for most in range(room, 0, -1) if sum(min(one, most) for one in wanted) <= room
    )
    widths = [min(one, most) for one in wanted]
    crossed = Piece(_CROSSING.join("─" * one for one in widths), FAINT, rule[0].at, rule[0].at)
    rows = [*_beside(head, widths, Line(format=STRONG)), [crossed]]
    return [*rows, *(row for cells in body for row in _beside(cells, widths, Line()))]


def _beside(cells: Sequence[_Cell], widths: Sequence[int], line: Line) -> Iterator[Row]:
    """The rows of cells beside each other, of which each takes as many as it needs."""
    drawn = [GrowingText(width, line, cell.at) for cell, width in zip(cells, widths, strict=False)]
    for cell, text in zip(cells, drawn, strict=True):
        text.add([Run(cell.text, TEXT)], is_over=True)
    for parts in zip_longest(*(text.rows for text in drawn), fillvalue=()):
        row: Row = []
        for cell, part, width in zip(cells, parts, widths, strict=False):
            end = part[-1].stop if part else cell.at + len(cell.text)
            gap = " " * (width - sum(cell_len(piece.shown) for piece in part))
            between = [Piece(_BETWEEN, FAINT, row[-1].stop, row[-1].stop)] if row else []
            row += [*between, *part, Piece(gap, TEXT, end, end)]
        yield row
