"""A process that downloads is killed again and again, and the download loses nothing."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from eaglechat.hub.local.cache import RepoCache
from eaglechat.hub.local.partial_file import BLOCK, PartialFile
from tests.hub.commands import Commands
from tests.hub.fakehub import FakeHub, Seen, sha256
from tests.waiting import PATIENCE_S


class Held:
    """A pace: stops everything once so many bytes were sent in all, until the gate opens."""

    def __init__(self, fake: FakeHub, sent: int) -> None:
        self.fake, self.sent = fake, sent
        self.reached, self.gate = threading.Event(), threading.Event()

    def __call__(self, seen: Seen, offset: int) -> None:
        if sum(one.sent for one in self.fake.requests("storage")) > self.sent:
            self.reached.set()
            self.gate.wait()


@pytest.mark.slow
def test_kills_lose_nothing_of_any_connection(fake: FakeHub, tmp_path: Path) -> None:
    rng = random.Random(21)
    data = rng.randbytes(5 * BLOCK // 2)
    fake.add("user/model", {"m.gguf": data})
    fake.piece = 256 << 10
    commands = Commands(tmp_path, fake.endpoint)
    part = RepoCache(commands.cache, "user/model").partial(sha256(data))
    before = 0
    for share in (0.1, 0.4, 0.8):
        held = fake.pace = Held(fake, int(share * len(data)))
        process = commands.start("pull", "user/model")
        assert held.reached.wait(PATIENCE_S)
        process.kill()
        process.communicate()
        held.gate.set()
        content = part.read_bytes()
        with PartialFile(part, len(data)) as left:
            assert left.received >= before
            before = left.received
            for start, end in left.missing_ranges():
                begin = start // BLOCK * BLOCK
                assert content[begin:start] == data[begin:start]
                assert end > start

    fake.pace = lambda seen, offset: None
    result = commands.run("pull", "user/model")
    assert result.returncode == 0, result.stderr
    assert sha256(Path(result.stdout.strip()).read_bytes()) == sha256(data)
    assert before > 0
