"""Which quantisation comes where none is named, and what is said of each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.downloads import install
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.download import download
from eaglechat.hub.downloads.install import weigh
from eaglechat.hub.fit import best as best_of
from eaglechat.hub.local.installed import status
from eaglechat.hub.references import ModelSource, whole_models
from eaglechat.wire.protocol import Memory
from tests import ggufs
from tests.hub.commands import Commands
from tests.hub.fakehub import FakeHub

MIB = 1 << 20
ASSISTANT = "mtp-m.gguf"
ENTRY = CatalogueEntry(
    name="open",
    target=ModelSource(repo="org/model"),
    draft=ModelSource(repo="org/model", file=ASSISTANT),
)


@pytest.fixture(autouse=True)
def served(fake: FakeHub) -> None:
    sizes = {"BF16": 5, "Q8_0": 4, "Q6_K": 3, "Q4_K_M": 2}
    target = ggufs.target()
    files = {f"m-{name}.gguf": target + os.urandom(size * MIB) for name, size in sizes.items()}
    fake.add("org/model", {**files, ASSISTANT: ggufs.draft()})


ROOMY = Memory(ram=1 << 40, ram_available=1 << 40)


def holds(hub: Hub, name: str) -> Memory:
    """A machine with just enough memory for a pair with this quantisation."""
    repo = hub.repo("org/model")
    weighed = weigh(hub, repo, whole_models(repo.paths), draft_bytes=len(ggufs.draft()))
    assert [one.name for one in weighed] == ["m-BF16", "m-Q8_0", "m-Q6_K", "m-Q4_K_M"]
    (need,) = (one.need.total for one in weighed if one.name == name)
    return Memory(ram=need, ram_available=need)


def test_a_pair_without_a_file_comes_in_the_largest_that_fits_with_its_draft(hub: Hub) -> None:
    plan = install.plan(hub, ENTRY, machine=holds(hub, "m-Q6_K"))
    assert [file.path for file in plan.files] == ["m-Q6_K.gguf", ASSISTANT]
    assert plan.entry.target.file == "m-Q6_K.gguf"
    # Above Q8_0 is nothing; without a known memory, what a reference means everywhere.
    assert install.plan(hub, ENTRY, machine=ROOMY).target[0].path == "m-Q8_0.gguf"
    assert install.plan(hub, ENTRY).target[0].path == "m-Q4_K_M.gguf"


def test_what_is_here_is_taken_and_a_draft_beside_it_is_no_target(hub: Hub) -> None:
    repo = hub.repo("org/model")
    draft = download(hub, repo.file(ASSISTANT))
    found = status(ENTRY, hub.cache_dir)
    assert (found.state, found.target, found.draft) == ("partly", None, draft)
    target = download(hub, repo.file("m-Q4_K_M.gguf"))
    weighed = weigh(hub, repo, whole_models(repo.paths))
    best = best_of(weighed, ROOMY)
    assert best is not None
    assert best.model.first == "m-Q4_K_M.gguf"
    plan = install.plan(hub, ENTRY, machine=ROOMY)
    assert plan.bytes_missing == 0
    pair, _ = install.finish(plan, hub.cache_dir)
    assert (pair.target, pair.draft) == (target, draft)


def test_pull_says_of_each_whether_it_fits(fake: FakeHub, tmp_path: Path) -> None:
    commands = Commands(tmp_path / "home", fake.endpoint)
    result = commands.run("pull", "org/model")
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).name == "m-Q8_0.gguf"
    (row,) = (line for line in result.stderr.splitlines() if line.startswith("▸"))
    assert row.startswith("▸ m-Q8_0    4.2 MB  fits, ")
    # A second time, it is the one that is here.
    again = commands.run("pull", "org/model")
    assert again.stdout == result.stdout
