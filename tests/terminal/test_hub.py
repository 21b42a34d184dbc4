"""A pair from the Hub, through the app in a real terminal: bars, SIGKILL, go on, convert, chat."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglechat.hub.local import pairs
from tests.convert.shipped import save_shipped_draft
from tests.hub.fakehub import FakeHub, sha256, slowly
from tests.terminal.tmux import REPLIED, Terminal

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.terminal,
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.skipif(
        pairs.inspect(pairs.builtin_pair()).problem is not None,
        reason="the demo extra is not installed",
    ),
]

CATALOGUE = """
[[pair]]
name = "small"
title = "The built-in pair, from a Hub"
target = { repo = "org/small-GGUF", file = "small-Q4_1.gguf" }
draft = { checkpoint = "lab/small_eagle3" }
licence = "apache-2.0"
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    """Serves the small target, and the shipped draft as the checkpoint it could have come from."""
    stored = save_shipped_draft(tmp_path)
    checkpoint = {
        name: (stored / name).read_bytes() for name in ("config.json", "model.safetensors")
    }
    with FakeHub() as fake:
        fake.add("org/small-GGUF", {"small-Q4_1.gguf": pairs.builtin_pair().target.read_bytes()})
        fake.add("lab/small_eagle3", checkpoint)
        yield fake


def open_app(home: Path, hub: FakeHub) -> Terminal:
    env = {
        "EAGLECHAT_HOME": str(home / "eaglechat"),
        "HF_HOME": str(home / "hf"),
        "HF_ENDPOINT": hub.endpoint,
        "HF_HUB_OFFLINE": "0",
        "HF_TOKEN": "",
        "PYTHONPATH": str(ROOT),
    }
    flags = ["--temperature", "0", "--max-tokens", "24", "--n-draft-max", "3", "--threads", "1"]
    command = [sys.executable, "-m", "eaglechat", *flags]
    return Terminal(command, width=100, height=30, env=env)


@pytest.mark.slow
def test_a_pair_is_chosen_killed_in_mid_download_gone_on_with_converted_and_chatted_with(
    hub: FakeHub, tmp_path: Path
) -> None:
    config = tmp_path / "eaglechat" / "config"
    config.mkdir(parents=True)
    (config / "catalogue.toml").write_text(CATALOGUE)
    hub.pace = slowly(4e6)

    with open_app(tmp_path, hub) as terminal:
        terminal.wait_for("qwen3-1.7b")
        terminal.type("small")
        terminal.wait_for(r"○ small\s")
        terminal.keys("Enter")
        terminal.wait_for(r"Download: 137.7 MB\. Free on the disk")
        terminal.wait_for("Memory: ")
        terminal.keys("Enter")
        screen = terminal.wait_for(r" (1[5-9]|[2-9]\d)% .* of 137\.7 MB .*MB/s\s+\d+:\d\d left")
        assert 0 < percent(screen, "small-Q4_1.gguf") < 100
        terminal.kill()
        terminal.wait_for("exit status 137")

    drafts = tmp_path / "eaglechat" / "data" / "drafts"
    assert not drafts.exists()
    (part,) = (path for path in (tmp_path / "hf").rglob("*.part") if "small-GGUF" in str(path))
    here = part.stat().st_size
    assert here > 0
    hub.seen.clear()

    with open_app(tmp_path, hub) as terminal:
        terminal.wait_for("qwen3-1.7b")
        terminal.type("small")
        terminal.wait_for(r"↓ small\s")
        terminal.keys("Enter")
        terminal.wait_for("are already here")
        hub.pace = lambda seen, offset: None
        terminal.keys("Enter")
        # Where its download was watched, it is loaded at once.
        terminal.wait_for("Ask something", 180)
        assert [path.name for path in drafts.iterdir()] == ["eagle3-small-Q8_0.gguf"]
        terminal.type("Write a quicksort algorithm in Python. Write code only.")
        terminal.keys("Enter")
        terminal.says(REPLIED)
        # The converted draft is the shipped one: the target accepts some of what it guesses.
        assert percent(terminal.screen(), "kept") > 0
        terminal.keys("C-q")
        terminal.wait_for("exit status 0")

    target = sha256(pairs.builtin_pair().target.read_bytes())
    fetched = [seen for seen in hub.requests("storage") if target in seen.path and not peeked(seen)]
    assert [seen.range for seen in fetched] == [f"bytes={here}-"]


def peeked(seen: object) -> bool:
    """A look at the header: a range with an end."""
    return not str(getattr(seen, "range", "")).endswith("-")


def percent(screen: str, name: str) -> int:
    found = re.search(rf"{re.escape(name)}\s.*?(\d+)%", screen)
    return int(found[1]) if found else 0
