"""What commands that run a pair share: choosing it, loading it, Ctrl+C as a wish."""

from __future__ import annotations

import argparse
import os
import signal
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from eaglechat import paths
from eaglechat.cli import options
from eaglechat.cli.status import INTERRUPTED
from eaglechat.settings import Settings
from eaglechat.wire.errors import EngineError

if TYPE_CHECKING:
    from eaglechat.engine.loading.pair import LoadedPair
    from eaglechat.hub.local.pair import Pair


def choose_pair(args: argparse.Namespace) -> Pair:
    """The pair the flags name, else the built-in one. Raises EngineError if it cannot run."""
    from eaglechat.hub.local import pairs  # only commands that run a pair need it

    library = pairs.PairLibrary(paths.state_dir())
    pair = options.chosen_pair(args, library) or pairs.builtin_pair()
    status = pairs.inspect(pair)
    if status.problem:
        raise EngineError(f"{pair.name} cannot run: {status.problem}")
    return library.as_kept(pair)


def load_pair(pair: Pair, settings: Settings, interrupt: Interrupt) -> LoadedPair:
    """Load a pair. Raises EngineError, LoadCancelledError after Ctrl+C."""
    from eaglechat.engine.llama import backend  # loads llama.cpp
    from eaglechat.engine.loading.pair import LoadedPair
    from eaglechat.gguf.preflight import check_pair

    headers = check_pair(pair.target, pair.draft)
    backend.start_backend(backend.LOG_ERRORS)
    return LoadedPair(
        headers, settings.to_load_options(), lambda _stage, _fraction: not interrupt.happened
    )


class Interrupt:
    """Ctrl+C as a flag, so that what was generated is kept; a second one ends the program."""

    def __init__(self) -> None:
        self.happened = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        if self.happened:
            os._exit(INTERRUPTED)
        self.happened = True
