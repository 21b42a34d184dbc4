"""An engine whose llama.cpp crashes unless something is left out:

    python -m tests.crashing_engine SIGNAL WHEN CURE CALLS [WHOSE] [SAYS]

It kills itself with SIGNAL at `load`, or at the decode of number WHEN, unless CURE is left out, in
loads of models with WHOSE in their path; with `hang` for SIGNAL it goes no further there. It writes
SAYS to its log before. CALLS gets a line for each load of a model: what was left out. Its machine
has a GPU, if one asks it.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec


def main() -> int:
    name, when, cure, calls, *more = sys.argv[1:]
    whose, says, *_ = (*more, "", "")

    from eaglechat.engine import process
    from eaglechat.engine.llama import bindings, objects

    memory = process.memory
    process.memory = lambda devices: msgspec.structs.replace(memory(devices), gpu=1 << 33)
    load_model, decode = bindings.load_model, objects.Context.decode
    left: tuple[str, ...] = ()
    loaded = ""
    decodes = 0

    def crash() -> None:
        if cure not in left and whose in loaded:
            print(says, file=sys.stderr, flush=True)
            if name == "hang":
                threading.Event().wait()
            # To this thread: to the process, the load may go on in it for a while.
            signal.pthread_kill(threading.get_ident(), getattr(signal, name))

    def crashing_load(path: str, options: Any, leave_out: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal left, loaded
        left, loaded = tuple(leave_out), path
        with Path(calls).open("a") as file:
            file.write(",".join(left) + "\n")
        if when == "load":
            crash()
        return load_model(path, options, leave_out, *args, **kwargs)

    def crashing_decode(self: Any, batch: Any) -> int:
        nonlocal decodes
        decodes += 1
        if when == str(decodes):
            crash()
        return decode(self, batch)

    bindings.load_model = crashing_load
    objects.Context.decode = crashing_decode
    return process.main()


if __name__ == "__main__":
    raise SystemExit(main())
