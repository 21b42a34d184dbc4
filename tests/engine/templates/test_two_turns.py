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
from eaglechat.engine.loop import Generator, Live
from eaglechat.engine.prompt import Prompter
from eaglechat.wire.protocol import Message, Sampling, Speculation
from eaglechat.wire.records import Part, Prefill, Round, Token
from tests import tiny
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


@dataclass(frozen=True)
class Turn:
    """A reply of a tiny model, and what of its prompt was in the KV cache."""

    tokens: tuple[Token, ...]
    reused: int

    def text(self, part: Part) -> str:
        return "".join(token.text for token in self.tokens if token.part is part).strip()


class Chat:
    """Replies that a model is made to write."""

    def __init__(self, target: Context, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model = target.model
        self.prompter = Prompter(self.model)
        self.generator = Generator(target)
        self._monkeypatch = monkeypatch

    def reply(self, raw: str, *messages: Message) -> Turn:
        written = self.model.tokenize(raw, bos=False, special=True)
        ids = iter([*written, self.model.eos])
        self._monkeypatch.setattr(Sampler, "sample", lambda *_: next(ids))
        asked = self.prompter.conversation(messages)
        events = list(
            self.generator.reply(
                asked,
                Sampling(),
                Live(Speculation(enabled=False), 0.7),
                seed=1,
            )
        )
        rounds = [event for event in events if isinstance(event, Round)]
        asked.note_reply([t.id for round_ in rounds for t in round_.tokens])
        return Turn(
            tuple(token for round_ in rounds for token in round_.tokens),
            next(event.reused for event in events if isinstance(event, Prefill)),
        )


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

    assert first.text(Part.REASONING) == "Two, two."
    assert first.text(Part.ANSWER) == "4"
    markers = [token for token in first.tokens if token.part is None]
    assert markers
    assert not any(token.text for token in markers)

    reply = Message(role="assistant", content="4", reasoning="Two, two.")
    second = chat.reply(family.raw, QUESTION, reply, AGAIN)

    assert second.text(Part.REASONING) == "Two, two."
    before = chat.prompter.conversation([QUESTION]).tokens
    # A row less than what is shared: drafting starts from its features.
    kept = len(before) + len(first.tokens) - 2
    if family.keeps:
        assert second.reused >= kept
    else:
        assert 0 < second.reused < kept
