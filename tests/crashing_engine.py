"""An engine whose llama.cpp crashes unless something is left out:

    python -m tests.crashing_engine SIGNAL WHEN CURE [CALLS]

It kills itself with SIGNAL at `load`, or at the decode of number WHEN, unless CURE is left out.
CALLS gets a line for each load: what was left out.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    name, when, cure, *calls = sys.argv[1:]

    from eaglechat.engine.llama import bindings, objects, workarounds
    from eaglechat.engine.process import pair_worker

    workarounds.possible = lambda: ("amx", "extra_buffers", "flash_attention", "gpu")
    load_model, decode = bindings.load_model, objects.Context.decode
    left: tuple[str, ...] = ()
    decodes = 0

    def crash() -> None:
        if cure not in left:
            os.kill(os.getpid(), getattr(signal, name))

    def crashing_load(path: str, placement: Any, leave_out: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left = tuple(leave_out)
        if calls:
            with Path(calls[0]).open("a") as file:
                file.write(",".join(left) + "\n")
        if when == "load":
            crash()
        return load_model(path, placement, leave_out, *args, **kwargs)

    def crashing_decode(self: Any, batch: Any) -> int:
        nonlocal decodes
        decodes += 1
        if when == str(decodes):
            crash()
        return decode(self, batch)

    bindings.load_model = crashing_load
    objects.Context.decode = crashing_decode
    return pair_worker.main()


if __name__ == "__main__":
    raise SystemExit(main())
