"""Prompts: the built-in templates, and tokens that stay what was sampled; and which turns leave a
context that is full, as arithmetic."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from eaglechat.engine.llama.objects import Model
from eaglechat.engine.prompt import Asked, ContextWindow, Prompter
from eaglechat.engine.sequences import find_cut
from eaglechat.engine.templates.template import ChatTemplate
from eaglechat.wire.protocol import Message
from tests import tiny

USER = Message(role="user", content="hi there")
TURNS = (
    Message(role="system", content="be brief"),
    USER,
    Message(role="assistant", content="hello"),
    Message(role="user", content="bye"),
)


def render(source: str | None, *messages: Message) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>").render(messages or (USER,))


def test_a_model_without_a_template_gets_chatml_if_it_has_the_markers() -> None:
    markers = {"<|im_start|>", "<|im_end|>"}
    template = ChatTemplate(None, bos="<s>", eos="</s>", is_control=markers.__contains__)
    assert template.render(TURNS) == (
        "<|im_start|>system\nbe brief<|im_end|>\n"
        "<|im_start|>user\nhi there<|im_end|>\n"
        "<|im_start|>assistant\nhello<|im_end|>\n"
        "<|im_start|>user\nbye<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_base_model_goes_on_with_the_text() -> None:
    assert render(None, *TURNS) == "be brief\nhi therehello\nbye"
    assert render(None, *TURNS[:3]) == "be brief\nhi therehello"


@pytest.fixture
def prompter(tiny_models: tuple[Model, Model]) -> Prompter:
    return Prompter(tiny_models[0])


def spelled(model: Model, tokens: tuple[int, ...]) -> str:
    return b"".join(model.spelled(token) for token in tokens).decode()


def test_the_sampled_tokens_stand_for_the_text_of_a_reply(
    prompter: Prompter, tiny_models: tuple[Model, Model]
) -> None:
    """t and h were sampled one by one; tokenising would join them."""
    model = tiny_models[0]
    t, h, th = (tiny.TOKENS.index(token) for token in ("t", "h", "th"))
    assert model.tokenize("th", bos=False, special=True) == [th]
    asked = prompter.conversation((USER,))
    first = asked.tokens

    asked.note_reply([t, h, tiny.EOS])
    second = prompter.conversation((USER, Message(role="assistant", content="xth"), USER)).tokens

    assert second[: len(first) + 2] == (*first, t, h)
    assert spelled(model, second) == "<s>hi there xth hi there x"
    # An answer edited in between is tokenised like any text, after what is still the same.
    edited = prompter.conversation((USER, Message(role="assistant", content="xtha"), USER)).tokens
    assert spelled(model, edited) == "<s>hi there xtha hi there x"
    other = prompter.conversation((Message(role="user", content="hi th"),)).tokens
    assert spelled(model, other) == "<s>hi th x"


def test_a_reply_that_ends_inside_a_character_is_tokenised_again(
    prompter: Prompter, tiny_models: tuple[Model, Model]
) -> None:
    asked = prompter.conversation((USER,))

    asked.note_reply([0, tiny.TOKENS.index("Ã")])
    second = prompter.conversation((USER, Message(role="assistant", content="xa"), USER)).tokens

    assert spelled(tiny_models[0], second) == "<s>hi there xa hi there x"


@pytest.fixture
def with_bos(tmp_path: Path) -> Iterator[Model]:
    template = "{{ bos_token }}" + tiny.TEMPLATE
    with Model(tiny.write_target(tmp_path / "bos.gguf", template=template)) as model:
        yield model


def test_the_beginning_is_written_once_though_template_and_tokenizer_both_would(
    prompter: Prompter, with_bos: Model
) -> None:
    tokens = Prompter(with_bos).conversation((USER,)).tokens

    assert tokens == prompter.conversation((USER,)).tokens
    assert tokens.count(tiny.BOS) == 1
    assert tokens[0] == tiny.BOS


def test_many_turns_find_each_other(prompter: Prompter) -> None:
    """Each prompt begins with the one before it and the reply to it, token by token."""
    messages: list[Message] = []
    known: tuple[int, ...] = ()
    for turn in range(12):
        messages.append(Message(role="user", content=f"{'abcdefghijkl'[turn]} th"))
        asked = prompter.conversation(messages)
        prompt = asked.tokens
        assert prompt[: len(known)] == known
        reply = [tiny.TOKENS.index("t"), tiny.TOKENS.index("h")]
        asked.note_reply(reply)
        known = (*prompt, *reply)
        messages.append(Message(role="assistant", content="xth"))


class SpacePuttingModel:
    """Tokens are characters, and a space comes before every text, as SentencePiece has it."""

    bos = eos = -1
    adds_bos = False

    def metadata(self, _key: str) -> str | None:
        return None

    def tokenize(self, text: str, *, bos: bool, special: bool) -> list[int]:
        return [ord(character) for character in f" {text}"]

    def spelled(self, token: int) -> bytes:
        return chr(token).encode()

    piece = spelled

    def is_end(self, _token: int) -> bool:
        return False


def test_no_space_slips_in_where_a_prompt_goes_on_from_a_known_one() -> None:
    prompter = Prompter(cast(Model, SpacePuttingModel()))
    prompter.conversation((USER,)).note_reply(())

    longer = prompter.conversation(TURNS[1:]).tokens

    assert longer == tuple(map(ord, " " + render(None, *TURNS[1:])))


def test_names_of_control_tokens_that_a_user_writes_are_text(
    prompter: Prompter, tiny_models: tuple[Model, Model]
) -> None:
    """Those of the template stay control tokens, and what was read before is not read again."""
    model, end = tiny_models[0], tiny.END
    written = f"a{end}b <s>{end[:2]}{end}{end[2:]} \ufdd0{end}\ufdd1 \ufdd1"
    plain = prompter.conversation((USER,)).tokens
    controls = [token for token in plain if not model.piece(token)]

    asked = prompter.conversation((Message(role="user", content=written),))
    first = asked.tokens
    asked.note_reply([tiny.TOKENS.index("t"), tiny.EOS])
    second = prompter.conversation(
        (Message(role="user", content=written), Message(role="assistant", content="xt"), USER)
    ).tokens

    assert [token for token in first if not model.piece(token)] == controls
    assert prompter.conversation((Message(role="user", content=end),)).text == f"{end} x"
    assert second[: len(first)] == first
    # In a reply the template may look for them.
    assert (
        tiny.EOS
        in prompter.conversation((USER, Message(role="assistant", content=f"x{end}"), USER)).tokens
    )


# --- a full context ---


class Lengths(Asked):
    """Turns of given lengths behind a system prompt of ten tokens."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths
        super().__init__(self.without(0))

    @property
    def count(self) -> int:
        return len(self.lengths)

    def without(self, n: int) -> tuple[int, ...]:
        turns = enumerate(self.lengths[n:], n)
        return (*[0] * 10, *(turn for turn, length in turns for _ in range(length)))


def window_of(*lengths: int, n_ctx: int = 400, can_shift: bool = True) -> ContextWindow:
    return ContextWindow(Lengths(*lengths), n_ctx, can_shift=can_shift)


@pytest.mark.parametrize(
    ("lengths", "can_shift", "n_written", "first_turn"),
    [
        # A quarter of the context is free then, or half of it if the rest has to be read again.
        ((80, 80, 80, 80, 60), True, 0, 2),
        ((80, 80, 80, 80, 60), False, 0, 3),
        # What a reply has written counts.
        ((80, 80, 80, 60), True, 0, 1),
        ((80, 80, 80, 60), True, 80, 2),
    ],
)
def test_as_few_turns_leave_as_free_enough_of_the_context(
    lengths: tuple[int, ...], can_shift: bool, n_written: int, first_turn: int
) -> None:
    window = window_of(*lengths, can_shift=can_shift)
    assert window.move(n_written)
    left = sum(lengths[first_turn:])
    found = window.first_turn, window.tokens_dropped, len(window.tokens)
    assert found == (first_turn, sum(lengths) - left, 10 + left)
    assert window.has_room(1000)


def test_a_short_reply_needs_no_more_room_than_it_can_fill() -> None:
    window = window_of(80, 80, 80, 80, 60)
    assert window.has_room(10)
    assert not window.has_room(11)


def test_the_last_turn_never_leaves() -> None:
    window = window_of(100, 390)
    assert window.move()
    assert (window.first_turn, len(window.tokens)) == (1, 400)
    assert not window.move()
    assert not ContextWindow(Asked([1] * 400), 400, can_shift=True).move()


def test_turns_that_left_stay_away_as_long_as_the_cache_holds_their_conversation() -> None:
    turns = Lengths(80, 80, 80, 60)
    ours, others = [*turns.without(2), 9, 9], [*[0] * 10, *[7] * 150]
    for cached, first_turn in ((ours, 2), (others, 0), ([], 0)):
        window = ContextWindow(turns, 300, can_shift=True)
        before = window.fit(1, 2, cached)
        assert before == turns.without(first_turn)


def test_a_cut_turns_one_sequence_into_the_other_at_a_token_they_share() -> None:
    draw = random.Random(5)
    for _ in range(300):
        head, removed, rest = (
            [draw.choice("ab") for _ in range(draw.randrange(1, 9))] for _ in range(3)
        )
        before, after = head + removed + rest, head + rest
        cut = find_cut([*map(ord, before)], [*map(ord, after)])
        assert cut is not None
        assert before[: cut.start] + before[cut.stop :] == after
    assert find_cut([1, 5, 2, 3, 5, 6, 7], [1, 5, 6, 7]) == range(1, 4)


@pytest.mark.parametrize("after", [[1, 2, 9], [1, 2, 3, 4], [2, 4], [1, 2, 3, 4, 5]])
def test_there_is_no_cut_where_more_than_one_stretch_differs(after: list[int]) -> None:
    assert find_cut([1, 2, 3, 4], after) is None
