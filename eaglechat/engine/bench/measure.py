"""Measures settings of a loaded pair against each other: plain decoding, draft lengths, shapes,
with and without n-grams.

The settings of a repeat run directly after one another, so that a slow minute of the machine
falls on all of them. Only generation is timed: a short reply before the first repeat leaves the
prompt in the KV cache.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import inf
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from eaglechat.engine.clock import ms_since
from eaglechat.engine.live import Live
from eaglechat.wire.bench_records import AS_STARTED, PLAIN, BenchPrompt, BenchRun
from eaglechat.wire.cancelling import check
from eaglechat.wire.errors import BenchFailedError
from eaglechat.wire.protocol import AUTO, Auto, DrafterChoice, Message, Sampling, Shape, Speculation
from eaglechat.wire.records import ReplyEnd, Round, SpeculationOff
from eaglechat.wire.stats import SpeculationStats

if TYPE_CHECKING:
    from eaglechat.engine.loading.pair import LoadedPair

PLAINLY = Speculation(enabled=False)

_WARM_UP_TOKENS = 4
_TURN_TOKENS = 8

T = TypeVar("T")

Write = Callable[[BenchPrompt, Speculation | None, int], Iterable[object]]
"""Called with a prompt, a setting and a number of tokens: writes a greedy reply of at most as many
and yields the events of `Generator.reply`; also a SpeculationStats, if these are known better than
from the rounds. With the setting None, the engine drafts as it was started. Raises Cancelled if the
reply was cut off."""


def settings_of(
    lengths: Sequence[int | Auto],
    shapes: Sequence[Shape],
    ngram: Sequence[bool],
    drafters: Sequence[DrafterChoice] = (AUTO,),
) -> list[Speculation]:
    """Plain decoding, then every combination, each once."""
    combined = [
        # A tree needs two tokens, and n-grams are looked up only to draft.
        Speculation(
            n_draft_max=n,
            shape="chain" if n in (0, 1) else shape,
            ngram=ngrams and n != 0,
            drafter=drafter,
        )
        for drafter, ngrams, shape, n in product(drafters, ngram, shapes, lengths)
    ]
    return [PLAINLY, *dict.fromkeys(combined)]


def name_of(setting: Speculation | None) -> str:
    """The name of a setting in tables: `plain`, `3`, `tree 8`, `auto + n-grams`, `mtp 3`."""
    if setting is None:
        return AS_STARTED
    if not setting.enabled:
        return PLAIN
    shape = "" if setting.shape == "chain" else f"{setting.shape} "
    who = "" if setting.drafter == AUTO else f"{setting.drafter} "
    return f"{who}{shape}{setting.n_draft_max}{' + n-grams' if setting.ngram else ''}"


def writer(pair: LoadedPair) -> Write:
    """Write the replies of a bench with a loaded pair."""

    def write(
        prompt: BenchPrompt, setting: Speculation | None, max_tokens: int
    ) -> Iterator[object]:
        yield from pair.generator.reply(
            pair.prompter.prompt(messages_of(prompt)),
            Sampling(temperature=0.0),
            Live(setting or Speculation(), 0.0),
            seed=0,
            max_tokens=max_tokens,
        )
        check()

    return write


def messages_of(prompt: BenchPrompt) -> tuple[Message, ...]:
    """The conversation that asks a prompt."""
    return (Message(role="user", content=prompt.text),)


def measure(
    write: Write,
    prompts: Sequence[BenchPrompt],
    settings: Sequence[Speculation | None],
    *,
    repeats: range,
    max_tokens: int,
) -> Iterator[BenchRun]:
    """Measure whole replies and yield each run as it ends. Before the first repeat of a prompt each
    setting writes a few tokens that are not counted.

    Raises BenchFailedError when the draft gives up, Cancelled, DecodeError, PromptError.
    """
    for place, prompt in enumerate(prompts):
        for repeat in repeats:
            for setting in order_of(settings, place + repeat):
                if repeat == repeats.start:
                    _warm_up(write, prompt, setting)
                reply = _MeasuredReply(write, prompt, setting, repeat, max_tokens)
                reply.write()
                yield reply.run()


def measure_by_turns(
    writers: Mapping[Speculation, Write],
    prompts: Sequence[BenchPrompt],
    *,
    repeats: range,
    max_tokens: int,
) -> Iterator[BenchRun]:
    """Measure settings side by side: all write the same reply, eight tokens at a time in turn.

    Whole replies one after another are seconds apart, and the speed of a busy machine differs more
    between them than between the settings. `writers` has a loaded pair of its own for each
    setting, so that each keeps its KV cache. Yields the runs of each repeat of a prompt as it
    ends.

    Raises BenchFailedError when the draft gives up, Cancelled, DecodeError, PromptError.
    """
    settings = list(writers)
    for prompt in prompts:
        for setting, write in writers.items():
            _warm_up(write, prompt, setting)
        for repeat in repeats:
            replies = {
                setting: _MeasuredReply(write, prompt, setting, repeat, max_tokens)
                for setting, write in writers.items()
            }
            turn, length = repeat, 0
            while unfinished := [
                setting for setting in order_of(settings, turn) if not replies[setting].ended
            ]:
                length += _TURN_TOKENS
                for setting in unfinished:
                    replies[setting].write(length)
                turn += 1
            yield from (reply.run(reply.rounds_ms) for reply in replies.values())


def _warm_up(write: Write, prompt: BenchPrompt, setting: Speculation | None) -> None:
    for _ in write(prompt, setting, _WARM_UP_TOKENS):
        pass


def order_of(settings: Sequence[T], turn: int) -> list[T]:
    """The order of the settings in a turn. It changes, so that none always follows the same other
    one: a heavy setting may slow the next."""
    first = turn // 2 % len(settings)
    order = [*settings[first:], *settings[:first]]
    return order if turn % 2 == 0 else order[::-1]


class _MeasuredReply:
    """A reply that is written in one go or some tokens at a time."""

    def __init__(
        self,
        write: Write,
        prompt: BenchPrompt,
        setting: Speculation | None,
        repeat: int,
        max_tokens: int,
    ) -> None:
        self._events = iter(write(prompt, setting, max_tokens))
        self._prompt, self._setting, self._repeat = prompt.name, setting, repeat
        self._counted, self._n_tokens = SpeculationStats(), 0
        self._stats: SpeculationStats | None = None
        self._verify_ms: dict[int, list[float]] = defaultdict(list)
        self._end: ReplyEnd | None = None
        self.rounds_ms = 0.0
        """Milliseconds of its rounds: neither of the prompt nor of what was written meanwhile."""
        self.ended = False

    def write(self, length: float = inf) -> None:
        """Write until the reply has `length` tokens or ends. Raises BenchFailedError when the draft
        gives up."""
        while self._n_tokens < length:
            started = time.perf_counter()
            event = next(self._events, None)
            if event is None:
                self.ended = True
                return
            if isinstance(event, Round):
                self.rounds_ms += ms_since(started)
                self._n_tokens += len(event.tokens)
                self._counted = self._counted.plus(event)
                if event.timings.verify_ms is not None:
                    self._verify_ms[len(event.drafted) + 1].append(event.timings.verify_ms)
            elif isinstance(event, SpeculationOff):
                name = name_of(self._setting)
                raise BenchFailedError(f"{self._prompt}, n = {name}: {event.reason}")
            elif isinstance(event, SpeculationStats):
                self._stats = event
            elif isinstance(event, ReplyEnd):
                self._end = event

    def run(self, generation_ms: float | None = None) -> BenchRun:
        """The run, after the reply has ended. Its time is the one the reply reports unless
        `generation_ms` is given."""
        assert self._end is not None
        drafted = self._setting if self._setting and self._setting.enabled else None
        stats = self._stats or self._counted
        return BenchRun(
            prompt=self._prompt,
            setting=name_of(self._setting),
            repeat=self._repeat,
            tokens=self._end.tokens,
            generation_ms=generation_ms or self._end.timings.generation_ms,
            n_drafted=stats.drafted,
            n_tested=stats.tested,
            n_accepted=stats.accepted,
            mean_accepted_length=stats.mean_accepted_length,
            verify_ms={width: median(times) for width, times in sorted(self._verify_ms.items())},
            n=drafted.n_draft_max if drafted else None,
            shape=drafted.shape if drafted else None,
            ngram=drafted.ngram if drafted else False,
            drafter=drafted.drafter if drafted else None,
            by_drafter=stats.by_drafter,
        )
