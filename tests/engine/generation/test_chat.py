from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from eaglechat.engine.generation.prompt import Prompter
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.templates.template import ChatTemplate
from eaglechat.wire.errors import PromptError
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


# --- templates ---


def test_a_model_without_a_template_gets_chatml() -> None:
    assert render(None, *TURNS) == (
        "<|im_start|>system\nbe brief<|im_end|>\n"
        "<|im_start|>user\nhi there<|im_end|>\n"
        "<|im_start|>assistant\nhello<|im_end|>\n"
        "<|im_start|>user\nbye<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.real
def test_the_built_in_target_s_own_template_is_used(real_models: tuple[Model, Model]) -> None:
    prompter = Prompter(real_models[0])

    text = b"".join(real_models[0].spelled(token) for token in prompter.prompt((USER,)))

    assert text.decode() == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nhi there<|im_end|>\n<|im_start|>assistant\n"
    )


def test_templates_have_what_their_authors_count_on() -> None:
    source = """
    {%- if tools is defined and tools %}never{% endif -%}
    {{- bos_token -}}
    {%- for message in messages -%}
        {%- if message.role == 'assistant' %}{% continue %}{% endif -%}
        {{- message['content'] | trim | tojson -}}
    {%- endfor -%}
    {{- strftime_now('%Y') | length -}}{{ eos_token if add_generation_prompt }}
    """

    assert render(source, TURNS[2], Message(role="user", content=" é<\n ")).strip() == (
        '<s>"é<"4</s>'
    )


def test_the_marks_that_training_puts_around_replies_change_nothing() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    assert render(source) == "hi there"


def test_a_template_may_refuse_a_conversation_in_its_own_words() -> None:
    with pytest.raises(PromptError, match="refuses this conversation: no system prompt please"):
        render("{{ raise_exception('no system prompt please') }}")


@pytest.mark.parametrize(
    "source",
    ["{{ 1 / 0 }}", "{{ messages[9].content }}", "{{ messages.nothing() }}", "{{ 'a' + 1 }}"],
)
def test_a_template_that_fails_is_an_error_of_the_prompt(source: str) -> None:
    with pytest.raises(PromptError, match="refuses this conversation"):
        render(source)


def test_a_template_that_is_no_jinja_is_an_error_of_the_prompt() -> None:
    with pytest.raises(PromptError, match="not valid Jinja"):
        ChatTemplate("{% for %}", bos="", eos="")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__globals__['datetime'] }}",
        "{{ ('%s' | attr('format')).__self__.__class__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.append('more') }}",
        "{{ '{0.__class__}'.format(messages) }}",
    ],
)
def test_a_hostile_template_reaches_nothing(source: str) -> None:
    try:
        text = render(source)
    except PromptError:
        return
    # Jinja's sandbox hands out an undefined value, which writes nothing.
    assert text == ""


# --- prompts ---


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
    first = prompter.prompt((USER,))

    prompter.note_reply(first, [t, h, tiny.EOS])
    second = prompter.prompt((USER, Message(role="assistant", content="xth"), USER))

    assert second[: len(first) + 2] == (*first, t, h)
    assert spelled(model, second) == "<s>hi there xth hi there x"
    # An answer edited in between is tokenised like any text, after what is still the same.
    edited = prompter.prompt((USER, Message(role="assistant", content="xtha"), USER))
    assert spelled(model, edited) == "<s>hi there xtha hi there x"
    other = prompter.prompt((Message(role="user", content="hi th"),))
    assert spelled(model, other) == "<s>hi th x"


def test_a_reply_that_ends_inside_a_character_is_tokenised_again(
    prompter: Prompter, tiny_models: tuple[Model, Model]
) -> None:
    first = prompter.prompt((USER,))

    prompter.note_reply(first, [0, tiny.TOKENS.index("Ã")])
    second = prompter.prompt((USER, Message(role="assistant", content="xa"), USER))

    assert spelled(tiny_models[0], second) == "<s>hi there xa hi there x"


@pytest.fixture
def with_bos(tmp_path: Path) -> Iterator[Model]:
    template = "{{ bos_token }}" + tiny.TEMPLATE
    with Model(tiny.write_target(tmp_path / "bos.gguf", template=template)) as model:
        yield model


def test_the_beginning_is_written_once_though_template_and_tokenizer_both_would(
    prompter: Prompter, with_bos: Model
) -> None:
    tokens = Prompter(with_bos).prompt((USER,))

    assert tokens == prompter.prompt((USER,))
    assert tokens.count(tiny.BOS) == 1
    assert tokens[0] == tiny.BOS


def test_many_turns_find_each_other(prompter: Prompter) -> None:
    """Each prompt begins with the one before it and the reply to it, token by token."""
    messages: list[Message] = []
    known: tuple[int, ...] = ()
    for turn in range(12):
        messages.append(Message(role="user", content=f"{'abcdefghijkl'[turn]} th"))
        prompt = prompter.prompt(tuple(messages))
        assert prompt[: len(known)] == known
        reply = [tiny.TOKENS.index("t"), tiny.TOKENS.index("h")]
        prompter.note_reply(prompt, reply)
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
    prompter.prompt((USER,))

    longer = prompter.prompt(TURNS[1:])

    assert longer == tuple(map(ord, " " + render(None, *TURNS[1:])))
