"""Two turns with a tiny model of each family: what its tokens say is what the parts are, and what
the next prompt keeps of the reasoning is found in the KV cache."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from eaglechat.engine.llama.objects import Context, Model
from eaglechat.engine.llama.sampler import Sampler
from eaglechat.engine.loop import Generator
from eaglechat.engine.prompt import Prompter
from eaglechat.wire.protocol import Message
from eaglechat.wire.records import Part
from tests import tiny
from tests.engine.kind_pairs import Writes
from tests.engine.rig import Reply
from tests.engine.templates import dialects

QUESTION = Message(role="user", content="2 + 2?")
AGAIN = Message(role="user", content="Sure?")


@dataclass(frozen=True)
class Family:
    """A template of the tests, a reply to it, and whether the next prompt has the thought again."""

    name: str
    raw: str
    keeps: bool


FAMILIES = (
    Family("switched", "<think>\nTwo, two.\n</think>\n\n4", keeps=False),
    Family("forced", "Two, two.\n</think>\n\n4", keeps=False),
    Family("harmony", f"<|channel|>analysis<|message|>Two, two.{dialects.HARMONY_FINAL}4",
           keeps=False),
    Family("channel", "<|channel>thought\nTwo, two.\n<channel|>4", keeps=False),
    Family("blocks", "[THINK]Two, two.[/THINK]4", keeps=True),
    Family("budget", "<seed:think>Two, two.</seed:think>\n4", keeps=True),
    Family("wrapped", "<|START_THINKING|>Two, two.<|END_THINKING|>"
           "<|START_RESPONSE|>4<|END_RESPONSE|>", keeps=True),
    Family("unheard", "<|mull|>Two, two.<|/mull|>4", keeps=True),
)  # fmt: skip


class Chat:
    """Replies that a model is made to write."""

    def __init__(self, target: Context, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model = target.model
        self.prompter = Prompter(self.model)
        self.generator = Generator(target)
        self._monkeypatch = monkeypatch

    def reply(self, raw: str, *messages: Message) -> Reply:
        written = self.model.tokenize(raw, bos=False, special=True)
        ids = iter([*written, self.model.eos])
        self._monkeypatch.setattr(Sampler, "sample", lambda *_: next(ids))
        asked = self.prompter.conversation(messages)
        reply = Writes(self.generator).reply(asked, enabled=False, length=None)
        asked.note_reply(reply.tokens)
        return reply


def text_of(reply: Reply, part: Part | None) -> str:
    tokens = [token for round_ in reply.rounds for token in round_.tokens]
    return "".join(token.text for token in tokens if token.part is part).strip()


@pytest.fixture
def chat(family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    template = dialects.source(family.name)
    control = sorted(set(re.findall(r"<\|?/?[\w:|]+\|?>|\[/?[A-Z_]+\]", template)))
    if family.name == "harmony":
        # By these llama.cpp knows that <|end|> does not end a generation.
        control += ["<|return|>", "<|call|>"]
    file = tiny.write_model(tmp_path / "model.gguf", template, control)
    with Model(file) as model, Context(model, n_ctx=1024, n_batch=256, n_threads=1) as target:
        chat = Chat(target, monkeypatch)
        yield chat
        chat.generator.close()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_second_turn_goes_on_from_what_the_template_keeps(family: Family, chat: Chat) -> None:
    first = chat.reply(family.raw, QUESTION)

    assert text_of(first, Part.REASONING) == "Two, two."
    assert text_of(first, Part.ANSWER) == "4"
    # There are markers, and none is shown.
    assert any(token.part is None for round_ in first.rounds for token in round_.tokens)
    assert text_of(first, None) == ""

    reply = Message(role="assistant", content="4", reasoning="Two, two.")
    second = chat.reply(family.raw, QUESTION, reply, AGAIN)

    assert text_of(second, Part.REASONING) == "Two, two."
    before = chat.prompter.conversation([QUESTION]).tokens
    # A row less than what is shared: drafting starts from its features.
    kept = len(before) + len(first.tokens) - 2
    reused = second.prefills[0].reused
    if family.keeps:
        assert reused >= kept
    else:
        assert 0 < reused < kept
