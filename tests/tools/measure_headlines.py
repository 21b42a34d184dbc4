"""Compares headlines with plain replies taken right before and after, on the built-in pair.

`python -m tests.tools.measure_headlines` from a clone, on a machine that does nothing else. The
true speed-up of a reply is its speed over the mean speed of the two plain replies around it.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean

from eaglechat.chat.headline import headline_of
from eaglechat.chat.recording import Recording, Terms
from eaglechat.cli.loading import CommandEngine, Interrupt, Waiting
from eaglechat.cli.run import write_reply
from eaglechat.engine.bench.prompts import builtin_prompts
from eaglechat.hub.local.pairs import builtin_pair
from eaglechat.settings import Settings
from eaglechat.tui.texts.headline import in_short
from eaglechat.wire import protocol as p


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
        print("| Length | Headline | Speed-up | True | Within the error |")
        print("| --- | --- | --- | --- | --- |")
        for length in (3, p.AUTO):
            for turn in range(args.times):
                print(_compared(engine, length, turn, args), flush=True)


def _compared(
    engine: CommandEngine, length: int | p.Auto, turn: int, args: argparse.Namespace
) -> str:
    """A row of the table."""
    drafting = p.Speculation(n_draft_max=length)
    plainly = p.Speculation(enabled=False)
    before, reply, after = (
        _reply(engine, speculation, turn, args) for speculation in (plainly, drafting, plainly)
    )
    headline = headline_of(reply)
    plain = fmean(_speed(one) for one in (before, after))
    truth = _speed(reply) / plain
    gain, error, is_within = headline.gain, "", ""
    if gain is not None and gain.error is not None:
        error = f"{gain.speed_up:.3f} ±{gain.error:.3f}"
        is_within = "yes" if abs(gain.speed_up - truth) <= gain.error else "NO"
    return f"| {length} | {in_short(headline)} | {error} | {truth:.3f} | {is_within} |"


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
    answers = engine.ask(terms.to_chat((message,)), Waiting())
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
