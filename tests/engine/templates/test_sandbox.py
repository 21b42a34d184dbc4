"""Templates that would never end, or take all memory: each is stopped with a sentence, and the next
is rendered."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eaglechat.engine.templates import sandbox
from eaglechat.engine.templates.sandbox import (
    MOST_CHARACTERS,
    CancelledError,
    Template,
    TooMuchError,
)
from eaglechat.engine.templates.template import ChatTemplate
from eaglechat.wire.errors import PromptCancelledError, PromptError
from eaglechat.wire.protocol import Message

USER = Message(role="user", content="hi there")

_LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}"
ENDLESS = {
    "loops in loops": _LOOPS + "{% endfor %}{% endfor %}",
    "loops that write": _LOOPS + "x{% endfor %}{% endfor %}",
    "loops that set": _LOOPS + "{% set x = a + b %}{% endfor %}{% endfor %}",
    "a filtered loop": "{% for a in range(99999) %}{% for b in range(99999) if b < 0 %}"
    "{% endfor %}{% endfor %}",
    "a loop that looks ahead": "{% for a in range(99999) %}{% for b in range(99999) %}"
    "{% if loop.last %}{% endif %}{% endfor %}{% endfor %}",
    "a loop in a macro": "{% macro f() %}{% for b in range(99999) %}{% endfor %}{% endmacro %}"
    "{% for a in range(99999) %}{{ f() }}{% endfor %}",
    "macros that call twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
    "a recursive loop": "{% for a in range(99999) %}{% for x in range(99999) recursive %}"
    "{{ loop(range(99)) if x < 0 }}{% endfor %}{% endfor %}",
    "filters in filters": "{% for a in range(99999) %}"
    "{{ range(99999) | map('string') | map('length') | sum }}{% endfor %}",
}
TOO_LARGE = {
    "a long text": "{{ 'x' * 10 ** 9 }}",
    "a long text, the other way round": "{{ 10 ** 9 * 'x' }}",
    "a long list": "{{ [0] * 10 ** 9 }}",
    "a large number": "{{ 9 ** (9 ** 9) }}",
    "a number that grows": "{% set n = namespace(x=99) %}{% for i in range(99) %}"
    "{% set n.x = n.x * n.x %}{% endfor %}{{ n.x }}",
    "a doubled text": "{% set n = namespace(x='xy') %}{% for i in range(99) %}"
    "{% set n.x = n.x + n.x %}{% endfor %}",
    "a text doubled by ~": "{% set n = namespace(x='xy') %}{% for i in range(99) %}"
    "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "a text doubled by join": "{% set n = namespace(x='xy') %}{% for i in range(99) %}"
    "{% set n.x = [n.x, n.x] | join %}{% endfor %}",
    "a text doubled by the method join": "{% set n = namespace(x='xy') %}{% for i in range(99) %}"
    "{% set n.x = ''.join([n.x, n.x]) %}{% endfor %}",
    "a text doubled by a block": "{% set n = namespace(x='xy') %}{% for i in range(99) %}"
    "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "a text replaced by itself": "{% set n = namespace(x='aaaa') %}{% for i in range(99) %}"
    "{% set n.x = n.x.replace('a', n.x) %}{% endfor %}",
    "the filter replace": "{% set n = namespace(x='aaaa') %}{% for i in range(99) %}"
    "{% set n.x = n.x | replace('a', n.x) %}{% endfor %}",
    "a text formatted wide": "{{ '%999999999d' % 1 }}",
    "a width from elsewhere": "{{ '%*d' % (999999999, 1) }}",
    "the filter format": "{{ '%999999999d' | format(1) }}",
    "the method format": "{{ '{:999999999}'.format(1) }}",
    "the method format, a width in it": "{{ '{:{}}'.format(1, 999999999) }}",
    "a text formatted many times": "{{ ('{0}' * 99999).format('x' * 99999) }}",
    "a wide indent": "{{ 'a\nb' | indent(999999999) }}",
    "much literal text": "{% for a in range(99999) %}" + "x" * 9999 + "{% endfor %}",
    "much output": "{% set x = 'x' * 999999 %}{% for a in range(99999) %}{{ x }}{% endfor %}",
    "a list of lists, written": "{% set n = namespace(x=[1]) %}{% for i in range(99) %}"
    "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "a long list of a long text": "{% set x = 'x' * 999999 %}{{ [x] * 99 }}",
    "a list of characters": "{{ ('\u03a9' * 16777216) | list | map('upper') | list | length }}",
    "characters as arguments": "{% macro m() %}{{ varargs | length }}{% endmacro %}"
    "{{ m(*('\u03a9' * 16777216)) }}",
    "sorted characters": "{{ ('ab' * 8388608) | sort | length }}",
    "a text made wide by a method": "{{ 'x'.center(999999999) }}{{ 'x'.zfill(999999999) }}",
    "a text made wide by a filter": "{{ 'x' | center(999999999) }}",
    "a number as bytes": "{{ (1).to_bytes(999999999, 'big') }}",
    "text without sense": "{{ lipsum(999999) }}",
    "more than is read": "{{ 'x' * 20000000 }}",
}  # fmt: skip
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


def limited(source: str, cancelled: Callable[[], bool] = lambda: False, **values: Any) -> str:
    template = Template(source)
    with template.limits(cancelled, deadline_s=0.2):
        return template.render(**values)


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS.keys())
def test_what_never_ends_is_stopped_at_the_deadline(source: str) -> None:
    with pytest.raises(TooMuchError, match=r"took longer than 0\.2 s"):
        limited(source)


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS.keys())
def test_what_never_ends_is_stopped_when_it_is_cancelled(source: str) -> None:
    asked = iter([False] * 3)
    template = Template(source)
    with template.limits(lambda: next(asked, True), deadline_s=60.0), pytest.raises(CancelledError):
        template.render()


@ON_LINUX
@pytest.mark.parametrize("source", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_what_would_take_all_memory_is_stopped_before_it_does(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Jinja works out what is constant while it compiles: that has a deadline of its own.
    monkeypatch.setattr(sandbox, "DEADLINE_S", 1.0)
    says = r"it (takes|writes) more than|it took longer than"
    with pytest.raises((TooMuchError, PromptError), match=says):
        limited(source)


@ON_LINUX
def test_the_system_limits_the_memory_of_a_template() -> None:
    with pytest.raises(PromptError, match="was stopped: it takes more than 1,024 MiB of memory"):
        ChatTemplate("{{ messages[0].content * 10 ** 9 }}", bos="", eos="").render((USER,))


@pytest.mark.parametrize(
    "source",
    [TOO_LARGE["a list of lists, written"], ENDLESS["loops in loops"], "{{ n ** (n ** n) }}"],
)
def test_the_next_template_is_rendered_when_one_was_stopped(source: str) -> None:
    before = Template("{{ text }}")
    with pytest.raises(TooMuchError):
        limited(source, n=9)
    assert before.render(text="still here") == "still here"
    assert Template("{{ text }}!").render(text="here too") == "here too!"


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
    template = Template("{{ ('\u03a9' * n) | list | length }}")
    tracemalloc.start()
    try:
        with pytest.raises(TooMuchError), template.limits():
            template.render(n=1 << 26)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20


def test_a_template_may_be_long() -> None:
    assert Template("x" * (1 << 19)).render() == "x" * (1 << 19)


@pytest.mark.parametrize("source", ["{{ '\\ud800' }}", "{{ messages[0].content }}"])
def test_half_a_character_is_an_error_of_the_prompt(source: str) -> None:
    with pytest.raises(PromptError, match="surrogates not allowed"):
        ChatTemplate(source, bos="", eos="").render((Message(role="user", content="\ud800"),))


@pytest.mark.parametrize("source", NOT_OPEN)
def test_what_is_behind_the_template_is_not_open(source: str) -> None:
    with pytest.raises(PromptError):
        ChatTemplate(source, bos="", eos="").render((USER,))


def test_a_template_is_stopped_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "DEADLINE_S", 0.2)
    template = ChatTemplate(ENDLESS["loops in loops"], bos="", eos="")
    with pytest.raises(PromptError, match="chat template was stopped: it took longer than"):
        template.render((USER,))
    with pytest.raises(PromptCancelledError, match="cancelled while the prompt was rendered"):
        template.render((USER,), cancelled=lambda: True)


def test_a_cancelled_rendering_leaves_nothing_wrong_behind() -> None:
    template = ChatTemplate(
        "{% for m in messages %}{{ m.content[0].text }}{% endfor %}", bos="", eos=""
    )
    with pytest.raises(PromptCancelledError):
        template.render((USER,), cancelled=lambda: True)
    assert template.render((USER,)) == "hi there"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{% for i in messages %}" * 25 + "{% endfor %}" * 25, "not valid Jinja: too many"),
        ("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}", "cannot be compiled"),
        ("{{" + "-" * 9000 + "1 }}", "cannot be compiled"),
        ("{{ 5 | round(-999999999, 'floor') }}", "refuses this conversation: float division"),
        ("{% macro f(n) %}{{ f(0, varargs, varargs) }}{% endmacro %}{{ f(1, 2) }}",
         "calls itself without end"),
        ("{% include 'x' %}", "refuses this conversation"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself without end"),
        ("{{ messages.nothing.more }}", "refuses this conversation"),
        ("{{ [] | first | abs }}", "refuses this conversation"),
        ("{{ raise_exception('') }}", "refuses this conversation: TemplateError"),
    ],
)  # fmt: skip
def test_whatever_a_template_raises_is_an_error_of_the_prompt(source: str, says: str) -> None:
    with pytest.raises(PromptError, match=says) as error:
        ChatTemplate(source, bos="", eos="").render((USER,))
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'a' ~ 1 ~ none ~ [2, 'b'] }}", "a1None[2, 'b']"),
        ("{{ [1, 2] | join(', ') }}{{ [{'a': 1}] | join('', attribute='a') }}", "1, 21"),
        ("{{ ', '.join(['a', 'b']) }}{{ '-'.join([1, 2] | map('string')) }}", "a, b1-2"),
        ("{{ 'aXbX' | replace('X', '1') }}{{ 'aXbX'.replace('X', '2', 1) }}", "a1b1a2bX"),
        ("{{ 'a\n\nb' | indent(2) }}|{{ 'a\nb' | indent('> ', first=true) }}", "a\n\n  b|> a\n> b"),
        ("{{ '%s is %d' % ('x', 2) }}{{ '**%s**' % 'b' }}", "x is 2**b**"),
        ("{{ '%.2f' | format(1) }}", "1.00"),
        ("{{ '{} {a}'.format(1, a=2) }}", "1 2"),
        ("{{ [1, 2.5] | sum }}{{ [{'a': 2}] | sum(attribute='a') }}", "3.52"),
        ("{{ '12' | int }}{{ 'x' | int(7) }}{{ 2.567 | round(1) }}", "1272.6"),
        ("{{ {'b': [1, {'c': none}]} | tojson }}", '{"b": [1, {"c": null}]}'),
        ("{% set n = namespace(t='', l=[]) %}{% for i in range(3) %}{% set n.t = n.t ~ i %}"
         "{% set n.l = n.l + [i] %}{{ loop.index }}{{ loop.last }} {% endfor %}{{ n.t }}{{ n.l }}",
         "1False 2False 3True 012[0, 1, 2]"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% else %}none{% endfor %}", "a1"),
        ("{% for x in [] %}{% else %}none{% endfor %}", "none"),
        ("{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}",
         "123"),
        ("{% macro f(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}"
         "{{ f(1, 2, 3, c=4) }}", "12(3,){'c': 4}"),
        ("{% call(x) f() %}{{ x }}{% endcall %}", None),
        ("{{ 7 % 3 }}{{ 2 ** 10 }}{{ -7 // 2 }}", "11024-4"),
        ("{{ 3 * 'ab' }}{{ [1] * 2 }}{{ [1] + [2] }}", "ababab[1, 1][1, 2]"),
        ("{{ 'a' if (1, 2) == (1, 2) and 1 in [1] and 'x' not in 'y' }}", "a"),
    ],
)  # fmt: skip
def test_templates_mean_what_they_mean_in_jinja(source: str, text: str | None) -> None:
    if text is None:
        with pytest.raises(PromptError):
            ChatTemplate(source, bos="", eos="").render((USER,))
    else:
        assert Template(source).render() == text


PIECES = st.sampled_from(
    ["{% for m in messages %}", "{% endfor %}", "{{ m.content }}", "{% if m.role == 'user' %}",
     "{% endif %}", "{{ messages | ", "length", "list", "join", "tojson", " }}", "{% set x = ",
     "[x, x]", "x + x", "x * 999", " %}", "{% macro f(a) %}", "{% endmacro %}", "{{ f(x) }}",
     "{{ x }}", "{%", "}}", "'a'", "(", ")", "{# ", "range(99999)", "x ~ x", "text"]
)  # fmt: skip


@settings(max_examples=60)
@example("{{ ('{' ~ ':' * 100000) % () }}{{ 'x' * 10 ** 9 }}")
@example("{{ ('{' ~ ':' * 100000 ~ '{').format() }}")
@example("{{ ('\u03a9' * 4000000) | list | length }}")
@example("{{ ('\u03a9' * 4000000) | map('upper') | list | length }}")
@example("{{ ('\u03a9,' * 2000000).split(',') | length }}")
@example("{{ ('\u03a9 ' * 2000000).split() | length }}")
@example("{{ ('\u03a9\n' * 2000000).splitlines() | length }}")
@example("{% macro m() %}{{ varargs | length }}{% endmacro %}{{ m(*('\u03a9' * 4000000)) }}")
@example("{{ ('\u03a9' * 4000000) | sort | length }}")
@example("{{ ('\u03a9' * 4000000) | unique | list | length }}")
@example("{{ ('\u03a9 ' * 2000000) | title | length }}")
@example("{{ ('\u03a9' * 4000000) | join('') | length }}")
@example("{{ ('{' ~ ':'*100000) % () }}")
@example("{{a}}" * 9000)
@example("{{ (',' * 16777216).split(',') | length }}{{ ('ab' * 8388608) | title | length }}")
@example(
    "{% set n = namespace(x={}) %}{% for i in range(99) %}"
    "{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}{{ n.x == {} }}"
)
@example("{% set n = namespace(x=1) %}{% set n.x = [n, n] %}{{ n }}")
@given(st.lists(PIECES, max_size=25).map("".join))
def test_nothing_but_an_error_of_the_prompt_comes_of_any_template(source: str) -> None:
    try:
        text = ChatTemplate(source, bos="", eos="").render((USER,))
    except PromptError:
        return
    assert len(text) <= MOST_CHARACTERS


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(TEXTS, max_size=5))
@example(["\x00", "\x1b]0;title\x07", "\u202e", "\U0010ffff"])
def test_what_was_said_reaches_the_prompt_unchanged(said: list[str]) -> None:
    chat = [Message(role="user", content=text) for text in said]
    source = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert ChatTemplate(source, bos="", eos="").render(chat) == "".join(said)
