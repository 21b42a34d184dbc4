"""What is left of a device after an engine on it was killed: the next one must load and write."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from eaglechat.wire import protocol as p
from eaglechat.wire.load_options import LoadOptions
from tests.engine_client import EngineClient

_PATIENCE_S = 900.0
"""A software driver takes a second for a token, and half a minute for its shaders."""


def kill_and_load_again(pair: tuple[Path, Path | None], options: LoadOptions) -> tuple[bool, str]:
    """Whether a pair writes as before, its engine killed in mid-reply; and what was seen."""
    target, draft = pair
    load = p.Load(target=str(target), draft=str(draft) if draft else None, options=options)
    with tempfile.TemporaryDirectory(prefix="eaglechat-gpu-") as folder:
        command = [sys.executable, "-m", "eaglechat", "engine"]
        client = EngineClient(command, Path(folder) / "engine.log", _PATIENCE_S)
        try:
            loaded = client.ask(load)
            if not isinstance(loaded, p.Loaded):
                return False, f"not loaded: {loaded}"
            client.begin(_chat(256))
            client.until(lambda: len(client.rounds) >= 2)
            before = [token.id for event in client.rounds for token in event.round.tokens]
            client.process.kill()
            client.until(lambda: client.died is not None)
            client.link.start()
            loaded = client.ask(load)
            if not isinstance(loaded, p.Loaded):
                return False, f"not loaded again: {loaded}"
            client.ask(_chat(max(len(before), 1)))
        finally:
            client.link.close()
        after = [token.id for event in client.rounds for token in event.round.tokens]
    n = min(len(before), len(after))
    found = f"killed after {len(before)} tokens, loaded again, {len(after)} tokens written"
    return n > 0 and before[:n] == after[:n], found


def _chat(max_tokens: int) -> p.Chat:
    return p.Chat(
        messages=(p.Message(role="user", content="Name three rivers."),),
        sampling=p.Sampling(temperature=0.0, seed=1),
        max_tokens=max_tokens,
    )
