"""Conversations in the shape each template reads."""

from __future__ import annotations

import pytest

from eaglechat.engine.templates.template import ChatTemplate
from eaglechat.wire.protocol import Message, Thinking
from tests.engine.templates import dialects

SYSTEM = Message(role="system", content="Be brief.")
QUESTION = Message(role="user", content="2 + 2?")
REPLY = Message(role="assistant", content="4", reasoning="Two and two.")


def render(name: str, *messages: Message, thinking: Thinking | None = None) -> str:
    template = ChatTemplate(dialects.source(name), bos="<s>", eos="</s>")
    return template.render(messages, thinking)


def test_a_system_prompt_goes_into_the_question_where_a_template_refuses_it() -> None:
    assert render("plain", SYSTEM, QUESTION) == (
        "<start_of_turn>user\nBe brief.\n2 + 2?<end_of_turn>\n<start_of_turn>model\n"
    )


def test_reasoning_is_given_back_in_the_field_a_template_reads() -> None:
    again = Message(role="user", content="Sure?")

    assert "<seed:think>Two and two.</seed:think>\n4" in render("budget", QUESTION, REPLY, again)
    assert "[THINK]Two and two.[/THINK]4</s>" in render("blocks", QUESTION, REPLY, again)
    assert "<|mull|>Two and two.<|/mull|>4" in render("unheard", QUESTION, REPLY, again)
    assert "analysis<|message|>Two and two." in render("harmony", QUESTION, REPLY)


def test_what_a_template_drops_of_earlier_turns_stays_away() -> None:
    prompt = render("harmony", QUESTION, REPLY, Message(role="user", content="Sure?"))

    assert "Two and two." not in prompt
    assert "final<|message|>4<|end|>" in prompt


@pytest.mark.parametrize(
    ("name", "thinking", "written"),
    [
        ("switched", Thinking(enabled=False), "<think>\n\n</think>\n\n"),
        ("channel", Thinking(enabled=False), "<|channel>thought\n<channel|>"),
        ("budget", Thinking(enabled=False), "Answer at once."),
        ("harmony", Thinking(effort="high"), "Reasoning: high"),
    ],
)
def test_thinking_is_switched_in_the_words_of_the_template(
    name: str, thinking: Thinking, written: str
) -> None:
    assert written in render(name, QUESTION, thinking=thinking)
    assert written not in render(name, QUESTION)


def test_what_is_undefined_adds_nothing_to_a_text() -> None:
    template = ChatTemplate("{{ 'a' + functions + 'b' }}{{ messages[0].content }}", bos="", eos="")

    assert template.render([QUESTION]) == "ab2 + 2?"
