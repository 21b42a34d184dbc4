"""Reasoning that a server leaves in the text, however it is cut into chunks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.links.http.openai import VLLM, LlamaServer, OpenAIServer
from eaglechat.wire import protocol as p
from eaglechat.wire.records import Part
from tests.links.http.fault_server import Ask, FaultServer, models_of
from tests.links.http.streamed import Streamed, said


def parts_of(kind: type[OpenAIServer], chunks: list[str]) -> tuple[str, str]:
    """Reasoning and answer, of a server that counts a token for each chunk in its usage, and in its
    timings: llama-server's are read."""
    sent = [
        said(text, usage={"completion_tokens": n}, timings={"predicted_n": n, "predicted_ms": n})
        for n, text in enumerate(chunks, 1)
    ]
    streamed = Streamed(kind()).send(*sent)
    streamed.end()
    reasoning, answer = (
        "".join(token.text for token in streamed.tokens if token.part is part) for part in Part
    )
    return reasoning, answer


KINDS = OpenAIServer, VLLM, LlamaServer
REPLIES = {
    "<think>\nHm, 2.\n</think>\n\nTwo.": ("Hm, 2.\n", "Two."),
    "\n<think>a < b</th</think>c</think>": ("a < b</th", "c</think>"),
    "<think>\n\n</think>\n\nTwo.": ("", "Two."),
    "<think>never\n closed </thin": ("never\n closed </thin", ""),
    "<think>": ("", ""),
    "<thin": ("", "<thin"),
    "  <b> is <think> no": ("", "  <b> is <think> no"),
    " ": ("", " "),
}


@given(st.lists(st.integers(0, max(map(len, REPLIES)))).map(sorted))
def test_a_reply_is_taken_apart_however_it_is_cut(cuts: list[int]) -> None:
    for text, parts in REPLIES.items():
        chunks = [text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])]
        for kind in KINDS:
            assert parts_of(kind, chunks) == parts


@given(st.lists(st.text("<think>/ \nab", max_size=9)))
def test_an_answer_alone_stays_as_it_is(chunks: list[str]) -> None:
    text = "".join(chunks)
    if not text.lstrip().startswith("<think>"):
        for kind in KINDS:
            assert parts_of(kind, chunks) == ("", text)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_server_takes_apart_itself_stays_as_it_is(kind: type[OpenAIServer]) -> None:
    delta = {"reasoning": "<think>", "content": "<think>x"}
    streamed = Streamed(kind()).send({"choices": [{"delta": delta}], "timings": {"predicted_n": 1}})
    streamed.end()
    texts = [(token.part, token.text) for token in streamed.tokens]
    assert texts == [(Part.REASONING, "<think>"), (Part.ANSWER, "<think>x")]


@pytest.mark.parametrize("kind", ["vllm", "library", "llamacpp"])
@pytest.mark.parametrize(
    ("pieces", "parts"),
    [
        (["Okay, ", "2.\n", "</think>", "\n\n", "Four", "."], ("Okay, 2.\n", "Four.")),
        (["Okay</th", "ink> Fo", "ur"], ("Okay", "Four")),
        (["Okay\n</think>\n\nFour</think>"], ("Okay\n", "Four</think>")),
        (["</think>Four"], ("", "Four")),
        (["\n\n</think>\n\nFour"], ("\n\n", "Four")),
        (["Okay</think>"], ("Okay", "")),
        (["The tag `</think>`", " ends it."], ("", "The tag `</think>` ends it.")),
        (["```xml\n</think>\n```"], ("", "```xml\n</think>\n```")),
        (["First <think> then ", "</think>."], ("", "First <think> then </think>.")),
    ],
)
def test_reasoning_that_the_prompt_has_begun_ends_at_its_tag(
    answered: Ask,
    server: FaultServer,
    kind: str,
    pieces: list[str],
    parts: tuple[str, str],
) -> None:
    server.models = models_of(kind)
    reply = answered(lambda handler: handler.reply(*pieces))
    (rounds,) = [event.rounds for event in reply.of(p.Settled)] or [reply.rounds]
    tokens = [token for round_ in rounds for token in round_.tokens]
    said = {part: "".join(t.text for t in tokens if t.part is part) for part in Part}
    assert (said[Part.REASONING], said[Part.ANSWER]) == parts
