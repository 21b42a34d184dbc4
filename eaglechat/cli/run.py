"""Reply to one prompt and print the reply."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import msgspec

from eaglechat.chat.controls import not_followed
from eaglechat.cli import options
from eaglechat.cli.loading import CommandEngine, Interrupt, Waiting, choose_pair
from eaglechat.cli.status import INTERRUPTED, OK, WRONG_USAGE, complain, reason
from eaglechat.settings import Settings
from eaglechat.tui.texts.replies import ENDINGS, summary
from eaglechat.tui.texts.statistics import in_json, part_in_json
from eaglechat.wire.errors import EngineError
from eaglechat.wire.neutral import neutralise
from eaglechat.wire.protocol import (
    TOP_LIMIT,
    Answer,
    Auto,
    Chat,
    Done,
    Hello,
    Message,
    PairInfo,
    RoundDone,
    Settled,
    SpeculationStopped,
)
from eaglechat.wire.records import FinishReason, Part, ReplyEnd, Round
from eaglechat.wire.stats import Measured, PartsFold, PartStats, SpeculationStats, stats_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_pair_options(parser)
    options.add_server_options(parser)
    options.add_setting_options(parser, "generation", "speculation", "engine")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write one JSON line for each round"
    )
    parser.add_argument(
        "--top",
        type=options.number(int, 0, TOP_LIMIT),
        default=0,
        metavar="N",
        help=f"with --trace: the target's N likeliest tokens in each place, at most {TOP_LIMIT}",
    )
    parser.add_argument(
        "--reasoning",
        action="store_true",
        help="also print the reasoning, to standard error",
    )
    parser.add_argument("prompt", metavar="PROMPT", help="the prompt, or - to read it from stdin")


def run(args: argparse.Namespace) -> int:
    # Standard input may be anything; bytes that are no text become surrogates, as in arguments.
    raw = sys.stdin.buffer.read() if args.prompt == "-" else None
    prompt = args.prompt if raw is None else raw.decode("utf-8", errors="surrogateescape")
    problem = _wrong_usage(args, prompt)
    if problem:
        complain(problem)
        return WRONG_USAGE
    settings, problems = options.load_settings(args)
    options.report(problems)
    settings = options.in_role(args, settings)
    with Interrupt() as interrupt, _trace_file(args.trace) as trace:
        return _reply(args, settings, prompt, interrupt, trace)


def _wrong_usage(args: argparse.Namespace, prompt: str) -> str | None:
    if not prompt.strip():
        return "the prompt is empty"
    if not _is_text(prompt):
        return "the prompt is not text in UTF-8"
    if args.top and args.trace is None:
        return "--top is written to the trace: give --trace FILE too"
    return options.wrong_pair_usage(args)


def _is_text(text: str) -> bool:
    """False for a string with surrogates, which stand for bytes that are no UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _reply(
    args: argparse.Namespace,
    settings: Settings,
    prompt: str,
    interrupt: Interrupt,
    trace: BinaryIO | None,
) -> int:
    pair = choose_pair(args, settings)
    n_draft_max = options.overrides(args).get("speculation.n_draft_max")
    if n_draft_max is None:
        n_draft_max = pair.n_draft_max
    if n_draft_max is not None:
        settings = settings.with_value("speculation", "n_draft_max", n_draft_max)
    with CommandEngine(settings, interrupt, pair.server) as engine:
        info = engine.load(pair)
        if not settings.speculation.enabled and not engine.hello.can.plain:
            raise EngineError(f"{engine.hello.engine} cannot be asked to decode plainly")
        if info.speculation_off and settings.speculation.enabled:
            complain(f"speculation is off: {info.speculation_off}")
        elif info.chains_only and settings.speculation.shape == "tree":
            complain(f"drafts stay chains: {info.chains_only}")
        written = {}
        if not args.json:
            written[Part.ANSWER] = ReplyStream(sys.stdout)
        if args.reasoning:
            written[Part.REASONING] = ReplyStream(sys.stderr)
        answers = engine.ask(_request(settings, info, prompt, args.top), Waiting())
        try:
            outcome = write_reply(
                answers, settings, info, engine.hello, trace=trace, written=written
            )
        finally:
            for stream in written.values():
                stream.end()
        # Not behind the end of the engine, which takes a moment.
        if args.json and (outcome.error is None or outcome.tokens):
            report = msgspec.json.encode(outcome.report(pair.name, info))
            sys.stdout.buffer.write(report + b"\n")
            sys.stdout.buffer.flush()
        elif outcome.error is None:
            complain(outcome.summary())
    if outcome.error is not None:
        raise outcome.error
    return INTERRUPTED if outcome.finish_reason == FinishReason.CANCELLED.value else OK


def _request(settings: Settings, info: PairInfo, prompt: str, top: int) -> Chat:
    return Chat(
        messages=_messages(settings, prompt),
        sampling=settings.to_sampling(info.sampling),
        speculation=settings.to_speculation(),
        thinking=settings.to_thinking(),
        max_tokens=settings.generation.max_tokens or None,
        top=top,
    )


def write_reply(
    answers: Iterable[Answer],
    settings: Settings,
    info: PairInfo,
    hello: Hello,
    *,
    trace: BinaryIO | None,
    written: Mapping[Part, ReplyStream],
) -> FinishedReply:
    """Take a reply in; its parts go to `written` as they come, its rounds to `trace`.

    A reply that an error ends has an outcome too: what had come.
    """
    texts: dict[Part, list[str]] = {part: [] for part in Part}
    rounds: list[Round] = []
    done: Done | None = None
    error: EngineError | None = None

    def write(text: str, part: Part | None) -> None:
        part = part or Part.ANSWER
        texts[part].append(text)
        if text and part in written:
            if part is Part.ANSWER and Part.REASONING in written:
                written[Part.REASONING].end()
            written[part].add(text)

    try:
        for event in answers:
            if isinstance(event, RoundDone):
                rounds.append(event.round)
                for token in event.round.tokens:
                    write(token.text, token.part)
                _trace(trace, event.round)
            elif isinstance(event, Settled):
                rounds = list(event.rounds)
                for round_ in rounds:
                    _trace(trace, round_)
            elif isinstance(event, SpeculationStopped):
                complain(f"speculation is off: {event.off.reason}")
            elif isinstance(event, Done):
                done = event
                write(event.end.tail, event.end.tail_part)
    except EngineError as ended_by:
        error = ended_by
    assert done is not None or error is not None
    off = info.speculation_off is not None or not settings.speculation.enabled
    asked = settings.speculation.n_draft_max if hello.can.draft_length else None
    n_draft_max = 0 if off else asked
    fixed = not_followed(hello)
    shape = "chain" if info.chains_only else settings.speculation.shape
    n_past = rounds[-1].n_past if rounds else 0
    context = {
        "size": info.n_ctx or None,
        "used": n_past or (done.end.n_past if done else 0) or None,
    }
    reasoning, answer = "".join(texts[Part.REASONING]), "".join(texts[Part.ANSWER])
    stats = (done.stats if done else stats_of(rounds)) if hello.can.origins else None
    parts = PartsFold()
    for round_ in rounds:
        parts.add(round_)
    return FinishedReply(
        engine=hello.engine,
        server=info.server,
        n_draft_max=n_draft_max,
        shape=None if "shape" in fixed else shape,
        ngram=None if "ngram" in fixed else settings.speculation.ngram,
        text=answer,
        reasoning=reasoning,
        end=done.end if done else None,
        error=error,
        tokens=done.end.tokens if done else sum(len(round_.tokens) for round_ in rounds),
        stats=stats,
        parts=parts.stats(),
        context=context,
    )


def _messages(settings: Settings, prompt: str) -> tuple[Message, ...]:
    user = Message(role="user", content=prompt)
    system = settings.generation.system_prompt
    return (Message(role="system", content=system), user) if system else (user,)


class ReplyStream:
    """A reply on its way to a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_empty = True

    def add(self, text: str) -> None:
        self._is_empty = False
        # Standard error is a terminal's or a file's: only the latter gets what is no text.
        text = neutralise(text) if self._stream.isatty() else text
        print(text, end="", file=self._stream, flush=True)

    def end(self) -> None:
        """End the line, if there is one."""
        if not self._is_empty:
            print(file=self._stream)
        self._is_empty = True


@dataclass(frozen=True)
class FinishedReply:
    """A reply that has ended, by itself or by an error."""

    engine: str
    server: str
    """Its address, where it is one."""
    n_draft_max: int | Auto | None
    """None where the engine drafts as it was started to; so the two below."""
    shape: str | None
    ngram: bool | None
    text: str
    """The answer."""
    reasoning: str
    end: ReplyEnd | None
    """None where `error` ended the reply."""
    error: EngineError | None
    tokens: int
    stats: SpeculationStats | None
    """None where the engine does not report them."""
    parts: Mapping[Part, PartStats]
    context: dict[str, int | None]

    @property
    def _measured(self) -> Measured:
        return Measured(self.stats, self.tokens, self.end.timings if self.end else None)

    @property
    def finish_reason(self) -> str:
        return self.end.finish_reason.value if self.end else "error"

    def report(self, pair: str, info: PairInfo) -> dict[str, Any]:
        """The reply as the JSON object of docs/headless.md."""
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "tokens": self.tokens,
            "finish_reason": self.finish_reason,
            "error": str(self.error) if self.error else None,
            "pair": pair,
            "engine": self.engine,
            "server": self.server or None,
            "left_out": info.left_out,
            "context": self.context,
            "speculation": self._speculation(),
            "parts": {
                part.value: {"tokens": stats.tokens, **part_in_json(stats.measured)}
                for part, stats in self.parts.items()
            },
            "timings": {
                "load_ms": info.load_ms,
                **in_json("timings", self._measured),
            },
        }

    def _speculation(self) -> dict[str, Any] | None:
        if self.stats is None:
            return None
        return {
            "n_draft_max": self.n_draft_max,
            "shape": self.shape,
            "ngram": self.ngram,
            **in_json("speculation", self._measured),
        }

    def summary(self) -> str:
        """The reply in one line for people."""
        end, stats = self.end, self.stats
        assert end is not None
        parts = summary(self._measured)
        if stats is None:
            parts.append(f"speculation not reported by {self.engine}")
        parts.append(ENDINGS.get(end.finish_reason, "finished"))
        if end.finish_reason is FinishReason.CONTEXT:
            flag = "" if self.server else " (--ctx)"
            parts.append(f"it holds {self.context['size']:,} tokens{flag}")
        return ", ".join(parts)


@contextlib.contextmanager
def _trace_file(path: Path | None) -> Iterator[BinaryIO | None]:
    if path is None:
        yield None
        return
    # Unbuffered: what ends the program by force leaves whole rounds.
    with path.open("wb", buffering=0) as file:
        yield file


def _trace(file: BinaryIO | None, round_: Round) -> None:
    if file is None:
        return
    try:
        file.write(msgspec.json.encode(round_) + b"\n")
    except OSError as error:
        raise EngineError(f"{file.name} cannot be written: {reason(error)}") from error
