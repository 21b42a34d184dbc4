"""What installing a pair takes, and what is here of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from eaglechat.gguf.memory import kv_bytes
from eaglechat.hub import fit
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.downloads import install, targets
from eaglechat.hub.downloads.client import Hub, RemoteFile
from eaglechat.hub.downloads.download import RetryPolicy, download
from eaglechat.hub.downloads.find_drafts import find_drafts, pair_up
from eaglechat.hub.downloads.queue import Downloads
from eaglechat.hub.errors import GatedError, HubError
from eaglechat.hub.local.installed import status
from eaglechat.hub.references import ModelSource, choose, whole_models
from eaglechat.wire.protocol import Memory
from tests import ggufs
from tests.hub.commands import Commands
from tests.hub.fakehub import FakeHub, sha256
from tests.waiting import PATIENCE_S

TARGET, DRAFT = ggufs.target(), ggufs.draft()
SHARDS = {f"q4/m-Q4_K_M-0000{i}-of-00002.gguf": TARGET + bytes(i) for i in (1, 2)}
ENTRY = CatalogueEntry(
    name="pair",
    target=ModelSource(repo="org/model", quantization="Q4_K_M"),
    draft=ModelSource(repo="lab/draft"),
)


@pytest.fixture(autouse=True)
def served(fake: FakeHub) -> None:
    fake.add("org/model", dict(SHARDS), licence="llama3.1")
    fake.add("lab/draft", {"d-Q8_0.gguf": DRAFT}, gated=True, licence=None)


def fetch(hub: Hub, files: Sequence[RemoteFile]) -> None:
    """Download what can be had of these files."""
    downloads = Downloads(hub, policy=RetryPolicy(attempts=1))
    downloads.fetch("files", files)
    assert downloads.wait(timeout=PATIENCE_S)


def test_a_plan_says_what_will_come_from_where(hub: Hub) -> None:
    plan = install.plan(hub, ENTRY)
    assert [file.path for file in plan.files] == [*SHARDS, "d-Q8_0.gguf"]
    assert plan.bytes_total == plan.bytes_missing == 2 * len(TARGET) + 3 + len(DRAFT)
    assert plan.gated == ("lab/draft",)
    assert plan.licences == (("org/model", "llama3.1"),)
    assert not plan.converts


def test_a_pair_goes_from_available_over_partly_to_installed(hub: Hub, fake: FakeHub) -> None:
    assert status(ENTRY, hub.cache_dir).state == "available"
    fetch(hub, install.plan(hub, ENTRY).files)
    # The gated draft was refused: only the target is here.
    assert status(ENTRY, hub.cache_dir).state == "partly"
    plan = install.plan(hub, ENTRY)
    assert plan.bytes_missing == len(DRAFT)
    fake.repos["lab/draft"].gated = False
    fetch(hub, plan.files)
    here = status(ENTRY, hub.cache_dir)
    assert here.state == "installed"
    assert (here.pair, ()) == install.finish(plan, hub.cache_dir)
    assert here.pair.target.name == "m-Q4_K_M-00001-of-00002.gguf"


def test_half_a_split_target_is_not_installed(hub: Hub) -> None:
    fetch(hub, install.plan(hub, ENTRY).target[:1])
    assert status(ENTRY, hub.cache_dir).target is None


def test_a_pair_that_moved_on_at_the_hub_is_still_installed_here(hub: Hub, fake: FakeHub) -> None:
    fake.repos["lab/draft"].gated = False
    fetch(hub, install.plan(hub, ENTRY).files)
    fake.repos["org/model"].files["README.md"] = b"new"
    assert status(ENTRY, hub.cache_dir).state == "installed"
    assert install.plan(hub, ENTRY).bytes_missing == 0


def test_a_pinned_file_that_came_with_another_commit_is_installed(hub: Hub, fake: FakeHub) -> None:
    fake.repos["lab/draft"].gated = False
    whole = fake.add("org/one", {"one.gguf": TARGET})
    source = ModelSource(repo="org/one", file="one.gguf")
    loose = msgspec.structs.replace(ENTRY, target=source)
    pinned = msgspec.structs.replace(source, revision=whole.commit, sha256=sha256(TARGET))
    entry = msgspec.structs.replace(ENTRY, target=pinned)
    fake.add("org/one", {"one.gguf": TARGET, "README.md": b"new"}, older=(whole,))
    fetch(hub, install.plan(hub, loose).files)
    assert status(entry, hub.cache_dir).state == "installed"
    other = msgspec.structs.replace(pinned, sha256=sha256(DRAFT))
    entry = msgspec.structs.replace(ENTRY, target=other)
    assert status(entry, hub.cache_dir).target is None
    # The download will refuse it: it has another hash than the Hub's.
    assert install.plan(hub, entry).target[0].sha256 == sha256(DRAFT)


def test_the_disk_is_checked_for_the_whole_pair(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = install.plan(hub, ENTRY)
    monkeypatch.setattr(install, "free_bytes", lambda folder: plan.bytes_missing - 2000)
    with pytest.raises(HubError, match="2 kB more are needed"):
        install.check_disk(plan, hub.cache_dir)


def test_memory_is_known_before_anything_is_downloaded(hub: Hub, fake: FakeHub) -> None:
    fake.repos["lab/draft"].gated = False
    plan = install.plan(hub, ENTRY)
    need = install.facts_of(hub, plan, 2048).memory
    assert need.target_weights == 2 * len(TARGET) + 3
    assert need.draft_weights == len(DRAFT)
    target = hub.peek(plan.target[0])
    assert need.target_kv == kv_bytes(target, 2048)
    asked = len(fake.seen)
    install.facts_of(hub, plan, 4096)
    assert len(fake.seen) == asked


def test_a_draft_that_was_found_installs_like_one_of_the_catalogue(hub: Hub, fake: FakeHub) -> None:
    fake.add("org/Base-GGUF", {"Base-Q4_K_M.gguf": TARGET, "eagle3-Base.gguf": DRAFT})
    listing = hub.repo("org/Base-GGUF")
    model = choose(ModelSource(repo=listing.repo), listing.paths)
    target = targets.of_repo(hub, listing, model)
    *_, found = find_drafts(hub, target)
    entry = pair_up(target, found.ways[0], ())
    assert entry.name == "base-q4_k_m-org"
    fetch(hub, install.plan(hub, entry).files)
    assert status(entry, hub.cache_dir).state == "installed"


def test_a_gated_target_is_told_before_anything_is_downloaded(
    hub: Hub, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.repos["org/model"].gated = True
    plan = install.plan(hub, ENTRY)
    with pytest.raises(GatedError, match="org/model is gated: accept its licence"):
        install.check_access(hub, plan)
    assert fake.requests("storage") == []
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    install.check_access(hub, plan)


# Which quantisation comes where none is named

ASSISTANT = "mtp-m.gguf"
OPEN = CatalogueEntry(
    name="open",
    target=ModelSource(repo="org/sizes"),
    draft=ModelSource(repo="org/sizes", file=ASSISTANT),
)


@pytest.fixture
def sizes(fake: FakeHub) -> None:
    mib = {"BF16": 5, "Q8_0": 4, "Q6_K": 3, "Q4_K_M": 2}
    files = {f"m-{name}.gguf": TARGET + os.urandom(size << 20) for name, size in mib.items()}
    fake.add("org/sizes", {**files, ASSISTANT: DRAFT})


ROOMY = Memory(ram=1 << 40, ram_available=1 << 40)


def holds(hub: Hub, name: str) -> Memory:
    """A machine with just enough memory for a pair with this quantisation."""
    repo = hub.repo("org/sizes")
    weighed = install.weigh(hub, repo, whole_models(repo.paths), draft_bytes=len(DRAFT))
    assert [one.name for one in weighed] == ["m-BF16", "m-Q8_0", "m-Q6_K", "m-Q4_K_M"]
    (need,) = (one.need.total for one in weighed if one.name == name)
    return Memory(ram=need, ram_available=need)


@pytest.mark.usefixtures("sizes")
def test_a_pair_without_a_file_comes_in_the_largest_that_fits_with_its_draft(hub: Hub) -> None:
    plan = install.plan(hub, OPEN, machine=holds(hub, "m-Q6_K"))
    assert [file.path for file in plan.files] == ["m-Q6_K.gguf", ASSISTANT]
    assert plan.entry.target.file == "m-Q6_K.gguf"
    # Above Q8_0 is nothing; without a known memory, what a reference means everywhere.
    assert install.plan(hub, OPEN, machine=ROOMY).target[0].path == "m-Q8_0.gguf"
    assert install.plan(hub, OPEN).target[0].path == "m-Q4_K_M.gguf"


@pytest.mark.usefixtures("sizes")
def test_what_is_here_is_taken_and_a_draft_beside_it_is_no_target(hub: Hub) -> None:
    repo = hub.repo("org/sizes")
    draft = download(hub, repo.file(ASSISTANT))
    found = status(OPEN, hub.cache_dir)
    assert (found.state, found.target, found.draft) == ("partly", None, draft)
    target = download(hub, repo.file("m-Q4_K_M.gguf"))
    weighed = install.weigh(hub, repo, whole_models(repo.paths))
    best = fit.best(weighed, ROOMY)
    assert best is not None
    assert best.model.first == "m-Q4_K_M.gguf"
    plan = install.plan(hub, OPEN, machine=ROOMY)
    assert plan.bytes_missing == 0
    pair, _ = install.finish(plan, hub.cache_dir)
    assert (pair.target, pair.draft) == (target, draft)


@pytest.mark.usefixtures("sizes")
def test_pull_says_of_each_whether_it_fits(fake: FakeHub, tmp_path: Path) -> None:
    commands = Commands(tmp_path / "home", fake.endpoint)
    result = commands.run("pull", "org/sizes")
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).name == "m-Q8_0.gguf"
    (row,) = (line for line in result.stderr.splitlines() if line.startswith("▸"))
    assert row.startswith("▸ m-Q8_0    4.2 MB  fits, ")
    # A second time, it is the one that is here.
    again = commands.run("pull", "org/sizes")
    assert again.stdout == result.stdout
