"""Measures the engine's memory over a long chat: python -m tests.measure.measure_chat_memory"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from eaglechat.hub.local.pairs import builtin_pair
from eaglechat.links.base import FINAL, AnsweredRequest
from eaglechat.links.process import EngineProcess
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import (
    Answer,
    Chat,
    Error,
    Load,
    Message,
    RoundDone,
    WindowMoved,
)
from tests.measure.measure_long_chats import QUESTIONS


def measure_memory(n_turns: int, n_ctx: int) -> None:
    """Resident memory of an engine process over a chat of many turns."""
    pair = builtin_pair()
    assert pair.draft is not None
    with TemporaryDirectory() as folder:
        engine = EngineProcess([sys.executable, "-m", "eaglechat", "engine"], Path(folder, "log"))
        engine.start()
        try:
            load = Load(
                target=str(pair.target),
                draft=str(pair.draft),
                options=LoadOptions(n_ctx=n_ctx),
            )
            answers(engine, load)
            print("| Turn | First turn in the context | Resident memory, MB |\n| --- | --- | --- |")
            messages, first_turn = [], 0
            for turn in range(n_turns):
                text = f"{QUESTIONS[turn % len(QUESTIONS)]} ({turn})"
                messages.append(Message(role="user", content=text))
                events = answers(engine, Chat(messages=tuple(messages), max_tokens=100))
                reply = "".join(e.round.text for e in events if isinstance(e, RoundDone))
                messages.append(Message(role="assistant", content=reply))
                for event in events:
                    if isinstance(event, WindowMoved):
                        first_turn = event.window.first_turn
                if turn % 5 == 4 or turn == 0:
                    print(f"| {turn + 1} | {first_turn} | {resident() / 1e6:.1f} |", flush=True)
        finally:
            engine.close()


def answers(engine: EngineProcess, request: AnsweredRequest) -> list[Answer]:
    events: list[Answer] = []
    engine.request(request, events.append)
    while not events or not isinstance(events[-1], FINAL):
        engine.pump(1.0)
    assert not isinstance(events[-1], Error), events[-1]
    return events


def resident() -> int:
    (process,) = psutil.Process().children()
    return int(process.memory_info().rss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--ctx", type=int, default=768)
    args = parser.parse_args()
    measure_memory(args.turns, args.ctx)


if __name__ == "__main__":
    main()
