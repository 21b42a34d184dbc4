"""Print the prompt that a model would see, and the parts of a reply to it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Annotated, Any

import msgspec

from eaglechat.cli import options
from eaglechat.cli.status import OK, CommandError, complain, text_of
from eaglechat.settings.description import find
from eaglechat.settings.model import Settings
from eaglechat.wire.protocol import Message, Thinking


class MessagePart(msgspec.Struct, frozen=True, tag="text", tag_field="type"):
    """A part of a message's content, as in the OpenAI API."""

    text: str


class GivenMessage(msgspec.Struct, frozen=True):
    """A message of the file, as in the OpenAI API."""

    role: str
    content: str | list[MessagePart] | None = None
    reasoning_content: str | None = None

    def as_message(self) -> Message:
        content = self.content or ""
        if not isinstance(content, str):
            content = "\n".join(part.text for part in content)
        return Message(role=self.role, content=content, reasoning=self.reasoning_content or "")


Conversation = Annotated[list[GivenMessage], msgspec.Meta(min_length=1)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_pair_options(parser, draft=False)
    parser.add_argument(
        "--template", type=Path, metavar="FILE", help="a chat template in place of the model's own"
    )
    parser.add_argument(
        "--messages",
        type=Path,
        metavar="FILE",
        help='a JSON list of messages, as in the OpenAI API; without it, one: "hi"',
    )
    parser.add_argument(
        "--reply", type=Path, metavar="FILE", help="a model's raw reply, to show its parts"
    )
    shown = ("thinking", "effort", "system_prompt", "role")
    options.add_flags(parser, *(find("generation", key) for key in shown))
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    options.check_pair(args)
    settings = options.in_role(args, options.settings_of(args))
    template = text_of(args.template) if args.template else None
    reply = text_of(args.reply) if args.reply else None
    messages = _messages(args.messages, settings)
    shown = _shown(args, template, messages, settings.to_thinking(), reply)
    if args.json:
        print(json.dumps(shown, ensure_ascii=False))
    elif reply is None:
        print(shown["prompt"])
    else:
        print("\n".join(f"--- {name} ---\n{text}" for name, text in shown.items()))
    return OK


def _messages(file: Path | None, settings: Settings) -> tuple[Message, ...]:
    """The messages of the file, or a greeting without one. Raises OSError, CommandError."""
    messages: tuple[Message, ...] = (Message(role="user", content="hi"),)
    if file is not None:
        try:
            given = msgspec.json.decode(file.read_bytes(), type=Conversation)
        except msgspec.DecodeError as error:
            raise CommandError(f"{file} is not a list of messages: {error}") from error
        messages = tuple(message.as_message() for message in given)
    system = settings.generation.system_prompt
    if system and messages[0].role != "system":
        messages = (Message(role="system", content=system), *messages)
    return messages


def _shown(
    args: argparse.Namespace,
    template: str | None,
    messages: tuple[Message, ...],
    thinking: Thinking,
    reply: str | None,
) -> dict[str, Any]:
    """Raises CommandError, EngineError."""
    # They load llama.cpp and Jinja.
    from eaglechat.engine.llama import backend
    from eaglechat.engine.llama.objects import Model
    from eaglechat.engine.prompt import Prompter
    from eaglechat.engine.templates.template import ChatTemplate
    from eaglechat.wire.records import Part

    target = _target(args)
    if target is None and template is not None:
        source = ChatTemplate(template, bos="", eos="")
        prompt, parts = source.render(messages, thinking), source.parts(thinking)
    else:
        assert target is not None
        backend.start_backend(backend.LOG_ERRORS)
        with Model(target, vocabulary_only=True) as model:
            prompter = Prompter(model, template)
            asked = prompter.conversation(messages, thinking)
            prompt, parts = asked.text, asked.parts.stream
            if prompter.template.untemplated:
                complain(prompter.template.untemplated)
    shown = {"prompt": prompt}
    if reply is not None:
        segments = [*parts.push(reply), *parts.flush()]
        for part in Part:
            shown[part.value] = "".join(text for of, text in segments if of is part)
    return shown


def _target(args: argparse.Namespace) -> Path | None:
    """The model whose vocabulary the prompt is for. None if no model is named and the built-in pair
    is not installed: with --template no model is needed. Raises CommandError."""
    from eaglechat.cli.pairs import choose_pair

    named = args.pair is not None or args.target is not None
    try:
        return choose_pair(args).target
    except CommandError:
        if named or args.template is None:
            raise
        return None
