"""How a model marks its reasoning: known from its chat template and vocabulary, not its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eaglechat.engine.sequences import common_prefix
from eaglechat.wire.part_stream import Mode, PartStream
from eaglechat.wire.records import Part

Render = Callable[..., str | None]
"""render(messages, prompting=bool) returns a text, or None if the template refuses the messages."""

_TAGS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
)
_ANSWER_TAGS = (
    # Granite's own words; a bare <response> is how others show what a tool said.
    ("<response></response>", "<response>", "</response>"),
    ("<|START_RESPONSE|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<|START_TEXT|>", "<|START_TEXT|>", "<|END_TEXT|>"),
)
"""What a template contains if answers stand in tags, and the two tags."""
_START, _REASONING, _BETWEEN, _ANSWER, _HEADER, _NEXT = (
    "start", "reasoning", "between", "answer", "header", "next",
)  # fmt: skip
_REASON, _REPLY = "What the user wants is clear.", "This is my answer to it."
_CLOSING = re.compile(r"<\|close\|>\w+<\|sep\|>|<[^<>\s][^<>\n]{0,40}>|\[/?[A-Z][A-Z_ ]+\]")


@dataclass(frozen=True)
class Dialect:
    """How a model's replies are marked; without `closes` they have no reasoning."""

    modes: Mapping[str, Mode]
    opens: str = ""
    closes: str = ""
    answers: str = ""
    """The text with which the model ends its reasoning and begins the answer."""

    @property
    def reasons(self) -> bool:
        return bool(self.closes)

    def begin(self, generation_prompt: str) -> PartStream:
        """Splits a reply; the prompt ends with `generation_prompt`, of the assistant's turn."""
        if not self.reasons:
            return PartStream(self.modes, _START)
        if not self.opens:
            return PartStream(self.modes, _REASONING)
        _, opened, inside = generation_prompt.rpartition(self.opens)
        # After closed reasoning the answer may still stand in tags.
        start = _START if not opened else _BETWEEN if self.closes in inside else _REASONING
        return PartStream(self.modes, start)

    @property
    def markers(self) -> frozenset[str]:
        return frozenset(literal for mode in self.modes.values() for literal, _ in mode.exits)


ANSWER_ONLY = Dialect({_START: Mode(Part.ANSWER)})
"""The whole reply is the answer."""


def find_dialect(
    source: str, render: Render, is_control: Callable[[str], bool] = lambda _: False
) -> Dialect:
    """The dialect of a chat template; `is_control` says whether a text is a control token."""
    if "<|channel|>" in source and "<|message|>" in source:
        return _HARMONY
    if "<|channel>" in source and "<channel|>" in source:
        return _GEMMA
    for opens, closes in _TAGS:
        if closes in source or (is_control(opens) and is_control(closes)):
            answer = next((tags[1:] for tags in _ANSWER_TAGS if tags[0] in source), ("", ""))
            return tagged(opens, closes, *answer)
    return _by_difference(render)


def tagged(
    opens: str, closes: str, answer_opens: str = "", answer_closes: str = "", *, direct: str = ""
) -> Dialect:
    """Reasoning between two tags at the beginning of a reply.

    The answer may stand between tags too. `direct` opens it if there is no reasoning before it.
    """
    into_answer = tuple((tag, _ANSWER) for tag in dict.fromkeys((answer_opens, direct)) if tag)
    out_of_answer = ((answer_closes, _NEXT),) if answer_closes else ()
    modes = {
        _START: Mode(
            None, ((opens, _REASONING), *into_answer) if opens else into_answer, otherwise=_ANSWER
        ),
        _REASONING: Mode(Part.REASONING, ((closes, _BETWEEN), *into_answer), drops_space=True),
        _BETWEEN: Mode(None, into_answer, otherwise="tagless"),
        _ANSWER: Mode(Part.ANSWER, out_of_answer),
        "tagless": Mode(Part.ANSWER, out_of_answer, drops_space=True),
        _NEXT: Mode(Part.ANSWER),
    }
    answers = f"\n{closes}\n\n" if closes.startswith("</") else closes + answer_opens
    return Dialect(modes, opens, closes, answers)


_HARMONY = Dialect(
    {
        _START: Mode(None, (("<|channel|>", _HEADER), ("<|start|>", _NEXT)), otherwise=_ANSWER),
        _NEXT: Mode(None, (("<|channel|>", _HEADER), ("<|message|>", _ANSWER))),
        _HEADER: Mode(None, (("<|message|>", _ANSWER),), by_name={"analysis": _REASONING}),
        _REASONING: Mode(
            Part.REASONING, (("<|end|>", _BETWEEN), ("<|channel|>", _HEADER)), drops_space=True
        ),
        _BETWEEN: Mode(None, (("<|start|>", _NEXT), ("<|channel|>", _HEADER)), otherwise=_ANSWER),
        _ANSWER: Mode(Part.ANSWER, (("<|end|>", _BETWEEN), ("<|return|>", _BETWEEN))),
    },
    "<|channel|>analysis<|message|>",
    "<|end|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
)
"""gpt-oss: a reply is several messages, each of which names its channel (OpenAI's harmony)."""

_GEMMA = Dialect(
    {
        _START: Mode(None, (("<|channel>", _HEADER),), otherwise=_ANSWER),
        _HEADER: Mode(None, (("\n", _ANSWER),), by_name={"thought": _REASONING}),
        _REASONING: Mode(Part.REASONING, (("<channel|>", _BETWEEN),), drops_space=True),
        _BETWEEN: Mode(None, (("<|channel>", _HEADER),), otherwise=_ANSWER),
        _ANSWER: Mode(Part.ANSWER, (("<|channel>", _HEADER), ("<channel|>", _ANSWER))),
    },
    "<|channel>thought\n",
    "<channel|>",
    "<channel|>",
)


def _by_difference(render: Render) -> Dialect:
    """The dialect of a template with unknown markers: renders a conversation with reasoning, and
    takes the texts before and after the reasoning for the markers."""
    question = {"role": "user", "content": "Hello"}
    plain = {"role": "assistant", "content": _REPLY}
    thought = plain | dict.fromkeys(("reasoning_content", "reasoning", "thinking"), _REASON)
    prompt = render([question])
    with_thought = render([question, thought], prompting=False)
    without = render([question, plain], prompting=False)
    if prompt is None or with_thought is None or without is None:
        return ANSWER_ONLY
    head, _, tail = with_thought.partition(_REASON)
    between, answered, _ = tail.partition(_REPLY)
    unthought = without.partition(_REPLY)[0]
    closing = _CLOSING.search(between)
    if not answered or closing is None:
        return ANSWER_ONLY
    closes = closing.group()
    opens = head[common_prefix(prompt, head) :].strip()
    spelled = closes.replace("</", "<").replace("close", "open")
    if not opens and spelled != closes and spelled in prompt:
        # The prompt itself opens the reasoning.
        opens = spelled
    direct = unthought[common_prefix(prompt, unthought) :].strip()
    return tagged(opens, closes, between[closing.end() :].strip(), direct=direct)


@dataclass(frozen=True)
class ReplyParts:
    stream: PartStream
    written: Callable[[int], bytes]
    """The bytes of a token; markers that are control tokens are spelled out."""
    closing: tuple[int, ...] = ()
    """The tokens that end the reasoning and begin the answer; empty if there are none."""
    begun: tuple[int, ...] = ()
    """The tokens that the reply begins with; they belong to the prompt."""
