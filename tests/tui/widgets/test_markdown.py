"""Markdown as it is read: while it grows, at any width, with its code and links."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pygments.lexer import Lexer
from rich.cells import cell_len
from textual.geometry import Region
from textual.pilot import Pilot

from eaglechat.settings.model import View
from eaglechat.tui.widgets.transcript.markdown import (
    Look,
    cannot_open,
    code_blocks,
    code_ending_at,
    link_at,
    links,
    render,
    shown_address,
)
from eaglechat.tui.widgets.transcript.transcript import Transcript
from eaglechat.words.neutral import neutralise
from tests.tui.widgets.transcript_app import (
    TranscriptApp,
    drawn_rows,
    make_round,
    on_screen,
    shown_reply,
    text_of,
    until,
)

CODE_TEXT = 'def f(x):\n\treturn "a line that is wider than the page is"  \n\n\nprint(f(2))\n'
PARTS = (
    "# A heading\n\n",
    "Some *words* and `code`\nin two lines.\n\n",
    f"```python\n{CODE_TEXT}```\n\n",
    "- one\n- two\n  1. three\n\n",
    "| a | b |\n| - | - |\n| 漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字 | x |\n\n",
    "> said\n\n",
    "See [the page](https://example.com/a).\n\n",
    "---\n\n",
    "~~~\nplain\n~~~\n",
)


def look(width: int = 30) -> Look:
    return Look("read", width, True)


@pytest.mark.parametrize(
    "mark",
    ["**a ", "a** ", "**a *b ", "*_", "~~", "[", "](", "![](", "`", "<a ", "http://a", "> ", "|-"],
)
def test_ten_thousand_marks_are_drawn_and_searched_for_links(mark: str) -> None:
    text = mark * 10_000
    assert render(text, look()).text == text
    assert link_at(text, 1) is None


def test_a_link_is_found_beside_a_long_word() -> None:
    text = "x" * 300_000 + " see [it](http://a) http://b"
    places = [len(text) - length for length in (300_000, 20, 2)]
    assert [link_at(text, place) for place in places] == [None, "http://a", "http://b"]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from(PARTS), max_size=5), st.integers(12, 50))
def test_no_row_is_wider_than_the_page(parts: list[str], width: int) -> None:
    page = render("".join(parts), look(width))
    assert page.text == "".join(parts)
    assert all(cell_len(text_of(row).rstrip()) <= width for row in page.rows)


def test_code_is_copied_exactly_and_coloured_whatever_stands_around_it() -> None:
    text = f"1. first\n\n   ```sh\n   ls # all\n   ```\n\nthen\n\n````python\n{CODE_TEXT}````\n"
    assert [(code.language, code.text) for code in code_blocks(text)] == [
        ("sh", "ls # all\n"),
        ("python", CODE_TEXT),
    ]
    assert code_ending_at(text, text.rindex("````")) == code_blocks(text)[1]
    coloured = [p for row in render(text, look()).rows for p in row if not isinstance(p.style, str)]
    words = {piece.shown.strip() for piece in coloured if piece.style}
    assert {"# all", "def", "return"} <= words
    for broken in ("", "no-language", "python"):
        assert render(f"```{broken}\nx = ", look()).text == f"```{broken}\nx = "


def test_a_lexer_that_fails_leaves_the_code_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError("nested too deep")

    monkeypatch.setattr(Lexer, "get_tokens", fail)
    assert [*map(text_of, render("```python\nx\n```", look()).rows)] == [
        "╭ python",
        "│ x",
        "╰ copy",
    ]


TABLE = """| name | n | what |
| :-- | --: | :-: |
| **bold** | 1 | `a` |
| 漢字漢字漢字漢字漢字漢字 | 2 |
|| \\| | see *it* and that |
"""


def test_the_columns_of_a_table_stand_below_each_other() -> None:
    page = render(f"so:\n{TABLE}\nend", look(40))
    assert page.text == f"so:\n{TABLE}\nend"
    assert [text_of(row).rstrip() for row in page.rows] == [
        "so:",
        "name             │ n  │ what",
        "─────────────────┼────┼─────────────────",
        "bold             │ 1  │ a",
        "漢字漢字漢字漢字 │ 2",
        "漢字漢字         │",
        "                 │ \\| │ see it and that",
        "",
        "end",
    ]
    # A passage is in the row in which it is drawn.
    for words in ("name", "bold", "see", "end"):
        at = page.text.index(words)
        [row] = [row for row in page.rows if any(p.start <= at < p.stop for p in row)]
        assert words in text_of(row)


def test_an_address_is_a_link_and_the_name_of_a_file_is_none() -> None:
    text = (
        "See https://example.com/a_(b), main.py, //x.com, a@b.de and `https://no`.\n\n    http://x"
    )
    assert links(text) == ["https://example.com/a_(b)"]
    assert links("a [b](http://c) <http://d>") == ["http://c", "http://d"]
    for shown in ("https://example.com/a_(b),", "[the page](https://example.com/a)"):
        [row] = render(f"See {shown} now", look(60)).rows
        assert [p.shown for p in row if "link" in str(p.style)] == [shown]


@pytest.mark.parametrize("address", ["javascript:alert(1)", "file:///etc/passwd", "x", "http://["])
def test_other_addresses_are_not_opened(address: str) -> None:
    assert "not" in (cannot_open(address) or "")


def test_an_address_is_shown_with_its_host_in_plain_letters() -> None:
    assert cannot_open("https://example.com") is None
    assert shown_address("https://example.com/ä") == "https://example.com/ä"
    assert "xn--" in shown_address("https://ex\u0430mple.com/")
    assert "\u202e" not in shown_address("https://example.com/\u202emoc")


async def shown_code(app: TranscriptApp, pilot: Pilot[None]) -> None:
    app.add_reply("First:\n\n```sh\nls\n```\n\nthen\n\n```python\nx = 1\n```")
    app.add_reply("no code, but [a page](https://example.com)")
    app.add_reply("last\n\n```\nplain\n```\n")
    await pilot.pause()


async def click_on(
    app: TranscriptApp, pilot: Pilot[None], words: str = "╰ copy", number: int = 0
) -> None:
    """Click these words once they are on the screen: a reply that grows moves them. `number` counts
    the rows that have them."""
    reply = app.entries()[0]
    places: list[tuple[Region, list[tuple[int, int]]]] = []

    def at_rest() -> bool:
        rows = enumerate(on_screen(reply))
        found = [(row.index(words) + 2, y) for y, row in rows if words in row]
        places.append((reply.region, found))
        return len(found) > number and places[-3:] == [places[-1]] * 3

    await until(pilot, at_rest)
    await pilot.click(Transcript, offset=reply.at(*places[-1][1][number]))


async def test_code_blocks_are_copied_from_the_last_to_the_first() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(60, 24)) as pilot:
        await shown_code(app, pilot)
        for copied in ("plain\n", "x = 1\n", "ls\n"):
            app.transcript.copy_code()
            assert app.clipboard == copied
        app.transcript.copy_code()
        assert app.clipboard == "ls\n"
        app.transcript.copy_code()
        assert app.clipboard == "plain\n"


@pytest.mark.parametrize("view", ["live", "read"])
async def test_a_click_copies_a_finished_code_block(view: View) -> None:
    app = TranscriptApp(view)
    async with app.run_test(size=(60, 24)) as pilot:
        await shown_code(app, pilot)
        await click_on(app, pilot, "╰ copy", 1)
        await until(pilot, lambda: app.clipboard == "x = 1\n")
        await click_on(app, pilot, "╰ copy")
        await until(pilot, lambda: app.clipboard == "ls\n")
        reply = await shown_reply(app, pilot, [make_round([], "```\nls\n")])
        assert "copy" not in "".join(drawn_rows(reply))


async def test_a_line_that_only_the_screen_begins_hides_no_code_block() -> None:
    app = TranscriptApp()
    async with app.run_test(size=(60, 24)) as pilot:
        app.transcript.view = "read"
        app.add_reply("odd:\u2028```python\nx = 1\n```")
        await click_on(app, pilot)
        await until(pilot, lambda: app.clipboard == "x = 1\n")
        app.copy_to_clipboard("")
        app.transcript.copy_code()
        assert app.clipboard == "x = 1\n"


@pytest.mark.parametrize("view", ["live", "read"])
async def test_what_is_found_is_marked_where_it_is_drawn(view: View) -> None:
    app = TranscriptApp()
    async with app.run_test(size=(60, 24)):
        app.add_reply("**bold** words and\n\n- `more` of it\n- the needle here")
        [reply] = app.entries()
        app.transcript.view = view
        span = reply.text.index("needle"), reply.text.index("needle") + 6
        app.transcript.marked = reply.key, span
        drawn = [s for y in range(reply.size.height) for s in reply.render_line(y)]
        assert [s.text for s in drawn if s.style and s.style.reverse] == ["needle"]
        row = drawn_rows(reply)[reply.drawn.row_of(span)]
        assert "needle" in row


class LinkApp(TranscriptApp):
    """Keeps the addresses that were chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: list[str] = []

    def on_transcript_link_chosen(self, event: Transcript.LinkChosen) -> None:
        self.chosen.append(event.address)


async def test_links_are_opened_from_the_last_to_the_first() -> None:
    app = LinkApp()
    async with app.run_test(size=(60, 24)) as pilot:
        await shown_code(app, pilot)
        app.transcript.open_link()
        await until(pilot, lambda: app.chosen == ["https://example.com"])


@pytest.mark.parametrize("view", ["live", "read"])
async def test_a_click_on_a_link_chooses_it(view: View) -> None:
    app = LinkApp()
    async with app.run_test(size=(60, 24)) as pilot:
        app.transcript.view = view
        app.add_reply(
            "two: [a page](https://example.com/a_(b)) and https://example.com/c.\n\n`a:b`"
        )
        for words in ("a page", "example.com/c", "a:b"):
            await click_on(app, pilot, words)
        await until(pilot, lambda: len(app.chosen) == 2)
        assert app.chosen == ["https://example.com/a_(b)", "https://example.com/c"]


UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
hostile = st.lists(
    st.sampled_from(
        (
            *PARTS,
            "<http://c/%1b]0;pwned%1b%5c>",
            "<http://c/%c2%9b31m>",
            "mailto:a%1b@b.c",
            "[a](http://c/%1b)",
            "&#x202e;abc",
            "&#27;[31m",
            "&#10;",
            "```a&#27;b\ncode\n```\n",
            "![&#27;](x)",
            "\n",
            "> ",
            "- ",
            "|",
        )
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=150)
@given(hostile.map("".join), st.integers(1, 60))
@example("<http://c/%1b]0;pwned%1b%5c>", 40)
@example("<http://c/%c2%9b31m>", 40)
@example("mailto:a%1b@b.c", 40)
@example("&#x202e;abc", 40)
def test_nothing_that_is_drawn_copied_or_opened_can_steer_the_terminal(
    text: str, width: int
) -> None:
    page = render(neutralise(text), look(width))
    assert not any(UNSAFE.search(text_of(row)) or "\n" in text_of(row) for row in page.rows)
    assert page.text == neutralise(text)
    assert not any(UNSAFE.search(address) for address in links(text))


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("|" * 2 + "|".join(f"c{n}" for n in range(14)) + "|\n" + "|-" * 15 + "|", 40),
        ("| " + " | ".join(f"c{n}" for n in range(27)) + " |\n" + "| - " * 27 + "|", 80),
        ("| a | b |\n|-|-|\n| c1 | c2 | c3 |", 40),
        ("".join("  " * depth + f"- level{depth}\n" for depth in range(10)), 30),
        ("".join("> " * depth + f"level{depth}\n>\n" for depth in range(1, 21)), 40),
    ],
)
def test_what_has_no_room_is_drawn_as_it_is_written(text: str, width: int) -> None:
    page = render(text, look(width))
    drawn = "".join(map(text_of, page.rows))
    names = re.findall(r"c\d+|level\d+", text)
    assert names
    assert all(name in re.sub(r"\s", "", drawn) for name in names)
    assert all(cell_len(text_of(row).rstrip()) <= width for row in page.rows)
