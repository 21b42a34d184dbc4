"""The text of a reply, and its parts: reasoning, answer, and the end of reasoning on request."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.engine.llama.objects import Model
from eaglechat.engine.loop import Live
from eaglechat.engine.reply import ReplyText
from eaglechat.engine.templates.dialect import ReplyParts, tagged
from eaglechat.wire.protocol import Set, Speculation
from eaglechat.wire.records import FinishReason, Part
from tests.engine.rig import InParts, Reply, Rig, check_bookkeeping, fresh_reply, open_rig

CHARACTERS = st.sampled_from(["a", "b", "é", "語", "👩‍👩‍👧"]).map(str.encode)


@given(
    st.lists(CHARACTERS | st.binary(max_size=3), max_size=12).map(b"".join),
    st.text("ab語", max_size=3),
    st.lists(st.integers(0, 60), max_size=12).map(sorted),
)
def test_a_reply_is_its_text_before_the_stop_string_however_it_is_cut(
    raw: bytes, stop: str, cuts: list[int]
) -> None:
    """Nothing that is shown is taken back, and what is held back comes once."""
    whole = raw.decode(errors="replace")
    is_stopped = bool(stop) and stop in whole
    wanted = whole.partition(stop)[0] if is_stopped else whole
    text, shown = ReplyText(stop=[stop]), ""
    for start, end in pairwise([0, *cuts, len(raw)]):
        if not text.stopped:
            certain, part = text.push(raw[start:end])
            assert part is Part.ANSWER
            shown += certain
            assert wanted.startswith(shown)
    assert shown + "".join(held for _, held in text.flush()) == wanted
    assert text.stopped is is_stopped
    assert text.flush() == []


@pytest.mark.parametrize(
    ("stop", "pieces", "shown"),
    [
        ([], [b"\xe8", b"\xaa", b"\x9e"], ["", "", "語"]),
        ([], [b"a\xffb", b"\xe8\xaa", b"c"], ["a\ufffdb", "", "\ufffdc"]),
        (["</end>"], [b"text </", b"en", b"d> and more"], ["text ", "", ""]),
        # The first a cannot begin the stop string any more, the other two can.
        (["aab"], [b"xa", b"a", b"a", b"c"], ["x", "", "a", "aac"]),
        (["END", "\n\n", ""], [b"one\n\ntwo END"], ["one"]),
    ],
)
def test_what_is_certain_is_shown_at_once(
    stop: list[str], pieces: list[bytes], shown: list[str]
) -> None:
    text = ReplyText(stop=stop)
    assert [text.push(piece)[0] for piece in pieces] == shown


# --- parts ---


R, A = Part


@pytest.mark.parametrize(
    ("pieces", "pushed", "held"),
    [
        (
            [b"<think>", b"\n", b"R", b"</think>", b"\n\n", b"A", b""],
            [("", None), ("", None), ("R", R), ("", None), ("", None), ("A", A), ("", A)],
            [],
        ),
        # A token that ends one part leaves the beginning of the next to the next token.
        ([b"<think>one", b" two</think>A", b" B"], [("one", R), (" two", R), ("A B", A)], []),
        ([b"<think>one</th"], [("one", R)], [(R, "</th")]),
        # A stop string ends a reply in any part.
        ([b"<think>oneENDtwo"], [("one", R)], []),
    ],
)
def test_each_token_belongs_to_the_part_its_text_does(
    pieces: list[bytes],
    pushed: list[tuple[str, Part | None]],
    held: list[tuple[Part | None, str]],
) -> None:
    text = ReplyText(tagged("<think>", "</think>").begin(""), stop=["END"])
    assert [text.push(piece) for piece in pieces] == pushed
    assert text.stopped is (b"END" in pieces[-1])
    assert text.flush() == held


# --- replies of the tiny pair that reason ---


CLOSES = "qzq"


def thinking(rig: Rig, *, can_end: bool = True) -> ReplyParts:
    """A reply that begins in its reasoning."""
    model = rig.target.model
    closing = model.tokenize(CLOSES, bos=False, special=True) if can_end else []
    return ReplyParts(tagged("", CLOSES).begin(""), model.piece, tuple(closing))


def ended_at(rig: Rig, prompt: tuple[int, ...], index: int, parts: ReplyParts, n: int) -> Reply:
    """A reply whose reasoning is asked to end after the round of this number."""
    live = Live(Speculation(n_draft_max=n), 0.0)
    changes = {index: Set(answer_now=True)}
    return rig.reply(InParts(prompt, parts), live=live, changes=changes, max_tokens=40)


@pytest.mark.parametrize("n_draft_max", [0, 3])
def test_the_answer_goes_on_from_where_the_reasoning_was_ended(
    rig: Rig, tiny_models: tuple[Model, Model], n_draft_max: int
) -> None:
    prompt, parts = rig.prompt("the cat sat"), thinking(rig)

    reply = ended_at(rig, prompt, 3, parts, n_draft_max)

    before = [token for round_ in reply.rounds[:4] for token in round_.tokens]
    after = [token for round_ in reply.rounds[4:] for token in round_.tokens]
    assert reply.rounds[4].given == parts.closing
    assert {token.part for token in before} == {Part.REASONING}
    # The first may bring what was held back: it could have begun the marker.
    assert {token.part for token in after[1:] if token.text} == {Part.ANSWER}
    written = [*prompt, *(token.id for token in before), *parts.closing]
    fresh = fresh_reply(tiny_models, tuple(written), max_tokens=len(after))
    assert [token.id for token in after] == fresh.tokens
    assert list(rig.generator.cache.tokens[: len(written)]) == list(written)


@pytest.mark.parametrize("part", Part)
def test_no_reasoning_to_end_and_no_way_to_end_it_leave_a_reply_as_it_is(
    rig: Rig, part: Part
) -> None:
    prompt = rig.prompt("the cat sat")
    parts = thinking(rig, can_end=False)
    if part is Part.ANSWER:
        parts = ReplyParts(tagged("y", CLOSES).begin(""), rig.target.model.piece, (1, 2))

    reply = ended_at(rig, prompt, 3, parts, 3)

    assert not any(round_.given for round_ in reply.rounds)
    assert {token.part for round_ in reply.rounds for token in round_.tokens} == {part}
    check_bookkeeping(reply, prompt)


@pytest.mark.parametrize("left", range(1, 7))
def test_reasoning_that_has_filled_the_context_ends_the_reply(
    tiny_models: tuple[Model, Model], left: int
) -> None:
    """Nobody has to wait for a decode that finds no room, however little was left."""
    with open_rig(*tiny_models, n_ctx=256) as rig:
        prompt = (rig.prompt("the cat sat on the mat and the dog" * 20) * 4)[: 256 - left]
        live = Live(Speculation(n_draft_max=3), 0.0)
        live.apply(Set(answer_now=True, n_min=1))
        # A reply that waits has no reasoning to end yet.
        assert (live.answer_now, live.speculation.n_min) == (False, 1)
        live.has_begun = True
        live.apply(Set(answer_now=True, n_min=0))
        reply = rig.reply(InParts(prompt, thinking(rig)), live=live, max_tokens=None)
        assert reply.end.finish_reason is FinishReason.CONTEXT
        assert len(rig.generator.cache.tokens) == 256


def test_what_is_held_back_at_the_end_keeps_its_parts(rig: Rig) -> None:
    """A text that may begin a stop string can reach from the reasoning into the answer."""
    prompt = rig.prompt("the cat sat")
    whole = rig.reply(prompt, max_tokens=24).text
    marker = whole[11:13]
    at = whole.index(marker)
    stop = [f"{whole[at - 4 : at + 6]}\0"]
    for n_tokens in range(1, 25):
        parts = ReplyParts(tagged("", marker).begin(""), rig.target.model.piece, ())
        reply = rig.reply(InParts(prompt, parts), stop=stop, max_tokens=n_tokens)
        written = dict.fromkeys(Part, "")
        for token in (token for round_ in reply.rounds for token in round_.tokens):
            written[token.part or Part.ANSWER] += token.text
        written[reply.end.tail_part or Part.ANSWER] += reply.end.tail
        text = rig.reply(prompt, max_tokens=n_tokens).text
        reasoning, _, answer = text.partition(marker)
        assert written == {Part.REASONING: reasoning, Part.ANSWER: answer}, n_tokens
