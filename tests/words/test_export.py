"""Chats as Markdown, JSON and a page: what is in them, and what must never be."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eaglechat.chat.recording import TurnPart
from eaglechat.chat.saved_chat import ChatHeader, SavedChat
from eaglechat.chat.turns import Reply
from eaglechat.chat.writing.question import typed
from eaglechat.wire.records import Origin, Part, Round, Token
from eaglechat.words.export import (
    SUFFIXES,
    closed,
    free_file,
    markdown,
    page,
    render,
    tree,
)
from tests.chat.headless import Headless, saved_chats
from tests.chat.records import recorded, round_of, thinking

HEADER = ChatHeader(created="2026-11-22T21:00:00+00:00", pair="a pair", target="/t.gguf")


def chat_of(*rounds: Round, question: str = "why?") -> SavedChat:
    chat = SavedChat("2026-11-22", HEADER, title="A title")
    chat.turns.answer(chat.turns.ask([TurnPart(question)]).id, recorded(*rounds))
    return chat


def written(text: str) -> Round:
    return replace(round_of(1, drafted=0), tokens=(Token(1, text, Origin.PLAIN),))


class Page(HTMLParser):
    """The texts of a page by the class of what they stand in, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self._classes = [""]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in {"meta", "input"}:
            self._classes.append(dict(attrs).get("class") or "")

    def handle_endtag(self, tag: str) -> None:
        self._classes.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append((self._classes[-1], data))

    def text(self, *kinds: str) -> str:
        return "".join(text for kind, text in self.texts if kind in kinds)


def test_markdown_has_the_path_with_the_numbers_and_no_reasoning(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("first?")
    chat.session.edit(1, typed("second?"))
    chat.finish()
    chat.leave()
    (saved,) = saved_chats(tmp_path)
    text = markdown(saved)
    assert text.startswith("# second?\n\n20")
    assert "**You** (2 of 2)\n\nsecond?\n\n**scripted**\n\nThe Pythagorean" in text
    assert "first?" not in text
    assert re.search(r"\*60 tokens, [\d.]+ tok/s, accepted \d+ of \d+ tested", text)


def test_reasoning_is_exported_on_request_only() -> None:
    rounds = (thinking(" secret"), thinking(" answer", part=Part.ANSWER))
    for written in (markdown, tree, page):
        without = written(chat_of(*rounds))
        assert "secret" not in without
        assert "answer" in without
        assert "secret" in written(chat_of(*rounds), with_reasoning=True)


def test_what_was_drafted_in_a_round_of_both_parts_does_not_tell_the_reasoning() -> None:
    mixed = replace(
        round_of(1, 2),
        tokens=(
            Token(1, " secret", Origin.ACCEPTED, part=Part.REASONING),
            Token(2, " answer", Origin.CORRECTION),
        ),
    )
    first, second = mixed.drafted
    mixed = replace(mixed, drafted=(replace(first, text=" secret"), second))
    for format in SUFFIXES:
        assert b"secret" not in render(chat_of(mixed), format)


def test_json_has_every_branch_with_its_rounds(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    chat.session.answer_again(1)
    chat.finish()
    chat.leave()
    (saved,) = saved_chats(tmp_path)
    document = json.loads(tree(saved))
    question, first, second = document["turns"]
    assert (question["role"], question["text"], question["parent"]) == ("user", "why?", None)
    assert [first["chosen"], second["chosen"]] == [False, True]
    assert first["parent"] == second["parent"] == question["id"]
    reply = saved.turns.find(second["id"])
    assert isinstance(reply, Reply)
    assert msgspec.convert(second["rounds"], list[Round]) == list(reply.recording.rounds)
    assert second["stats"]["acceptance_rate"] == reply.recording.stats.acceptance_rate
    assert second["end"]["finish_reason"] == "stop"


def test_the_page_shows_each_token_by_its_origin(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.ask("why?")
    reply = chat.session.turns.last_reply
    assert reply is not None
    shown = Page(page(chat.session.chat))
    main = shown.texts[[text for _, text in shown.texts].index("You") :]
    origins = [origin.value for origin in Origin]
    assert "".join(text for kind, text in main if kind in {*origins, "text"}).strip() == reply.text
    expected = [t for r in reply.recording.rounds for t in r.tokens if t.text]
    assert [(k, t) for k, t in main if k in origins] == [(t.origin.value, t.text) for t in expected]
    assert (" umbrella" in {text for kind, text in main if kind == "rejected"}) is True


def test_the_page_asks_nothing_of_the_network_and_runs_nothing() -> None:
    shown = Page(page(chat_of(round_of(1, 2))))
    assert not {"script", "img", "link", "iframe", "a"} & {*shown.tags}
    assert not {"src", "href", "onclick", "style"} & shown.attributes
    assert "url(" not in page(chat_of(round_of(1)))


@settings(max_examples=40)
@given(st.text(), st.text(alphabet="<>&\"'/scriptdiv!-\0\ud800 "))
def test_no_text_of_a_chat_becomes_markup(one: str, other: str) -> None:
    chat = dataclasses.replace(chat_of(written(one), question=other), title=other)
    plain = Page(page(chat_of(written("x"), question="x")))
    shown = Page(page(chat))
    assert [tag for tag in shown.tags if tag != "span"] == [t for t in plain.tags if t != "span"]
    safe = other.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    assert shown.text("text you") == safe
    for format in SUFFIXES:
        render(chat, format).decode("utf-8")
    json.loads(tree(chat))


def test_the_page_follows_the_system_of_its_reader() -> None:
    light, _, dark = page(chat_of(round_of(1))).partition("@media (prefers-color-scheme: dark)")
    assert "body { background: #" in light
    assert ".accepted { color: #" in light
    assert ".accepted { color: #" in dark


def test_the_page_has_a_rejected_token_that_nothing_replaced() -> None:
    """Speculation stopped, or the reply ended, right behind it."""
    stopped = replace(round_of(1, drafted=2), n_tested=1, n_accepted=0)
    stopped = replace(stopped, tokens=(Token(1, "x", Origin.UNKNOWN),))
    shown = Page(page(chat_of(stopped)))
    assert ("rejected", stopped.drafted[0].text) in shown.texts


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("```py\nx", "\n```"),
        ("```\nx\n```", ""),
        ("so:\n```", "\n```"),
        ("```\nx\n``` y", "\n```"),
        ("~~~~\n```\n~~~", "\n~~~~"),
        ("```x``` is\n```\ny", "\n```"),
        ("plain", ""),
    ],
)
def test_a_block_of_code_that_was_cut_off_is_closed(text: str, end: str) -> None:
    assert closed(text) == text + end


@given(st.text())
def test_a_file_has_a_name_that_every_system_takes(title: str) -> None:
    name = free_file(Path("nowhere"), title, "html").name
    assert name.endswith(".html")
    assert not set(name) & set('/\\:*?"<>|\0\n')
    assert not name.startswith((".", "-"))


def test_a_file_that_exists_is_not_replaced(tmp_path: Path) -> None:
    assert free_file(tmp_path, "Why?", "json").name == "Why.json"
    (tmp_path / "Why.json").write_text("")
    assert free_file(tmp_path, "Why?", "json").name == "Why-2.json"
