"""The prompts that are measured: those built in, and a file's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.resources import files

import msgspec

from eaglechat.wire.protocol import Message

HEADING = "=== "
"""What the line before each prompt of a file begins with; its name follows."""


@dataclass(frozen=True)
class Prompt:
    """A prompt to measure. Its name heads a row of the tables."""

    name: str
    text: str
    category: str
    """A prompt without one is a category of its own."""

    @property
    def messages(self) -> tuple[Message, ...]:
        return (Message(role="user", content=self.text),)


def builtin_prompts() -> list[Prompt]:
    """One prompt for each of eight kinds of work."""
    return _prompts_in("prompts.txt")


def copy_prompts() -> list[Prompt]:
    """Prompts whose answers repeat much of the prompt: edits, corrections, quotations."""
    return _prompts_in("copies.txt")


def _prompts_in(name: str) -> list[Prompt]:
    text = files("eaglechat.engine.bench").joinpath(name).read_text(encoding="utf-8")
    return parse_prompts(text)


def parse_prompts(text: str) -> list[Prompt]:
    """The prompts of a file, each after a line `=== name`. A text that does not begin with such a
    line is one prompt.

    Raises ValueError naming an empty prompt or a name used twice.
    """
    if not text.startswith(HEADING):
        text = f"{HEADING}prompt\n{text}"
    prompts = []
    for block in f"\n{text}".split(f"\n{HEADING}")[1:]:
        name, _, body = block.partition("\n")
        if not body.strip():
            raise ValueError(f"the prompt {name.strip()!r} is empty")
        prompts.append(Prompt(name.strip(), body.strip(), name.strip()))
    names = [prompt.name for prompt in prompts]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise ValueError(f"two prompts are named {doubled!r}")
    return prompts


class _Line(msgspec.Struct):
    prompt: str
    category: str = ""


def parse_lines(text: str) -> list[Prompt]:
    """The prompts of JSON lines: objects with a `prompt` and perhaps a `category`; other fields
    are ignored. Each is named after its category and its number there.

    Raises ValueError naming the number of a line that is no such object.
    """
    prompts, counts = [], Counter[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError as error:
            raise ValueError(f"line {number}: {error}") from error
        if not found.prompt.strip():
            raise ValueError(f"line {number}: the prompt is empty")
        category = found.category.strip()
        counts[category] += 1
        name = f"{category or 'prompt'} {counts[category]}"
        prompts.append(Prompt(name, found.prompt, category or name))
    if not prompts:
        raise ValueError("there is no prompt in it")
    return prompts
