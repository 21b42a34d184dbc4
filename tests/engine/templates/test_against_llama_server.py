"""Prompts and parts beside those of llama.cpp's own server, on the same template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eaglechat.engine.templates.template import ChatTemplate
from eaglechat.wire.protocol import AS_IT_IS, Message, Thinking
from tests import tiny
from tests.engine.templates import dialects
from tests.engine.templates.dialects import CASES, NAMES
from tests.llama_server import llama_server

pytest.importorskip("xllamacpp", reason="llama.cpp's server comes with the extra dev")

CONVERSATIONS = (
    ({"role": "user", "content": "hi"},),
    ({"role": "system", "content": "Be brief."}, {"role": "user", "content": " hi\n"}),
    (
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "4", "reasoning_content": "Two and two."},
        {"role": "user", "content": "日本語 \"quoted\" <b>?"},
    ),
)  # fmt: skip

DIFFERENT = {
    ("harmony", "A"): "refused there: a reply without channels; here it is shown",
    ("switched", "<think>R</thi"): "half a marker at the end is lost there; here it is shown",
    ("wrapped", "<|START_THINKING|>R<|END_THINKING|><|START_RESPONSE|>A<|END_RESPONSE|>"):
        "answer tags are known there by Command R7B's own template only",
    ("wrapped", "<|START_RESPONSE|>A<|END_RESPONSE|>"): "the same",
}  # fmt: skip
"""Replies that are not read as llama.cpp reads them, and why."""


def _as_message(message: dict[str, str]) -> Message:
    return Message(
        role=message["role"],
        content=message["content"],
        reasoning=message.get("reasoning_content", ""),
    )


def _options(thinking: Thinking) -> dict[str, Any]:
    words: dict[str, Any] = {}
    if thinking.enabled is not None:
        words |= {"enable_thinking": thinking.enabled, "thinking_budget": 0}
    if thinking.effort is not None:
        words["reasoning_effort"] = thinking.effort
    return {"chat_template_kwargs": words} if words else {}


@pytest.mark.parametrize("name", NAMES)
def test_prompts_and_parts_are_those_of_llama_server(name: str, tmp_path: Path) -> None:
    # A grammar forces the replies, so any model that has all the bytes will do.
    model = tiny.write_model(tmp_path / "model.gguf", dialects.source(name), control=[])
    # llama.cpp takes the token 11 for the first one of a file that names none.
    template = ChatTemplate(dialects.source(name), bos=",", eos="<|the-end|>")
    with llama_server(model) as server:
        for messages in CONVERSATIONS:
            for thinking in (AS_IT_IS, dialects.OFF, Thinking(effort="high")):
                ours = template.render([_as_message(message) for message in messages], thinking)
                assert ours == server.prompt(list(messages), **_options(thinking))
        for case in (case for case in CASES if case.template == name):
            if (name, case.raw) in DIFFERENT:
                continue
            question = [{"role": "user", "content": "hi"}]
            theirs = server.parts_of(case.raw, question, **_options(case.thinking))
            assert [part.strip() for part in theirs] == [case.reasoning, case.answer], case.raw
