"""drafts, search, and pull of a target with a draft, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eaglechat.hub.downloads.find_drafts import NOT_REACHED
from tests import ggufs
from tests.convert import checkpoints
from tests.hub.commands import Commands
from tests.hub.downloads.test_drafts import a_target, checkpoint
from tests.hub.fakehub import FakeHub

CATALOGUE = """
[[pair]]
name = "based"
target = { repo = "org/Base-GGUF", file = "Base-Q4_K_M.gguf" }
draft = { checkpoint = "lab/Base_eagle3" }
base_model = "org/Base"
acceptance = "mean accepted length 2.17 (the lab's README)"
"""


@pytest.fixture
def commands(fake: FakeHub, tmp_path: Path) -> Commands:
    fake.add("org/Base-GGUF", {"Base-Q4_K_M.gguf": a_target()}, base_models=("org/Base",))
    fake.add("lab/Base_eagle3", checkpoint(checkpoints.draft()), base_models=("org/Base",))
    fake.add("lab/EAGLE3-Base", checkpoint(checkpoints.draft(hidden_size=64)))
    return Commands(tmp_path, fake.endpoint)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A target of the user's, which no repository is known for."""
    path = tmp_path / "own" / "Base-Q8_0.gguf"
    path.parent.mkdir()
    path.write_bytes(a_target())
    return path


def write_catalogue(commands: Commands) -> None:
    config = commands.home / "eaglechat" / "config"
    config.mkdir(parents=True)
    (config / "catalogue.toml").write_text(CATALOGUE)


def ways(commands: Commands, model: str, **how: bool) -> dict[str, dict[str, Any]]:
    result = commands.run("drafts", model, "--json", **how)
    assert result.returncode == 0, result.stderr
    return {way["repo"] or way["where"]: way for way in json.loads(result.stdout)["ways"]}


def test_everything_that_drafts_for_a_model_is_listed_and_judged(commands: Commands) -> None:
    write_catalogue(commands)
    found = ways(commands, "org/Base-GGUF")
    assert list(found) == ["lab/Base_eagle3", "n_grams", "training", "lab/EAGLE3-Base"]
    best = found["lab/Base_eagle3"]
    assert (best["fits"], best["converts"], best["drafter"]) == (True, True, "eagle3")
    assert best["licence"] == "apache-2.0"
    assert best["size_bytes"] > 0
    assert best["reported"] == "mean accepted length 2.17 (the lab's README)"
    assert best["command"] == (
        "eaglechat pull org/Base-GGUF/Base-Q4_K_M.gguf --draft lab/Base_eagle3"
    )
    assert found["lab/EAGLE3-Base"]["fits"] is False
    assert found["lab/EAGLE3-Base"]["command"] is None
    said = commands.run("drafts", "based").stdout
    assert "● lab/Base_eagle3  EAGLE-3 · to convert" in said
    assert "✗ lab/EAGLE3-Base" in said
    assert "a target with hidden size 64" in said


def test_without_the_hub_what_is_here_is_listed_and_it_is_said_once(
    commands: Commands, own: Path, fake: FakeHub
) -> None:
    write_catalogue(commands)
    beside = own.with_name("eagle3-own.gguf")
    beside.write_bytes(ggufs.draft(hidden=checkpoints.HIDDEN, n_vocab=checkpoints.VOCAB))
    config = commands.home / "eaglechat" / "config" / "config.toml"
    config.write_text(f'[library]\nfolders = ["{own.parent.as_posix()}"]\n')
    found = ways(commands, str(own), offline=True)
    assert list(found) == ["here", "n_grams", "training"]
    assert found["here"]["command"] == f"eaglechat run --target {own} --draft {beside}"
    result = commands.run("drafts", "based", offline=True)
    assert result.returncode == 0
    assert "? lab/Base_eagle3" in result.stdout
    assert "reported: mean accepted length 2.17" in result.stdout
    assert result.stderr.strip() == f"eaglechat: {NOT_REACHED}"
    assert fake.seen == []


@pytest.mark.parametrize(
    ("words", "repos"),
    [
        (["base"], {"org/Base-GGUF", "lab/Base_eagle3", "lab/EAGLE3-Base"}),
        (["base", "eagle3"], {"lab/Base_eagle3", "lab/EAGLE3-Base"}),
        (["lab"], {"lab/Base_eagle3", "lab/EAGLE3-Base"}),
        (["hf:org/Base-GGUF"], {"org/Base-GGUF"}),
        (["{endpoint}/lab/Base_eagle3"], {"lab/Base_eagle3"}),
        (["org/Ba"], {"org/Base-GGUF"}),
    ],
)
def test_a_search_finds_targets_drafts_authors_and_addresses(
    commands: Commands, words: list[str], repos: set[str]
) -> None:
    given = [word.format(endpoint=commands.endpoint) for word in words]
    result = commands.run("search", *given, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)["repositories"]
    assert {one["repo"] for one in found} == repos
    kinds = {one["repo"]: one["kind"] for one in found}
    assert kinds == {repo: "target" if "GGUF" in repo else "draft" for repo in repos}


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (("search", "nothing-like-it"), 1, "no GGUF and no draft for 'nothing-like-it'"),
        (("search", "https://example.org/a/b"), 2, "is not on the Hugging Face Hub"),
        (("drafts", "org/none"), 1, "org/none is not on the Hub"),
        (("pull", "lab/Base_eagle3"), 2, "pull TARGET --draft lab/Base_eagle3`; the Hub has org/B"),
        (("pull", "org/Base-GGUF", "--draft", "./d.gguf"), 2, "is a path on this machine"),
        (("pull", "org/Base-GGUF", "--draft", "lab/EAGLE3-Base"), 1, "cannot be converted: the"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_status(
    commands: Commands, fake: FakeHub, words: tuple[str, ...], status: int, reason: str
) -> None:
    result = commands.run(*words)
    assert result.returncode == status
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not list(commands.cache.rglob("*.gguf"))


@pytest.mark.parametrize("command", ["drafts", "pull"])
def test_a_pair_whose_target_has_gone_is_no_name_on_the_hub(
    commands: Commands, command: str
) -> None:
    """And no misspelling of its own name."""
    config = commands.home / "eaglechat" / "config"
    config.mkdir(parents=True)
    entry = '[[pair]]\nname = "mine"\ntarget = { path = "/nowhere/t.gguf" }\n'
    (config / "catalogue.toml").write_text(entry)
    result = commands.run(command, "mine")
    assert result.returncode == 2
    assert result.stderr == "eaglechat: The target of mine has gone: /nowhere/t.gguf.\n"


def test_a_checkpoint_is_pulled_for_the_target_that_is_here(commands: Commands) -> None:
    assert commands.run("pull", "org/Base-GGUF", "--draft", "lab/Base_eagle3").returncode == 0
    (pair,) = [p for p in pairs(commands) if p["name"] == "base-q4_k_m-lab"]
    assert pair["state"] == "installed"
    assert commands.run("remove", "eagle3-base-q4_k_m-lab-Q8_0", "--yes").returncode == 0
    again = commands.run("pull", "lab/Base_eagle3")
    assert again.returncode == 0, again.stderr
    assert again.stdout.split() == [pair["target_path"], pair["draft_path"]]
    here = ways(commands, "org/Base-GGUF", offline=True)["lab/Base_eagle3"]
    assert (here["path"], here["converts"]) == (pair["draft_path"], False)


def pairs(commands: Commands) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(commands.run("models", "--json").stdout)["pairs"]
    return listed


def test_a_draft_is_pulled_for_a_file_of_the_users_which_stays_theirs(
    commands: Commands, own: Path
) -> None:
    result = commands.run("pull", str(own), "--draft", "lab/Base_eagle3")
    assert result.returncode == 0, result.stderr
    target, draft = result.stdout.split()
    assert target == str(own)
    assert "the pair is base-q8_0-lab" in result.stderr
    assert [p["state"] for p in pairs(commands) if p["target_path"] == target] == ["installed"]
    assert commands.run("remove", "base-q8_0-lab", "--yes").returncode == 0
    assert own.exists()
    assert not Path(draft).exists()


def test_a_much_smaller_model_of_the_family_is_offered(commands: Commands, tmp_path: Path) -> None:
    """One of half the size is not: it could hardly pay."""
    folder = tmp_path / "models"
    sizes = {"family-32b": 64, "family-16b": 32, "family-0.6b": 2}
    for name, rows in sizes.items():
        folder.mkdir(exist_ok=True)
        tensors = (("blk.0.attn_norm.weight", (32,)), ("token_embd.weight", (rows * 64, 32)))
        (folder / f"{name}.gguf").write_bytes(ggufs.target(tensors=tensors))
    config = commands.home / "eaglechat" / "config"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f"[library]\nfolders = ['{folder}']\n")
    target = str(folder / "family-32b.gguf")
    answer = json.loads(commands.run("drafts", target, "--json").stdout)
    offered = [way for way in answer["ways"] if way["drafter"] == "model"]
    assert [way["command"] for way in offered] == [
        f"eaglechat run --target {target} --draft {folder / 'family-0.6b.gguf'}"
    ]
