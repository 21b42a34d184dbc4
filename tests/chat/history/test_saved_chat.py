"""Chats read back: what crashes left of a file, and damage of any kind."""

from __future__ import annotations

import json
import random
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eaglechat.chat.conversation.turns import Reply
from eaglechat.chat.history import lines
from eaglechat.chat.history.folder import ChatFolder
from eaglechat.chat.history.lines import (
    ChatFormatError,
    EndLine,
    QuestionLine,
    ReplyLine,
    RoundsLine,
)
from eaglechat.chat.history.packing import pack
from eaglechat.chat.history.saved_chat import read_chat, saved_chats
from eaglechat.chat.recording import TurnPart
from eaglechat.words.failures import why
from tests.chat.headless import Headless
from tests.chat.history.files import fresh, resumed
from tests.chat.records import round_of, thinking


def texts(file: Path) -> list[str]:
    return [turn.text for turn in read_chat(file).turns.path]


def test_a_question_that_a_crash_left_without_an_answer_is_unsent(tmp_path: Path) -> None:
    log = fresh(tmp_path)
    log.add(QuestionLine(id=1, parts=(TurnPart("why?"),)), ReplyLine(id=2, parent=1))
    log.close()
    chat = read_chat(log.file)
    assert (len(chat.turns), chat.unsent_text) == (0, "why?")
    again = resumed(chat)
    again.add(QuestionLine(id=3, parts=(TurnPart("why, then?"),)), ReplyLine(id=4, parent=3))
    again.add(RoundsLine(of=4, text=" t1", data=pack([round_of(1)])))
    again.close()
    assert texts(log.file) == ["why, then?", " t1"]
    assert read_chat(log.file).unsent_text == ""


def test_a_torn_last_line_costs_itself_alone(tmp_path: Path) -> None:
    log = fresh(tmp_path)
    log.add(QuestionLine(id=1, parts=(TurnPart("why?"),)), ReplyLine(id=2, parent=1))
    log.add(RoundsLine(of=2, text=" t1", data=pack([round_of(1)])))
    log.close()
    with log.file.open("ab") as stream:
        stream.write(lines.encode(RoundsLine(of=2, text=" t2", data=pack([round_of(2)])))[:-9])
    again = resumed(read_chat(log.file))
    again.add(QuestionLine(id=3, parent=2, parts=(TurnPart("and?"),)), ReplyLine(id=4, parent=3))
    again.add(RoundsLine(of=4, text=" t3", data=pack([round_of(3)])))
    again.close()
    assert texts(log.file) == ["why?", " t1", "and?", " t3"]


def test_reasoning_is_kept_beside_the_answer(tmp_path: Path) -> None:
    pieces = (thinking("let me", " see"), thinking("</think>", part=None), round_of(1))
    rounds = [replace(round_, index=index) for index, round_ in enumerate(pieces)]
    log = fresh(tmp_path)
    log.add(QuestionLine(id=1, parts=(TurnPart("why?"),)), ReplyLine(id=2, parent=1))
    log.add(RoundsLine(of=2, text=" t1", reasoning="let me see", data=pack(rounds)))
    log.close()
    reply = read_chat(log.file).turns.last_reply
    assert reply is not None
    assert (reply.text, reply.reasoning) == (" t1", "let me see")
    assert list(reply.recording.rounds) == rounds
    assert (reply.text, reply.reasoning) == (" t1", "let me see")


def test_rounds_that_cannot_be_read_are_text(tmp_path: Path) -> None:
    log = fresh(tmp_path)
    log.add(QuestionLine(id=1, parts=(TurnPart("why?"),)), ReplyLine(id=2, parent=1))
    log.add(RoundsLine(of=2, text=" t1", data=pack([round_of(1)])))
    log.add(RoundsLine(of=2, text=" t2", data="nonsense"), EndLine(of=2))
    log.close()
    reply = read_chat(log.file).turns.last_reply
    assert reply is not None
    assert reply.text == " t1 t2"
    assert [round_.text for round_ in reply.recording.rounds] == [" t1", " t2"]
    assert reply.text == " t1 t2"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "it is empty"),
        (b"\xff\xfe nothing", "does not begin like a chat"),
        (b'{"type":"message","role":"user","content":"x"}\n', "does not begin like a chat"),
        (b'{"type":"chat","created":"","pair":"p","target":"t"}\n', "version 1, .* open it with"),
        (b'{"type":"chat","created":"","pair":"p","target":"t","version":3}', "version 3, .* open"),
    ],
)
def test_what_is_no_chat_says_so(tmp_path: Path, raw: bytes, problem: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(raw)
    with pytest.raises(ChatFormatError) as error:
        read_chat(file)
    assert re.search(problem, why(error.value))
    assert list(saved_chats(tmp_path)) == []


@pytest.fixture(scope="module")
def long_chat(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a chat with branches and a stopped reply."""
    chat = Headless(tmp_path_factory.mktemp("long"))
    chat.engine.reply = "one two three four"
    for question in ("a", "b", "c"):
        chat.ask(question)
    chat.session.edit(chat.session.turns.path[2].id, "B")
    chat.finish()
    chat.session.answer_again(chat.session.turns.path[3].id)
    chat.finish()
    chat.session.step(chat.session.turns.path[2].id, -1)
    chat.session.leave("typed")
    (file,) = (chat.folder / "chats").iterdir()
    return file.read_bytes()


@settings(max_examples=60)
@given(seed=st.integers(0, 10**9), how=st.sampled_from(["drop", "cut", "swap", "noise"]))
def test_no_damage_stops_a_chat_from_being_read(
    long_chat: bytes, tmp_path_factory: pytest.TempPathFactory, seed: int, how: str
) -> None:
    rng = random.Random(seed)
    header, *rest = long_chat.splitlines(keepends=True)
    place = rng.randrange(len(rest))
    if how == "drop":
        del rest[place]
    elif how == "cut":
        rest[place] = rest[place][: rng.randrange(len(rest[place]))]
    elif how == "swap":
        other = rng.randrange(len(rest))
        rest[place], rest[other] = rest[other], rest[place]
    else:
        rest[place] = rng.randbytes(30) + b"\n"
    file = tmp_path_factory.mktemp("damaged") / "x.jsonl"
    file.write_bytes(header + b"".join(rest))
    chat = read_chat(file)
    for turn in chat.turns:
        assert isinstance(turn.text, str)
        if isinstance(turn, Reply):
            assert "".join(r.text for r in turn.recording.rounds) in turn.text
    assert not chat.turns.path or isinstance(chat.turns.path[-1], Reply)


def test_a_comparison_of_an_earlier_version_is_skipped(tmp_path: Path) -> None:
    chat = Headless(tmp_path)
    chat.engine.reply = "one two three"
    chat.ask("a")
    chat.session.leave("")
    (file,) = (tmp_path / "chats").iterdir()
    lines = file.read_text().splitlines()
    (rounds,) = [line for line in lines if '"type":"rounds"' in line]
    reply = json.loads(rounds)["of"]
    beside = [
        {"type": "comparison", "id": 90, "of": reply},
        {**json.loads(rounds), "of": 90},
        {"type": "end", "of": 90},
        {"type": "deleted", "turn": 90},
    ]
    file.write_text("\n".join([*lines, *map(json.dumps, beside)]) + "\n")
    assert [turn.text for turn in read_chat(file).turns] == ["a", "one two three"]


def test_the_context_of_a_long_chat_is_known_without_its_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first Enter asks every reply how long its context was: 1 s for 300 replies, decoded."""
    chat = Headless(tmp_path)
    for question in ("why?", "and then?"):
        chat.ask(question)
    wanted = [turn.recording.n_past for turn in chat.session.turns.path if isinstance(turn, Reply)]
    chat.session.leave("")
    chat.session.close()
    monkeypatch.setattr("eaglechat.chat.history.packing.unpack", nobody_unpacks)
    (saved,) = saved_chats(tmp_path / "chats")

    found = [turn.recording.n_past for turn in saved.turns.path if isinstance(turn, Reply)]

    assert found == wanted
    assert all(found)


def nobody_unpacks(*_: object) -> None:
    raise AssertionError("rounds were made of what is on disk")


ids = st.integers(0, 5) | st.just(9223372036854775808)
tree_lines = st.one_of(
    st.builds(dict, type=st.just("question"), id=ids, parent=st.none() | ids, parts=st.just([])),
    st.builds(dict, type=st.just("reply"), id=ids, parent=ids),
    st.builds(dict, type=st.just("comparison"), id=ids, of=ids),
    st.builds(dict, type=st.sampled_from(["chosen", "deleted", "restored"]), turn=ids),
    st.builds(dict, type=st.sampled_from(["goes_on", "end"]), of=ids),
    st.builds(dict, type=st.just("rounds"), of=ids, text=st.just("a"), data=st.just("!")),
    st.builds(dict, type=st.just("summary"), title=st.just("t"), messages=ids),
)


@given(st.lists(tree_lines, max_size=8))
@example(
    [
        {"type": "question", "id": 4, "parts": []},
        {"type": "deleted", "turn": 4},
        {"type": "question", "id": 4, "parts": []},
        {"type": "restored", "turn": 4},
    ]
)
@example([{"type": "question", "id": 9223372036854775808, "parts": [{"text": "why?"}]}])
@example([{"type": "summary", "title": "t", "messages": 9223372036854775808}])
def test_lines_in_any_order_make_a_chat_that_can_be_searched(given_lines: list[dict]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "chats", "20260101-000000.jsonl")
        file.parent.mkdir()
        header = {"type": "chat", "created": "2026-01-01T00:00:00", "pair": "p", "target": "/t"}
        written = [{**header, "version": 2}, *given_lines]
        file.write_text("".join(json.dumps(line) + "\n" for line in written))

        chat = read_chat(file)
        for turn in chat.turns.path:
            chat.turns.messages_to(turn.id)
        chats = ChatFolder(file.parent)
        assert [progress.total for progress in chats.read()][-1] <= 1
        assert [*chats.listed()]
