"""Reasoning that a server leaves in the text of its reply, between `<think>` and `</think>`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from eaglechat.wire.part_stream import Mode, PartStream, Segment
from eaglechat.wire.records import Part, Round, Token

_OPENS, _CLOSES = "<think>", "</think>"
_MODES = {
    "start": Mode(None, ((_OPENS, "reasoning"),), otherwise="answer"),
    "reasoning": Mode(Part.REASONING, ((_CLOSES, "after"),), drops_space=True),
    "after": Mode(Part.ANSWER, drops_space=True),
    "answer": Mode(Part.ANSWER),
}


class ReasoningSplitter:
    """Finds the reasoning at the beginning of a reply: vLLM, Ollama and others leave it there
    unless they are told otherwise.

    A server that sends reasoning apart is believed: its text is not searched for tags.
    """

    def __init__(self) -> None:
        self._stream = PartStream(_MODES, "start")

    def split(self, segments: Iterable[Segment]) -> list[Segment]:
        """The next texts of the reply; returns those whose part is decided now."""
        decided: list[Segment] = []
        for part, text in segments:
            if part is Part.ANSWER:
                decided += self._stream.push(text)
            else:
                decided += [*self._stream.flush(), (part, text)]
                self._stream = PartStream(_MODES, "answer")
        return decided

    def rest(self) -> list[Segment]:
        """The end of the reply; returns what was held back."""
        return self._stream.flush()


def parted_late(rounds: Sequence[Round]) -> list[Round] | None:
    """The rounds of a whole reply that has `</think>` and no `<think>`, with what comes before the
    tag as reasoning: the chat template opened that, and the server does not take it apart. None for
    any other reply, such as one with the tag in code.
    """
    tokens = [token for round_ in rounds for token in round_.tokens]
    text = "".join(token.text for token in tokens)
    before, tag, after = text.partition(_CLOSES)
    line = before.rpartition("\n")[2]
    is_code = before.count("```") % 2 or line.count("`") % 2
    if not tag or _OPENS in before or is_code or any(one.part is Part.REASONING for one in tokens):
        return None
    n_reasoning = len(before)
    answer_at = len(text) - len(after.lstrip())
    place = 0

    def parts(token: Token) -> list[Token]:
        nonlocal place
        start, place = place, place + len(token.text)
        thought, answer = text[start : min(place, n_reasoning)], text[max(start, answer_at) : place]
        own = Part.REASONING if start < n_reasoning else token.part
        first = [replace(token, text=thought, part=own)] if thought or not answer else []
        return [*first, *([replace(token, text=answer, part=Part.ANSWER)] if answer else [])]

    return [
        replace(one, tokens=tuple(part for token in one.tokens for part in parts(token)))
        for one in rounds
    ]
