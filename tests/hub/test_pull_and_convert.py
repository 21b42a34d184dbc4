"""A pair whose draft is a checkpoint: downloaded, converted, ready to load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eaglechat.gguf.pairing import check_pair
from tests.convert import checkpoints
from tests.hub.commands import Commands
from tests.hub.fakehub import FakeHub

CATALOGUE = """
[[pair]]
name = "small"
target = { repo = "org/small-GGUF", file = "small-Q8_0.gguf" }
draft = { checkpoint = "lab/small_eagle3" }
"""


@pytest.fixture
def commands(fake: FakeHub, tmp_path: Path) -> Commands:
    target = checkpoints.write_target(tmp_path / "small-Q8_0.gguf")
    stored = checkpoints.draft().save(tmp_path / "checkpoint")
    fake.add("org/small-GGUF", {target.name: target.read_bytes()})
    fake.add("lab/small_eagle3", {path.name: path.read_bytes() for path in stored.iterdir()})
    config = tmp_path / "home" / "eaglechat" / "config"
    config.mkdir(parents=True)
    (config / "catalogue.toml").write_text(CATALOGUE)
    return Commands(tmp_path / "home", fake.endpoint)


def test_a_checkpoint_is_converted_after_its_download(commands: Commands, fake: FakeHub) -> None:
    result = commands.run("pull", "small")
    assert result.returncode == 0, result.stderr
    target, draft = map(Path, result.stdout.splitlines())
    assert draft == commands.home / "eaglechat" / "data" / "drafts" / "eagle3-small-Q8_0.gguf"
    _, header = check_pair(target, draft)
    assert header is not None
    assert header.quantization == "Q8_0"
    assert "eaglechat: note: " in result.stderr
    assert "the usual 2, 6, 9 were taken" in result.stderr

    fake.seen.clear()
    again = commands.run("pull", "small")
    assert again.stdout == result.stdout
    assert fake.requests("storage") == []

    listed = json.loads(commands.run("models", "--json").stdout)
    assert {model["kind"] for model in listed["models"]} == {"target", "draft", "checkpoint"}

    told = commands.run("models").stdout
    assert "Its draft is converted; `eaglechat remove lab/small_eagle3` deletes this." in told
    assert commands.run("remove", "lab/small_eagle3", "--yes").returncode == 0
    assert commands.run("pull", "small").stdout == result.stdout
    assert fake.requests("storage") == []

    assert commands.run("remove", "small", "--yes").returncode == 0
    assert json.loads(commands.run("models", "--json").stdout)["models"] == []


def test_a_checkpoint_that_cannot_be_converted_says_why(commands: Commands, fake: FakeHub) -> None:
    files = fake.repos["lab/small_eagle3"].files
    config = json.loads(files["config.json"])
    files["config.json"] = json.dumps({**config, "num_hidden_layers": 3}).encode()
    result = commands.run("pull", "small")
    assert result.returncode == 1
    assert "The draft of small cannot be converted: " in result.stderr
    assert "has 3 layers, llama.cpp runs drafts of 1" in result.stderr
    assert "Traceback" not in result.stderr
