"""Chats that outgrow the context: both KV caches hold what remains, whole turn for whole turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eaglechat.engine.llama.objects import Model
from eaglechat.engine.prompt import Prompter
from eaglechat.engine.sequences import find_cut
from eaglechat.wire.protocol import Message
from eaglechat.wire.records import FinishReason, Round, Window
from tests import tiny
from tests.engine.rig import (
    Reply,
    Rig,
    first_position,
    open_rig,
    plainly,
)

SYSTEM = "the system prompt stays"
N_CTX = 256
TEMPLATE = (
    "{% for m in messages %}{{ ('x' if m['role'] == 'assistant' else '') + m['content'] + ' ' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'x' }}{% endif %}"
)
"""Renders earlier prompts and replies as they were, as templates of real models do."""

# --- turns, as the template renders them ---


def conversation(*texts: str, system: str | None = SYSTEM) -> list[Message]:
    messages = [Message(role="system", content=system)] if system is not None else []
    return messages + [
        Message(role="assistant" if index % 2 else "user", content=text)
        for index, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def models(
    tmp_path_factory: pytest.TempPathFactory, tiny_models: tuple[Model, Model]
) -> Iterator[tuple[Model, Model]]:
    path = tmp_path_factory.mktemp("turns") / "target.gguf"
    with Model(tiny.write_target(path, template=TEMPLATE)) as target:
        yield target, tiny_models[1]


@pytest.fixture
def small(models: tuple[Model, Model]) -> Iterator[Rig]:
    """A loop with a context of three turns or so."""
    with open_rig(*models, n_ctx=N_CTX, n_batch=64) as rig:
        yield rig


def test_a_shorter_prompt_is_that_of_the_shorter_conversation(small: Rig) -> None:
    texts = ("one two", "the reply", "three", "more of that", "four")
    turns = small.prompter.conversation(conversation(*texts))

    assert (turns.count, small.prompter.conversation(conversation()).count) == (3, 0)
    assert turns.without(0) == small.prompter.conversation(conversation(*texts)).tokens
    assert (
        turns.without(1)
        == Prompter(small.target.model).conversation(conversation(*texts[2:])).tokens
    )
    assert (
        turns.without(2)
        == Prompter(small.target.model).conversation(conversation(*texts[4:])).tokens
    )


def test_sampled_tokens_remain_as_they_were_sampled(small: Rig) -> None:
    t, h = tiny.TOKENS.index("t"), tiny.TOKENS.index("h")
    first = small.prompter.conversation(conversation("one")).tokens
    second = small.prompter.conversation(conversation("one", "two", "three"))
    # Tokenising would make one token of what was sampled as two.
    second.note_reply([t, h])
    turns = small.prompter.conversation(conversation("one", "two", "three", "th", "four"))

    assert len(first) < len(second.tokens) < len(turns.without(0))
    assert turns.without(0)[: len(second.tokens) + 2] == (*second.tokens, t, h)
    assert (t, h) == turns.without(1)[-len("four x") - 3 : -len("four x") - 1]


def test_a_template_that_numbers_its_turns_is_rendered_anew(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ m['content'] + 'abcdefgh'[loop.index0] + ' ' }}{% endfor %}x"
    )
    with Model(tiny.write_target(tmp_path / "target.gguf", template=template)) as model:
        prompter = Prompter(model)
        turns = prompter.conversation(conversation("one", "two", "three", system=None))
        assert (
            turns.without(1)
            == Prompter(model).conversation(conversation("three", system=None)).tokens
        )
        assert find_cut(turns.without(0), turns.without(1)) is None


# --- chats that outgrow the context ---


@dataclass
class LongChat:
    """Asks question after question, whole conversation and all, as the app does."""

    rig: Rig
    messages: list[Message] = field(default_factory=conversation)
    replies: list[Reply] = field(default_factory=list)

    def ask(self, text: str, *, max_tokens: int | None = 60, **options: object) -> Reply:
        self.messages.append(Message(role="user", content=text))
        asked = self.rig.prompter.conversation(self.messages)
        reply = self.rig.reply(asked, max_tokens=max_tokens, **options)
        asked.note_reply(reply.tokens)
        self.messages.append(Message(role="assistant", content=reply.text))
        self.replies.append(reply)
        return reply

    def in_context(self, first_turn: int) -> list[int]:
        """What the cache must hold after a reply in a context that begins at a turn."""
        answered = self.rig.prompter.conversation(self.messages[:-1])
        return [*answered.without(first_turn), *self.replies[-1].tokens]


def check_cache(chat: LongChat) -> None:
    """Both caches hold whole turns, the system prompt before them, and the reply."""
    reply, rig = chat.replies[-1], chat.rig
    held = list(rig.generator.cache.tokens)
    wanted = chat.in_context(reply.windows[-1].first_turn if reply.windows else 0)
    assert held == wanted[: len(held)]
    assert len(wanted) - len(held) <= 1
    assert rig.target.last_position(0) == len(held) - 1
    assert rig.drafter.known == len(held)
    assert rig.draft.last_position(0) <= len(held)


def test_twelve_turns_run_through_a_context_of_three(small: Rig) -> None:
    chat = LongChat(small)
    for letter in "abcdefghijkl":
        reply = chat.ask(f"question {letter}")
        assert (reply.end.finish_reason, reply.offs) == (FinishReason.LENGTH, [])
        assert reply.end.tokens == 60
        check_cache(chat)
        if reply.windows:
            assert all(window.kv_kept for window in reply.windows)
            # What was in the cache is not read again.
            assert reply.end.timings.prefill_tokens < 30

    first_turns = [reply.windows[-1].first_turn for reply in chat.replies if reply.windows]
    assert first_turns == sorted(first_turns)
    assert len(first_turns) >= 9
    assert first_turns[-1] >= 8
    system = small.prompter.conversation(conversation()).tokens
    assert list(small.generator.cache.tokens[: len(system) - 1]) == list(system[:-1])


def test_reading_again_can_be_cancelled(small: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small.generator.cache, "can_shift", False)
    chat = LongChat(small)
    chat.ask("one")
    chat.ask("two")
    messages = [*chat.messages, Message(role="user", content="three")]
    asked = small.prompter.conversation(messages)

    def moved_in_mid_reply(so_far: Reply) -> bool:
        kinds = [type(event) for event in so_far.events]
        return Round in kinds and Window in kinds[kinds.index(Round) :]

    reply = small.reply(asked, max_tokens=200, cancel_at=moved_in_mid_reply)

    assert reply.end.finish_reason is FinishReason.CANCELLED
    assert not reply.windows[-1].kv_kept
    assert reply.tokens
    assert chat.ask("four").end.finish_reason is FinishReason.LENGTH
    check_cache(chat)


def test_a_template_that_refuses_the_rest_ends_the_reply_and_keeps_it(tmp_path: Path) -> None:
    template = (
        "{% if messages[0]['content'] != 'one' %}{{ raise_exception('no') }}{% endif %}" + TEMPLATE
    )
    target, draft = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    with (
        Model(tiny.write_target(target, template=template)) as target_model,
        Model(tiny.write_draft(draft)) as draft_model,
        open_rig(target_model, draft_model, n_ctx=N_CTX) as rig,
    ):
        chat = LongChat(rig, [])
        chat.ask("one")
        reply = chat.ask("two", max_tokens=None)
        assert reply.end.finish_reason is FinishReason.CONTEXT
        assert reply.end.tokens > 100


# --- the draft's own window ---


@pytest.mark.parametrize("draft_window", [16, 100])
def test_the_draft_keeps_the_last_positions_and_the_text_stays_the_same(
    models: tuple[Model, Model], small: Rig, draft_window: int
) -> None:
    with open_rig(*models, n_ctx=N_CTX, n_batch=64, draft_window=draft_window) as rig:
        chat, plain = LongChat(rig), LongChat(small)
        for question in ("one", "two", "three", "four", "five"):
            reply = chat.ask(question, max_tokens=50)
            assert reply.tokens == plain.ask(question, max_tokens=50, live=plainly()).tokens
            check_cache(chat)
            kept = len(rig.generator.cache.tokens) - first_position(rig.draft)
            assert (
                min(draft_window, len(rig.generator.cache.tokens)) <= kept < draft_window + 64 + 64
            )
        assert any(reply.windows for reply in chat.replies)
        assert sum(round_.n_accepted for reply in chat.replies for round_ in reply.rounds) > 0
        # Further back than the draft looks: it begins again from there.
        edited = [*rig.generator.cache.tokens[:20], *rig.generator.cache.tokens[30:60]]
        again = rig.reply(edited)
        assert again.offs == []
        assert again.tokens == small.reply(edited, live=plainly()).tokens
