"""Measures settings side by side: each on a pair of its own, all writing the same reply by turns, a
few tokens at a time.

Whole replies one after another are seconds apart, and a busy machine's speed differs more between
them than the settings do. By turns, a slow moment falls on all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from eaglechat.engine.bench.measure import RunTally, Write, order_of
from eaglechat.wire.bench_records import BenchPrompt, BenchRun
from eaglechat.wire.protocol import Speculation
from eaglechat.wire.records import Round

_TURN_TOKENS = 8
_WARM_UP_TOKENS = 16


def measure_by_turns(
    writers: Mapping[Speculation, Write],
    prompts: Sequence[BenchPrompt],
    *,
    repeats: range,
    max_tokens: int,
    cancelled: Callable[[], bool],
) -> Iterator[BenchRun]:
    """Yield the runs of each repeat of a prompt; `writers` has a pair's for each setting.

    A cancelled repeat is not counted. Raises BenchFailedError when the draft gives up,
    DecodeError, PromptError.
    """
    settings = list(writers)
    for prompt in prompts:
        if 0 in repeats:
            for setting, write in writers.items():
                for _ in write(prompt, setting, _WARM_UP_TOKENS):
                    pass
        for repeat in repeats:
            replies = {
                setting: _Reply(write, prompt, setting, repeat, max_tokens)
                for setting, write in writers.items()
            }
            turn, length = repeat, 0
            while going_on := [name for name in order_of(settings, turn) if replies[name].goes_on]:
                length += _TURN_TOKENS
                for setting in going_on:
                    replies[setting].write(length)
                turn += 1
            if cancelled():
                return
            yield from (reply.run() for reply in replies.values())


class _Reply:
    """One setting's reply; time counts only while it is written."""

    def __init__(
        self,
        write: Write,
        prompt: BenchPrompt,
        setting: Speculation,
        repeat: int,
        max_tokens: int,
    ) -> None:
        self._events = iter(write(prompt, setting, max_tokens))
        self._tally = RunTally(prompt.name, setting, repeat)
        self._tokens, self._ms = 0, 0.0
        self.goes_on = True

    def write(self, length: int) -> None:
        """Go on to a length in tokens. The first turn reads the prompt too, untimed."""
        while self._tokens < length:
            started = time.perf_counter()
            event = next(self._events, None)
            if event is None:
                self.goes_on = False
                return
            if isinstance(event, Round):
                self._ms += (time.perf_counter() - started) * 1000.0
                self._tokens += len(event.tokens)
            self._tally.add(event)

    def run(self) -> BenchRun:
        return self._tally.run(self._ms)
