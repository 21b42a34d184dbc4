"""An engine process that writes a scripted reply at a given number of tokens per second.

`python tests/tools/paced_engine.py 500`, as `engine.command` of the app's settings. It costs the
app what a real engine does: the same lines through the same pipes.
"""

from __future__ import annotations

import queue
import sys
import threading
import time

from eaglechat.wire import protocol
from eaglechat.wire.protocol import decode_request, encode
from eaglechat.wire.records import Round
from eaglechat.wire.worker import Died
from tests.tui.scripted import REPLY, ScriptedEngine

PARAGRAPHS = 400
_IDLE_S = 0.01


def main() -> None:
    tokens_per_second = float(sys.argv[1])
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    engine = ScriptedEngine()
    engine.reply = "\n\n".join([REPLY] * PARAGRAPHS)
    events: list[protocol.AnyEvent | Died] = []
    engine.open_engine(events.append)
    due = time.monotonic()
    while True:
        while not requests.empty():
            request = decode_request(requests.get())
            if isinstance(request, protocol.Shutdown):
                return
            engine.hand_over(request)
            due = time.monotonic()
        engine.work()
        for event in events:
            assert not isinstance(event, Died)
            sys.stdout.buffer.write(encode(event))
        sys.stdout.buffer.flush()
        steps = [event.step for event in events if isinstance(event, protocol.Progress)]
        rounds = [step for step in steps if isinstance(step, Round)]
        events.clear()
        due += sum(len(round_.tokens) for round_ in rounds) / tokens_per_second
        time.sleep(max(0.0, due - time.monotonic()) if rounds else _IDLE_S)


def _read(requests: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    requests.put(encode(protocol.Shutdown()))


if __name__ == "__main__":
    main()
