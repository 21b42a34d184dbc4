"""Renders the Markdown of a reply as rows."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, newline
from markdown_it.token import Token
from rich import markdown as rich_markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.theme import Theme

from eaglechat.settings.model import View
from eaglechat.tui.widgets.transcript.formatting import IN_CODE, PLAIN, GrowingText, Line, Run
from eaglechat.tui.widgets.transcript.wrapping import TEXT, Piece, Row
from eaglechat.wire.neutral import neutralise_line
from eaglechat.words.wording import fitting

CODE, LINK = "code", "link"
"""Meta keys of a cell that reacts to a click. The value of CODE is the number of the code block to
copy, that of LINK is the address to open."""
_CODE_TYPES = ("fence", "code_block")
_WRITTEN_LINK = re.compile(r"\[[^\[\]]*\]\([^()]*(?:\([^()]*\)[^()]*)*\)|\b\w+:\S+")


def _newline(state: StateInline, silent: bool) -> bool:
    """A line break that keeps the indentation of the next line."""
    if not newline(state, silent):
        return False
    state.pos = state.src.rindex("\n", 0, state.pos) + 1
    return True


_DEEPEST = 20
"""markdown-it drops blocks that are nested deeper than this."""
_MOST_SCHEMES = 20
"""Addresses in one word. Finding them takes time that grows with the square of their number."""


def _parser(*others: str) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": True, "maxNesting": _DEEPEST})
    parser.enable(["strikethrough", "table", *others])
    parser.inline.ruler.at("newline", _newline)
    assert parser.linkify is not None
    # Only addresses with a scheme become links: many file names look like host names (README.md).
    parser.linkify.set({"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False})
    parser.linkify.add("//", None)
    return parser


_linking, _plain = _parser("linkify"), _parser()


def _parse(text: str) -> list[Token]:
    is_plain = any(word.count("://") > _MOST_SCHEMES for word in text.split())
    return (_plain if is_plain else _linking).parse(text)


@dataclass(frozen=True)
class Look:
    """How replies are drawn: everything except the text that the rows depend on."""

    view: View
    width: int
    """The cells in a row for text."""
    dark: bool
    base: Style
    heading: Style
    code: Style
    faint: Style


@dataclass(frozen=True)
class Code:
    """A code block; `text` is exactly what the model wrote."""

    language: str
    text: str


class RenderedMarkdown:
    """A rendered text. `text` is what its rows copy: all they show except the note at the end and
    the frames of code blocks."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.rows: list[Row] = []
        self.text = ""
        self.codes: list[Code] = []
        """Its index is the number under the meta key CODE."""

    def add(self, runs: Iterable[Run], line: Line = PLAIN, head: Piece | None = None) -> None:
        """Add a block, with a row of its own as its `head`."""
        if self.rows:
            self.text += "\n\n"
            self.rows.append([Piece("", TEXT, len(self.text) - 1, len(self.text) - 1)])
        body = GrowingText(self._width, line, at=len(self.text))
        body.add(runs)
        at = len(self.text)
        self.rows += [[head._replace(start=at, stop=at)]] if head is not None else []
        self.rows += body.rows
        self.text += body.text

    def end(self, note: str) -> None:
        below = GrowingText(self._width, PLAIN, at=len(self.text))
        below.say(note, "note")
        self.rows += below.rows if note or not self.rows else []


def code_blocks(text: str) -> list[Code]:
    """The code blocks of a Markdown text, in order."""
    return _codes(_parse(text))


def _codes(tokens: Sequence[Token]) -> list[Code]:
    found = (token for token in tokens if token.type in _CODE_TYPES)
    return [Code(_language(token), token.content) for token in found]


def code_ending_at(text: str, at: int) -> Code | None:
    """The code block whose closing fence is in the line of this character of a Markdown text."""
    line = text.count("\n", 0, at)
    blocks = [token for token in _parse(text) if token.type == "fence"]
    return next((_codes([one])[0] for one in blocks if one.map and one.map[1] - 1 == line), None)


def link_at(text: str, at: int) -> str | None:
    """The address of the link that is written at a character of a Markdown text."""
    begin = text.rfind("\n", 0, at) + 1
    for found in _WRITTEN_LINK.finditer(text[begin:].partition("\n")[0]):
        if found.start() <= at - begin < found.end():
            address = next(iter(links(found.group())), None)
            return address if address in links(text) else None
    return None


def links(text: str) -> list[str]:
    """The addresses of the links in a Markdown text, in order."""
    inline = (child for token in _parse(text) for child in token.children or ())
    return [_address(child) for child in inline if child.type == "link_open"]


def _address(link: Token) -> str:
    """The address of a link, neutralised: the parser has already decoded its entities, so that it
    may hold control characters."""
    return neutralise_line(str(link.attrs.get("href", "")))


def same_passage(text: str, span: tuple[int, int], drawn: str) -> tuple[int, int]:
    """Find the passage `span` of a Markdown text in the drawn text.

    If all occurrences of its words are drawn, the same occurrence is returned. If some are not,
    the one at the most similar relative position is. If none is, the span is empty.
    """
    start, stop = span
    words = re.compile(r"\s+".join(map(re.escape, text[start:stop].split())) or "(?!)")
    before = sum(found.start() < start for found in words.finditer(text))
    there = [found.span() for found in words.finditer(drawn)]
    if len(there) == len(words.findall(text)) > before:
        return there[before]
    as_far = round(start * len(drawn) / max(len(text), 1))
    return min(there, key=lambda one: abs(one[0] - as_far), default=(as_far, as_far))


def render(text: str, note: str, look: Look) -> RenderedMarkdown:
    """Render a neutralised Markdown text, with a note below it. HTML is shown as it is written."""
    console = Console(
        file=io.StringIO(), width=look.width, legacy_windows=False, theme=_rich_theme(look)
    )
    lines, page = text.split("\n"), RenderedMarkdown(look.width)
    for block in _blocks(_parse(text)):
        if block[0].type in _CODE_TYPES:
            _add_code(block[0], page, look, console)
        else:
            runs = _runs(console.render_lines(_Markdown(block, look.dark), pad=False), look.base)
            if not _shows_all(runs, block):
                # Rich drops columns of tables, deep lists and deep quotes that do not fit.
                start, stop = block[0].map or (0, 0)
                runs = [Run("\n".join(lines[start:stop]).rstrip("\n"), look.base)]
            page.add(runs)
        page.codes += _codes(block)
    page.end(note)
    return page


def _blocks(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """The tokens of each outermost block."""
    block: list[Token] = []
    for token in tokens:
        block.append(token)
        if token.level == 0 and token.nesting <= 0:
            yield block
            block = []


def _runs(drawn: Iterable[Sequence[Segment]], base: Style) -> list[Run]:
    """The text of rows that Rich has drawn, without the space around it."""
    rows: list[list[Run]] = []
    for line in drawn:
        row = [Run(neutralise_line(text), _clickable(base, style)) for text, style, _ in line]
        while row and not row[-1].text.strip():
            row.pop()
        row[-1:] = [run._replace(text=run.text.rstrip()) for run in row[-1:]]
        rows += [row] if row or rows else []
    while rows and not rows[-1]:
        rows.pop()
    return [run for row in rows for run in (*row, Run("\n", base))][:-1]


def _shows_all(runs: Sequence[Run], block: Sequence[Token]) -> bool:
    """Whether the runs show every character of the block's text except spaces."""
    if max(token.level for token in block) >= _DEEPEST - 2:
        return False
    wanted: Counter[str] = Counter()
    for token in block:
        texts = [child.content for child in token.children] if token.children else [token.content]
        for text in texts:
            wanted.update(neutralise_line(text))
    for run in runs:
        wanted.subtract(run.text)
    return all(count <= 0 or character.isspace() for character, count in wanted.items())


def _language(token: Token) -> str:
    return neutralise_line(token.info.split()[0]) if token.info.split() else ""


def _add_code(token: Token, page: RenderedMarkdown, look: Look, console: Console) -> None:
    """Add a code block with a rail at its left, below a head that names the language and copies the
    code when it is clicked."""
    language, code = _language(token), token.content.rstrip("\n")
    theme = "ansi_dark" if look.dark else "ansi_light"
    highlighted = Syntax("", language or "text", theme=theme).highlight(code)
    highlighted.rstrip()
    runs = [
        Run(text, look.base + style if style else look.base)
        for text, style, _ in highlighted.render(console)
    ]
    said = f"{language} · copy" if language else "copy"
    click = look.faint + Style.from_meta({CODE: len(page.codes)}) + Style(underline=True)
    page.add(runs, IN_CODE, head=Piece(fitting(f"╭ {said}", look.width), click, 0, 0))


def _clickable(base: Style, style: Style | None) -> Style:
    """The style of a cell. A link in it is opened by the app, which first shows the address, and
    not by the terminal."""
    if style is None:
        return base
    if style.link:
        meta = {LINK: neutralise_line(style.link)}
        return base + style.update_link(None) + Style.from_meta(meta)
    return base + style


class _Heading(rich_markdown.Heading):
    """A heading that is aligned left and has no box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Table(rich_markdown.TableElement):
    """A table whose cells wrap instead of being cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class _Markdown(rich_markdown.Markdown):
    """Rich's Markdown for tokens that are already parsed. It keeps every line break and shows the
    address of every link."""

    elements = {**rich_markdown.Markdown.elements, "heading_open": _Heading, "table_open": _Table}

    def __init__(self, tokens: Sequence[Token], dark: bool) -> None:
        super().__init__("", code_theme="ansi_dark" if dark else "ansi_light")
        self.parsed = [_with_breaks_and_addresses(token) for token in tokens]


def _with_breaks_and_addresses(token: Token) -> Token:
    """The token with soft line breaks made hard and each link's address written behind it."""
    if token.type != "inline" or not token.children:
        return token
    children: list[Token] = []
    href, text = "", ""
    for child in token.children:
        if child.type == "softbreak":
            children.append(Token("hardbreak", "br", 0))
            continue
        if child.type == "link_open":
            href, text = _address(child), ""
        elif child.type == "link_close" and text != href:
            children.append(Token("text", "", 0, content=f" ({href})"))
        text += child.content
        children.append(child)
    return Token(**{**token.as_dict(as_upstream=False), "children": children})


def _rich_theme(look: Look) -> Theme:
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
            "markdown.link_url": look.heading + Style(underline=True),
            "markdown.block_quote": look.faint,
            "markdown.hr": look.faint,
            "markdown.table.border": look.faint,
            "markdown.table.header": look.heading,
        }
    )
