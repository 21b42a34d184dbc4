"""Reply to one prompt and print the reply."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import msgspec

from eaglechat.chat.controls import not_followed
from eaglechat.chat.measured import Measured
from eaglechat.chat.recording import Recording, Terms
from eaglechat.cli import options
from eaglechat.cli.loading import CommandEngine, Interrupt
from eaglechat.cli.pairs import choose_pair, say_if_named
from eaglechat.cli.status import INTERRUPTED, OK, WrongUsageError, complain, reason
from eaglechat.settings.model import Settings
from eaglechat.wire.drafters import DrafterChoice
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import (
    TOP_LIMIT,
    Answer,
    Done,
    Hello,
    Message,
    PairInfo,
    Progress,
    Settled,
)
from eaglechat.wire.records import NGRAM, FinishReason, Part, Round, SpeculationOff
from eaglechat.wire.stats import SpeculationStats, who_drafted
from eaglechat.words import statistics
from eaglechat.words.headline import headline_of
from eaglechat.words.neutral import neutralise


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
    # Standard input may be anything; bytes that are no UTF-8 become surrogates, as in arguments.
    raw = sys.stdin.buffer.read() if args.prompt == "-" else None
    prompt = args.prompt if raw is None else raw.decode("utf-8", errors="surrogateescape")
    if not prompt.strip():
        raise WrongUsageError("the prompt is empty")
    if any("\ud800" <= character <= "\udfff" for character in prompt):
        raise WrongUsageError("the prompt is not text in UTF-8")
    if args.top and args.trace is None:
        raise WrongUsageError("--top is written to the trace: give --trace FILE too")
    options.check_pair(args)
    if not any((args.target, args.pair, args.server)):
        say_if_named(prompt)
    settings = options.in_role(args, options.settings_of(args))
    # Unbuffered: what ends the program by force leaves whole rounds.
    file = args.trace.open("wb", buffering=0) if args.trace else contextlib.nullcontext()
    with Interrupt() as interrupt, file as trace:
        return _reply(args, settings, prompt, interrupt, trace)


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
        # Kept here, because the link forgets it when the engine dies.
        info, hello = engine.load(pair), engine.hello
        _check_speculation(settings, info, hello)
        if info.untemplated:
            complain(info.untemplated)
        written = {}
        if not args.json:
            written[Part.ANSWER] = ReplyStream(sys.stdout)
        if args.reasoning:
            written[Part.REASONING] = ReplyStream(sys.stderr)
        terms = Terms(
            system_prompt=settings.generation.system_prompt,
            sampling=settings.to_sampling(info.sampling),
            speculation=settings.speculation,
            thinking=settings.to_thinking(),
            max_tokens=settings.generation.max_tokens or None,
            top=args.top,
        )
        request = terms.to_chat((Message(role="user", content=prompt),))
        recording = Recording(terms)
        error: EngineError | None = None
        try:
            write_reply(engine.ask(request), recording, trace=trace, written=written)
        except EngineError as ended_by:
            error = ended_by
        finally:
            for stream in written.values():
                stream.end()
        # Printed before the engine is ended, which takes a moment.
        reply = FinishedReply(recording, pair.name, info, hello, error)
        if args.json and (error is None or recording.rounds):
            sys.stdout.buffer.write(msgspec.json.encode(reply.report()) + b"\n")
            sys.stdout.buffer.flush()
        elif error is None:
            complain(reply.summary())
    if error is not None:
        raise error
    return INTERRUPTED if reply.finish_reason == FinishReason.CANCELLED.value else OK


def _check_speculation(settings: Settings, info: PairInfo, hello: Hello) -> None:
    """Print why nothing is drafted, or only chains are. Raises EngineError where the engine drafts
    although it was asked not to."""
    if not settings.speculation.enabled and not hello.can.plain:
        raise EngineError(f"{hello.engine} cannot be asked to decode plainly")
    if info.speculation_off and settings.speculation.enabled:
        complain(f"speculation is off: {info.speculation_off}")
    elif info.chains_only and settings.speculation.shape == "tree":
        complain(f"drafts stay chains: {info.chains_only}")


def write_reply(
    answers: Iterable[Answer],
    recording: Recording,
    *,
    trace: BinaryIO | None,
    written: Mapping[Part, ReplyStream],
) -> None:
    """Record a reply; its parts go to `written` as they come, its rounds to `trace`. Raises
    EngineError where one ends the reply: what had come is recorded."""

    def write(text: str, part: Part | None) -> None:
        part = part or Part.ANSWER
        if text and part in written:
            if part is Part.ANSWER and Part.REASONING in written:
                written[Part.REASONING].end()
            written[part].add(text)

    for event in answers:
        match event:
            case Progress(step=Round() as round_):
                recording.add(round_)
                for token in round_.tokens:
                    write(token.text, token.part)
                _trace(trace, round_)
            case Progress(step=Settled(rounds)):
                recording.settle(rounds)
                for round_ in rounds:
                    _trace(trace, round_)
            case Progress(step=SpeculationOff(reason)):
                complain(f"speculation is off: {reason}")
            case Done(end=end, stats=stats):
                recording.finish(end, stats)
                write(end.tail, end.tail_part)


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

    recording: Recording
    pair: str
    info: PairInfo
    hello: Hello
    error: EngineError | None

    @property
    def measured(self) -> Measured:
        """Without counts of speculation where the engine does not report them."""
        end = self.recording.end
        return Measured(
            stats=self.recording.stats if self._counts_drafts else SpeculationStats(),
            tokens=end.tokens if end else sum(len(r.tokens) for r in self.recording.rounds),
            timings=end.timings if end else None,
        )

    @property
    def _counts_drafts(self) -> bool:
        return self.hello.can.origins or self.recording.stats.is_of_whole_reply

    @property
    def finish_reason(self) -> str:
        return self.recording.end.finish_reason.value if self.recording.end else "error"

    def report(self) -> dict[str, Any]:
        """The reply as the JSON object of docs/commands.md."""
        recording, info = self.recording, self.info
        return {
            "text": recording.text,
            "reasoning": recording.reasoning,
            "tokens": self.measured.tokens,
            "finish_reason": self.finish_reason,
            "error": str(self.error) if self.error else None,
            "pair": self.pair,
            "engine": self.hello.engine,
            "server": info.server or None,
            "left_out": info.left_out,
            "context": {"size": info.n_ctx or None, "used": recording.n_past or None},
            "speculation": self._speculation() if self._counts_drafts else None,
            "against_plain": headline_of(recording).in_json(),
            "parts": {
                part.value: statistics.part_in_json(own) for part, own in recording.by_part.items()
            },
            "timings": {"load_ms": info.load_ms, **statistics.timings_in_json(self.measured)},
        }

    def _speculation(self) -> dict[str, Any]:
        """What was asked for, None where the engine drafts as it was started to; and the counts."""
        asked, fixed = self.recording.terms.speculation, not_followed(self.hello.can)
        n_draft_max = asked.n_draft_max if self.hello.can.draft_length else None
        is_off = self.info.speculation_off is not None or not asked.enabled
        shape = "chain" if self.info.chains_only else asked.shape
        return {
            "n_draft_max": 0 if is_off else n_draft_max,
            "shape": None if "shape" in fixed else shape,
            "ngram": None if "ngram" in fixed else asked.ngram,
            "drafter": None if "drafter" in fixed else self._drafter(asked.drafter),
            **statistics.speculation_in_json(self.recording.stats),
        }

    def _drafter(self, asked: DrafterChoice) -> str:
        """Who drafted behind n-grams, or was to if nobody did."""
        first = self.info.drafter.kind if self.info.drafter is not None else NGRAM
        return who_drafted(self.recording.stats.by_drafter, first) if asked == "auto" else asked

    def summary(self) -> str:
        """The reply in one line for people."""
        end = self.recording.end
        assert end is not None
        parts = statistics.summary(self.measured)
        if not self._counts_drafts:
            parts.append(f"speculation not reported by {self.hello.engine}")
        parts.append(statistics.ENDINGS.get(end.finish_reason, "finished"))
        if end.finish_reason is FinishReason.CONTEXT and self.info.n_ctx:
            flag = "" if self.info.server else " (--ctx)"
            parts.append(f"it holds {self.info.n_ctx:,} tokens{flag}")
        return ", ".join(parts)


def _trace(file: BinaryIO | None, round_: Round) -> None:
    if file is None:
        return
    try:
        file.write(msgspec.json.encode(round_) + b"\n")
    except OSError as error:
        raise EngineError(f"{file.name} cannot be written: {reason(error)}") from error
