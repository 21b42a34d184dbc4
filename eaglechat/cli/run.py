"""Reply to one prompt and print the reply."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from eaglechat.cli import options
from eaglechat.cli.loading import Interrupt, choose_pair, load_pair
from eaglechat.cli.status import FAILED, INTERRUPTED, OK, WRONG_USAGE, complain
from eaglechat.settings import Settings
from eaglechat.wire.errors import EngineError, LoadCancelledError
from eaglechat.wire.protocol import Auto, Message
from eaglechat.wire.records import FinishReason, ReplyEnd, Round, SpeculationOff
from eaglechat.wire.stats import SpeculationStats, StatsFold

if TYPE_CHECKING:
    from eaglechat.engine.loading.pair import LoadedPair


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_pair_options(parser)
    options.add_setting_options(parser, "generation", "speculation", "engine")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write one JSON line for each round"
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
    try:
        with Interrupt() as interrupt, _trace_file(args.trace) as trace:
            return _reply(args, settings, prompt, interrupt, trace)
    except LoadCancelledError:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except (EngineError, OSError) as error:
        complain(str(error))
        return FAILED


def _wrong_usage(args: argparse.Namespace, prompt: str) -> str | None:
    if not prompt.strip():
        return "the prompt is empty"
    if not _is_text(prompt):
        return "the prompt is not text in UTF-8"
    return options.wrong_pair_usage(args)


def _is_text(text: str) -> bool:
    """False for a string with surrogates, which stand for bytes that are no UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _reply(
    args: argparse.Namespace,
    settings: Settings,
    prompt: str,
    interrupt: Interrupt,
    trace: TextIO | None,
) -> int:
    pair = choose_pair(args)
    n_draft_max = options.overrides(args).get("speculation.n_draft_max")
    if n_draft_max is None:
        n_draft_max = pair.n_draft_max
    if n_draft_max is not None:
        settings = settings.with_n_draft_max(n_draft_max)
    loaded = load_pair(pair, settings, interrupt)
    try:
        if loaded.info.speculation_off and settings.speculation.enabled:
            complain(f"speculation is off: {loaded.info.speculation_off}")
        written = None if args.json else _tolerant(sys.stdout)
        outcome = _generate(
            loaded, settings, prompt, interrupt=interrupt, trace=trace, written=written
        )
        load_ms = loaded.info.load_ms
    finally:
        loaded.close()
    if args.json:
        sys.stdout.buffer.write(msgspec.json.encode(outcome.report(pair.name, load_ms)) + b"\n")
    else:
        print()
        complain(outcome.summary())
    return INTERRUPTED if outcome.end.finish_reason is FinishReason.CANCELLED else OK


def _tolerant(stream: TextIO) -> TextIO:
    """The stream, with a question mark for what its encoding lacks instead of an error."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return stream


def _generate(
    loaded: LoadedPair,
    settings: Settings,
    prompt: str,
    *,
    interrupt: Interrupt,
    trace: TextIO | None,
    written: TextIO | None,
) -> _Outcome:
    """Write a reply; its text goes to `written` as it comes, its rounds to `trace`."""
    from eaglechat.engine.generation.live import Live

    sampling, speculation = settings.to_sampling(), settings.to_speculation()
    fold, texts, end, n_past = StatsFold(), [], None, 0
    for event in loaded.generator.reply(
        loaded.prompter.prompt(_messages(settings, prompt)),
        sampling,
        Live(speculation, sampling.temperature),
        seed=sampling.draw_seed(),
        max_tokens=settings.generation.max_tokens or None,
        cancelled=lambda: interrupt.happened,
    ):
        text = ""
        if isinstance(event, Round):
            fold.add(event)
            text, n_past = event.text, event.n_past
            if trace is not None:
                trace.write(msgspec.json.encode(event).decode() + "\n")
        elif isinstance(event, SpeculationOff):
            complain(f"speculation is off: {event.reason}")
        elif isinstance(event, ReplyEnd):
            end, text = event, event.tail
        texts.append(text)
        if text and written is not None:
            print(text, end="", file=written, flush=True)
    assert end is not None
    off = loaded.info.speculation_off is not None or not speculation.enabled
    n_draft_max = 0 if off else speculation.n_draft_max
    context = {"size": loaded.info.n_ctx, "used": n_past}
    return _Outcome(n_draft_max, "".join(texts), end, fold.stats(), context)


def _messages(settings: Settings, prompt: str) -> tuple[Message, ...]:
    user = Message(role="user", content=prompt)
    system = settings.generation.system_prompt
    return (Message(role="system", content=system), user) if system else (user,)


@dataclass(frozen=True)
class _Outcome:
    """A finished reply."""

    n_draft_max: int | Auto
    text: str
    end: ReplyEnd
    stats: SpeculationStats
    context: dict[str, int]

    def report(self, pair: str, load_ms: float) -> dict[str, Any]:
        """The reply as the JSON object of docs/headless.md."""
        end, stats = self.end, self.stats
        return {
            "text": self.text,
            "tokens": end.tokens,
            "finish_reason": end.finish_reason.value,
            "pair": pair,
            "context": self.context,
            "speculation": {
                "n_draft_max": self.n_draft_max,
                "rounds": stats.rounds,
                "drafted": stats.drafted,
                "tested": stats.tested,
                "accepted": stats.accepted,
                "acceptance_rate": stats.acceptance_rate or 0.0,
                "mean_accepted_length": stats.mean_accepted_length or 1.0,
                "per_position": stats.per_position,
            },
            "timings": {
                "load_ms": load_ms,
                "prefill_ms": end.timings.prefill_ms,
                "prefill_tokens": end.timings.prefill_tokens,
                "generation_ms": end.timings.generation_ms,
                "tokens_per_second": end.tokens_per_second,
                "draft_ms": end.timings.draft_ms,
                "verify_ms": end.timings.verify_ms,
            },
        }

    def summary(self) -> str:
        """The reply in one line for people."""
        end, stats = self.end, self.stats
        parts = [f"{end.tokens} tokens", f"{end.tokens_per_second:.1f} tokens/s"]
        if stats.acceptance_rate is not None:
            accepted = f"accepted {stats.accepted} of {stats.tested} tested draft tokens"
            parts.append(f"{accepted} ({stats.acceptance_rate:.0%})")
            parts.append(f"mean accepted length {stats.mean_accepted_length:.2f}")
        parts.append(f"ended by {end.finish_reason.value}")
        if end.finish_reason is FinishReason.CONTEXT:
            parts.append(f"which holds {self.context['size']:,} tokens (--ctx)")
        return ", ".join(parts)


@contextlib.contextmanager
def _trace_file(path: Path | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    # A line at a time, so that what ends the program by force leaves whole rounds.
    with path.open("w", encoding="utf-8", buffering=1) as file:
        yield file
