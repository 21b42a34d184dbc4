"""Compares headlines with plain replies taken right before and after, on the built-in pair.

`python -m tests.tools.measure_headlines` from a clone, on a machine that does nothing else. The
reference is a reply's speed over the mean speed of four plain replies, two before and two after it.
Its own error at 95% follows from what these four differ by: a machine whose plain replies differ by
10% cannot say more.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from math import hypot, sqrt
from statistics import fmean, stdev

from eaglechat.chat.recording import Recording, Terms
from eaglechat.cli.loading import CommandEngine, Interrupt
from eaglechat.cli.run import write_reply
from eaglechat.engine.bench.prompts import builtin_prompts
from eaglechat.hub.local.pairs import builtin_pair
from eaglechat.settings.model import Settings
from eaglechat.wire import protocol as p
from eaglechat.wire.gain import student_t
from eaglechat.words.headline import headline_of

_AROUND = 2
"""Plain replies before a reply, and after it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10, help="replies of each setting")
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--busy", action="store_true", help="beside a loop that takes a core")
    args = parser.parse_args()
    pair = builtin_pair()
    with (
        _busy(is_on=args.busy),
        Interrupt() as interrupt,
        CommandEngine(Settings(), interrupt, None) as engine,
    ):
        engine.load(pair)
        print("| Length | Headline | Speed-up | Reference | Difference | Within both errors |")
        print("| --- | --- | --- | --- | --- | --- |")
        for length in (3, p.AUTO):
            differences = []
            for turn in range(args.times):
                row, difference = _compared(engine, length, turn, args)
                print(row, flush=True)
                differences += [] if difference is None else [difference]
            if len(differences) > 1:
                error = student_t(len(differences) - 1) * stdev(differences)
                error /= sqrt(len(differences))
                print(f"| {length} | mean | | | {fmean(differences):+.3f} ±{error:.3f} | |")


def _compared(
    engine: CommandEngine, length: int | p.Auto, turn: int, args: argparse.Namespace
) -> tuple[str, float | None]:
    """A row of the table, and the headline's speed-up minus the reference."""
    drafting = p.Speculation(n_draft_max=length)
    plainly = p.Speculation(enabled=False)
    around = [_speed(_reply(engine, plainly, turn, args)) for _ in range(_AROUND)]
    reply = _reply(engine, drafting, turn, args)
    around += [_speed(_reply(engine, plainly, turn, args)) for _ in range(_AROUND)]
    headline = headline_of(reply)
    reference = _speed(reply) / fmean(around)
    n = len(around)
    error = student_t(n - 1) * stdev(around) / sqrt(n) / fmean(around) * reference
    cells = [str(length), headline.in_short(), "", f"{reference:.3f} ±{error:.3f}", "", ""]
    gain, difference = headline.gain, None
    if gain is not None and gain.error is not None:
        difference = gain.speed_up - reference
        is_within = abs(difference) <= hypot(gain.error, error)
        cells[2] = f"{gain.speed_up:.3f} ±{gain.error:.3f}"
        cells[4:] = [f"{difference:+.3f}", "yes" if is_within else "NO"]
    return f"| {' | '.join(cells)} |", difference


def _reply(
    engine: CommandEngine, speculation: p.Speculation, turn: int, args: argparse.Namespace
) -> Recording:
    prompts = builtin_prompts()
    terms = Terms(
        sampling=p.Sampling(temperature=args.temperature, seed=turn),
        speculation=speculation,
        max_tokens=args.max_tokens,
    )
    message = p.Message(role="user", content=prompts[turn % len(prompts)].text)
    recording = Recording(terms)
    answers = engine.ask(terms.to_chat((message,)))
    write_reply(answers, recording, trace=None, written={})
    return recording


def _speed(recording: Recording) -> float:
    assert recording.end is not None
    return recording.end.tokens_per_second


@contextmanager
def _busy(*, is_on: bool) -> Iterator[None]:
    """A process that does nothing but take time."""
    process = multiprocessing.Process(target=_spin, daemon=True)
    if is_on:
        process.start()
    try:
        yield
    finally:
        if is_on:
            process.terminate()


def _spin() -> None:
    while True:
        pass


if __name__ == "__main__":
    main()
