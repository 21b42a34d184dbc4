"""Engines that do as a test needs, as the value of engine.command."""

from __future__ import annotations

import json
import sys


def engine_that(code: str) -> list[str]:
    """Flags for an engine process that runs some code before it serves."""
    main = "from eaglechat.engine.process import main\nraise SystemExit(main())"
    serve = f"{code}\n{main}"
    return ["-o", f"engine.command={json.dumps([sys.executable, '-c', serve])}"]


def engine_that_dies_after(n_rounds: int) -> list[str]:
    """It aborts in the middle of a reply, as a failed assertion inside llama.cpp would."""
    return engine_that(
        "import os, sys\n"
        "from eaglechat.engine.process import PairWorker\n"
        "say = PairWorker.say\n"
        "def die(self, event):\n"
        f"    if getattr(getattr(event, 'step', None), 'index', None) == {n_rounds}:\n"
        "        print('GGML_ASSERT(n_outputs > 0) failed', file=sys.stderr, flush=True)\n"
        "        os.abort()\n"
        "    say(self, event)\n"
        "PairWorker.say = die"
    )


def engine_that_takes_its_time() -> list[str]:
    """It pauses after each round: a long reply ends when somebody ends it, and not before."""
    return engine_that(
        "import time\n"
        "from eaglechat.engine.process import PairWorker\n"
        "from eaglechat.wire.protocol import Progress, Round\n"
        "say = PairWorker.say\n"
        "def pause(self, event):\n"
        "    say(self, event)\n"
        "    time.sleep(0.05 * (isinstance(event, Progress) and isinstance(event.step, Round)))\n"
        "PairWorker.say = pause"
    )
