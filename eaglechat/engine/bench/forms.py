"""Measures a target in several forms (quantisations of the same weights) with its draft.

A draft pays where llama.cpp verifies several rows in little more than the time of one, which
depends on the form, the processor and how llama.cpp was built. So it is measured, with replies: the
first form decoding plainly, and each form drafting. All take turns, so that a slow second of the
machine falls on all of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import fmean

import msgspec

from eaglechat.engine.apart import end_with_parent, run_apart
from eaglechat.engine.bench.prompts import builtin_prompts
from eaglechat.engine.llama import backend
from eaglechat.engine.loop import Live
from eaglechat.engine.pair import LoadedPair
from eaglechat.gguf.pairing import check_pair
from eaglechat.wire.errors import Cancelled, EngineError
from eaglechat.wire.protocol import PLAINLY, LoadOptions, Sampling, Speculation
from eaglechat.wire.records import Round
from eaglechat.wire.worker import cancelled_by

_BUDGET_S, _MOST_S = 4.0, 12.0
"""Seconds after which the measurement ends, loading included; its first turn, in which the prompt
is read, may last until the second, or a slow machine would measure nothing."""
_TURN_TOKENS, _MOST_TURNS = 16, 8
_N_CTX = 1024


class FormsToMeasure(msgspec.Struct, frozen=True):
    """The argument of the child process, as JSON."""

    targets: tuple[str, ...]
    """Paths of the same target; the first one is measured plainly, too."""
    draft: str
    n_draft_max: int
    options: LoadOptions
    sampling: Sampling


FormSpeeds = dict[str, float]
"""Tokens per second: empty is the first target decoding plainly, a path its target drafting, at the
mean number of tokens that a round of all of them wrote. The child process prints it as JSON."""


def measure_apart(
    wanted: FormsToMeasure, on_progress: Callable[[float], None]
) -> FormSpeeds | None:
    """`measure` in a process of its own, whose crash is an error here.

    `on_progress` gets a fraction several times a second; if it raises, the measurement is stopped
    and the exception goes on. Raises ApartError.
    """
    began = time.monotonic()

    def watch(_log: str) -> None:
        on_progress(min(1.0, (time.monotonic() - began) / _BUDGET_S))

    answer = run_apart(__name__, msgspec.json.encode(wanted).decode(), watch=watch)
    return msgspec.json.decode(answer, type=FormSpeeds | None)


def measure(wanted: FormsToMeasure) -> FormSpeeds | None:
    """None if the time is over before each has written one turn. Raises EngineError."""
    began = time.monotonic()
    drafting = Speculation(n_draft_max=wanted.n_draft_max, ngram=False)
    options = msgspec.structs.replace(wanted.options, n_ctx=_N_CTX)
    with ExitStack() as owned:
        pairs = []
        for target in wanted.targets:
            headers = check_pair(Path(target), Path(wanted.draft))
            pair = LoadedPair(headers, options, calibrates=False)
            owned.callback(pair.close)
            pairs.append((target, pair))
        contenders = [("", pairs[0][1], PLAINLY), *((*pair, drafting) for pair in pairs)]
        measured = {name: list[Round]() for name, *_ in contenders}

        def is_over() -> bool:
            return time.monotonic() - began > (_BUDGET_S if measured[""] else _MOST_S)

        # One prompt, which stays in each KV cache: only generation is timed.
        messages = builtin_prompts()[0].messages
        for turn in range(_MOST_TURNS):
            written = {}
            # A heavy one may slow the next, so none always follows the same other one.
            for name, pair, speculation in contenders[:: 1 if turn % 2 == 0 else -1]:
                events = pair.generator.reply(
                    pair.prompter.conversation(messages),
                    wanted.sampling,
                    Live(speculation, wanted.sampling.temperature),
                    seed=turn,
                    draws_drafts=True,
                    max_tokens=_TURN_TOKENS,
                )
                # The time may also be over before a reply has begun.
                with suppress(Cancelled), cancelled_by(is_over):
                    written[name] = [
                        event
                        for event in events
                        if isinstance(event, Round) and not event.is_plain_check
                    ]
            # A turn that was cut off counts for nobody.
            if is_over():
                break
            for name, rounds in written.items():
                measured[name] += rounds
    plain = measured.pop("")
    drafted = [round_ for rounds in measured.values() for round_ in rounds]
    if not plain or not all(measured.values()):
        return None
    # In so few tokens the luck of the drafts differs more between the forms than their speeds do,
    # so it is shared: every form writes the mean number of tokens a round.
    each = sum(len(round_.tokens) for round_ in drafted) / len(drafted)
    drafting_speeds = {name: 1000.0 * each / _ms_of(own) for name, own in measured.items()}
    return {"": 1000.0 / _ms_of(plain), **drafting_speeds}


def _ms_of(rounds: Sequence[Round]) -> float:
    return fmean(round_.timings.total_ms for round_ in rounds)


def _main(wanted: str) -> int:
    end_with_parent()
    backend.start_backend(backend.LOG_ERRORS)
    try:
        speeds = measure(msgspec.json.decode(wanted, type=FormsToMeasure))
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    print(msgspec.json.encode(speeds).decode())
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
