"""Templates that would never end, or take all memory: each is stopped with a sentence, and the next
is rendered."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eaglechat.engine.templates import sandbox
from eaglechat.engine.templates.renderer import MOST_CHARACTERS
from eaglechat.engine.templates.sandbox import render
from eaglechat.engine.templates.template import ChatTemplate
from eaglechat.wire.errors import Cancelled, PromptError
from eaglechat.wire.protocol import Message
from eaglechat.wire.worker import cancelled_by

USER = Message(role="user", content="hi there")

LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
ENDLESS = {
    "loops in loops": LOOPS,
    "macros that call twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
    "filters in filters": "{% for a in range(99999) %}"
    "{{ range(99999) | map('string') | map('length') | sum }}{% endfor %}",
    "one multiplication": "{% set n = namespace(x=99) %}{% for i in range(99) %}"
    "{% set n.x = n.x * n.x %}{% endfor %}",
}
NESTED = (
    "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{{ n.x }}"
)
TOO_LARGE = {
    "a constant": "{{ 'x' * 10 ** 9 }}",
    "a number": "{{ 9 ** (9 ** 9) }}",
    "a doubled text": "{% set n = namespace(x='xy') %}{% for i in range(99) %}"
    "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "a width": "{{ '{:{}}'.format(1, 999999999) }}",
    "much output": "{% set x = 'x' * 999999 %}{% for a in range(99999) %}{{ x }}{% endfor %}",
    "a list of lists, written": NESTED,
    "a list of characters": "{{ ('\u03a9' * 16777216) | list | map('upper') | list | length }}",
    "text without sense": "{{ lipsum(999999) }}",
    "more than is read": "{{ 'x' * 20000000 }}",
}
NOT_OPEN = [
    "{{ ''.__class__.__mro__ }}",
    "{{ raise_exception.__globals__['sys'] }}",
    "{{ '{0.__class__.__mro__}'.format(1) }}",
    "{{ '{a.__class__.__mro__}'.format_map({'a': 1}) }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='system') }}",
    "{{ cycler.__init__.__globals__.os.getcwd() }}",
]
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux alone")


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS.keys())
def test_what_never_ends_is_stopped_at_the_deadline(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurried:
        hurried.setattr(sandbox, "DEADLINE_S", 0.2)
        with pytest.raises(PromptError, match=r"was stopped: it took longer than 0\.2 s"):
            render(source, {})
    assert render("{{ text }}!", {"text": "still here"}) == "still here!"


@pytest.mark.parametrize(("source", "n_asked"), [(LOOPS, 3), ("{{ text }}", 0)])
def test_a_rendering_that_is_cancelled_ends_and_leaves_nothing_wrong_behind(
    monkeypatch: pytest.MonkeyPatch, source: str, n_asked: int
) -> None:
    """An answer that still comes is not taken for that to the next task."""
    monkeypatch.setattr(sandbox, "DEADLINE_S", 60.0)
    asked = iter([False] * n_asked)
    with cancelled_by(lambda: next(asked, True)), pytest.raises(Cancelled):
        render(source, {"text": "too late"})
    assert render("{{ text }}!", {"text": "still here"}) == "still here!"


@ON_LINUX
@pytest.mark.parametrize("source", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_what_would_take_all_memory_is_stopped_before_it_does(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = r"was stopped: it (takes|writes) more than|it took longer than"
    with monkeypatch.context() as hurried:
        hurried.setattr(sandbox, "DEADLINE_S", 1.0)
        with pytest.raises(PromptError, match=says):
            render(source, {})
    assert render("{{ text }}!", {"text": "still here"}) == "still here!"


def test_a_template_that_was_stopped_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message shape, dialect and reasoning are found with a dozen renderings."""
    monkeypatch.setattr(sandbox, "DEADLINE_S", 0.2)
    tries: list[str] = []

    def counted(source: str, *rest: Any) -> str:
        tries.append(source)
        return render(source, *rest)

    monkeypatch.setattr(sandbox, "render", counted)
    with pytest.raises(PromptError, match="was stopped"):
        ChatTemplate(LOOPS, bos="", eos="")
    assert tries == [LOOPS]


@ON_LINUX
def test_the_system_limits_the_memory_of_a_template() -> None:
    with pytest.raises(PromptError, match="was stopped: it takes more than 1,024 MiB of memory"):
        ChatTemplate("{{ messages[0].content * 10 ** 9 }}", bos="", eos="").render((USER,))


def test_a_template_may_join_a_long_chat_with_tildes() -> None:
    source = (
        "{% set all = namespace(text='') %}{% for m in messages %}"
        "{% set all.text = all.text ~ m.role ~ ': ' ~ m.content ~ '\n' %}{% endfor %}"
        "{{ all.text }}"
    )
    roles: tuple[Literal["user", "assistant"], ...] = ("user", "assistant")
    chat = [Message(role=roles[n % 2], content=f"{n} " + "word " * 200) for n in range(801)]
    text = ChatTemplate(source, bos="", eos="").render(chat)
    assert text == "".join(f"{one.role}: {one.content}\n" for one in chat)


@ON_LINUX
def test_a_bomb_takes_nothing_of_the_process_that_holds_the_models() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PromptError, match="was stopped"):
            render("{{ ('\u03a9' * n) | list | length }}", {"n": 1 << 26})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20


def test_a_template_may_be_long() -> None:
    assert render("x" * (1 << 19), {}) == "x" * (1 << 19)


@pytest.mark.parametrize("source", ["{{ '\\ud800' }}", "{{ messages[0].content }}"])
def test_half_a_character_is_an_error_of_the_prompt(source: str) -> None:
    with pytest.raises(PromptError, match="surrogates not allowed"):
        ChatTemplate(source, bos="", eos="").render((Message(role="user", content="\ud800"),))


@pytest.mark.parametrize("source", NOT_OPEN)
def test_what_is_behind_the_template_is_not_open(source: str) -> None:
    with pytest.raises(PromptError, match="refuses this conversation"):
        ChatTemplate(source, bos="", eos="").render((USER,))


def test_what_the_filter_attr_finds_behind_the_template_is_empty() -> None:
    source = "{{ ('%s' | attr('format')).__self__.__class__ }}"
    assert ChatTemplate(source, bos="", eos="").render((USER,)) == ""


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{% for i in messages %}" * 25 + "{% endfor %}" * 25, "not valid Jinja: too many"),
        ("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}", "cannot be compiled"),
        ("{{ 5 | round(-999999999, 'floor') }}", "refuses this conversation: float division"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself without end"),
        ("{% include 'x' %}", "refuses this conversation"),
        ("{{ messages.nothing.more }}", "refuses this conversation"),
        ("{{ raise_exception('no tools') }}", "refuses this conversation: no tools"),
        ("{{ raise_exception('') }}", "refuses this conversation: TemplateError"),
    ],
)
def test_whatever_a_template_raises_is_an_error_of_the_prompt(source: str, says: str) -> None:
    with pytest.raises(PromptError, match=says) as error:
        ChatTemplate(source, bos="", eos="").render((USER,))
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ {'b': [1, {'\u00e9': none}]} | tojson }}", '{"b": [1, {"\u00e9": null}]}'),
        ("{{ [1] | tojson(indent=2, separators=(',', ':')) }}", "[\n  1\n]"),
        ("{{ {'b': 1, 'a': [1, 2]} | tojson(separators=(',', ':')) }}", '{"b":1,"a":[1,2]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=True) }}", '{"a": 2, "b": 1}'),
        ("{{ '\u00e9<' | tojson(ensure_ascii=True) }}", '"\\u00e9<"'),
        ("{{ '\u00e9' | tojson(True) }}", '"\\u00e9"'),
        ("{% for k, v in {'x': 1} | items %}{{ k }}={{ v }}{% endfor %}", "x=1"),
        ("{% for k, v in {'x': 1}.items() %}{{ k.upper() }}{{ v }}{% endfor %}", "X1"),
        ("{%- generation -%} a {%- endgeneration -%} b", "ab"),
        ("{% set n = namespace(x=0) %}{% for i in [1, 2, 3] if i != 2 %}{% set n.x = n.x + i %}"
         "{% endfor %}{{ n.x }}", "4"),
        ("{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n').startswith('b') }}", "True"),
        ("{{ [1, 2, 3][::-1] | first }}{{ 'xy'[::-1] }}{{ [1] + [2] }}", "3yx[1, 2]"),
        ("{% macro f(a, b=1) %}{{ a }}{{ b }}{{ caller() }}{% endmacro %}"
         "{% call f(2) %}!{% endcall %}", "21!"),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1"),
        ("a{% generation %}b{% endgeneration %}c", "abc"),
        ("{{ 'a' + nothing + 'b' }}", "ab"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("  {% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
    ],
)  # fmt: skip
def test_what_chat_templates_have_beside_jinja(source: str, text: str) -> None:
    assert render(source, {}) == text


def test_a_chat_has_neither_tools_nor_documents() -> None:
    source = "{{ tools is not none }}{{ documents is not none }}{{ (tools or []) | length }}"
    assert ChatTemplate(source, bos="", eos="").render((USER,)) == "FalseFalse0"


PIECES = st.sampled_from(
    ["{% for m in messages %}", "{% endfor %}", "{{ m.content }}", "{% if m.role == 'user' %}",
     "{% endif %}", "{{ messages | ", "length", "list", "join", "tojson", " }}", "{% set x = ",
     "[x, x]", "x + x", "x * 999", " %}", "{% macro f(a) %}", "{% endmacro %}", "{{ f(x) }}",
     "{{ x }}", "{%", "}}", "'a'", "(", ")", "{# ", "range(99999)", "x ~ x", "text"]
)  # fmt: skip


@settings(max_examples=60)
@example("{{ ('{' ~ ':' * 100000) % () }}{{ 'x' * 10 ** 9 }}")
@example("{{ ('\u03a9 ' * 2000000).split() | length }}")
@example("{% macro m() %}{{ varargs | length }}{% endmacro %}{{ m(*('\u03a9' * 4000000)) }}")
@example("{{ ('\u03a9 ' * 2000000) | title | length }}")
@example("{{a}}" * 9000)
@example("{% set n = namespace(x=1) %}{% set n.x = [n, n] %}{{ n }}")
@given(st.lists(PIECES, max_size=25).map("".join))
def test_nothing_but_an_error_of_the_prompt_comes_of_any_template(source: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "DEADLINE_S", 0.3)
        try:
            text = ChatTemplate(source, bos="", eos="").render((USER,))
        except PromptError:
            return
    assert len(text) <= MOST_CHARACTERS


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(TEXTS, max_size=5))
@example(["\x00", "\x1b]0;title\x07", "\u202e", "\U0010ffff", "\r\n\u2028"])
def test_what_was_said_reaches_the_prompt_unchanged(said: list[str]) -> None:
    chat = [Message(role="user", content=text) for text in said]
    source = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert ChatTemplate(source, bos="", eos="").render(chat) == "".join(said)
