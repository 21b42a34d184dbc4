"""The script that says what of the catalogue has changed on the Hub, and pins it anew."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from eaglechat.hub import catalogue
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.downloads.client import Hub, Timeouts
from eaglechat.hub.downloads.download import download
from tests import ggufs
from tests.hub.fakehub import FakeHub, Repo, sha256

TARGET, DRAFT = ggufs.target(), ggufs.draft()
SCRIPT = Path(__file__).parents[2] / "docs" / "check_catalogue.py"
CATALOGUE = """# Kept.
[[pair]]
name = "base"   # and this
target = { repo = "org/Base-GGUF", quantization = "Q4_K_M" }
draft = { repo = "lab/Base-eagle3", file = "d.gguf", revision = "REVISION", size = 7 }
licence = "mit"
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_catalogue", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def file(fake: FakeHub, tmp_path: Path) -> Path:
    """A catalogue whose pair is pinned as it is."""
    fake.add("org/Base-GGUF", {"Base-Q4_K_M.gguf": TARGET})
    draft = fake.add("lab/Base-eagle3", {"d.gguf": DRAFT})
    path = tmp_path / "catalogue.toml"
    facts = CATALOGUE.replace("REVISION", draft.commit)
    path.write_text(facts.replace("size = 7", f"size = {len(DRAFT)}"))
    return path


def move_on(fake: FakeHub, name: str, files: dict[str, bytes]) -> Repo:
    """A new commit, the last one still there."""
    return fake.add(name, files, older=(fake.repos[name],))


def entry_of(file: Path) -> CatalogueEntry:
    (entry,), problems = catalogue.read(file)
    assert problems == []
    return entry


def test_nothing_has_changed(
    script: ModuleType, hub: Hub, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([], hub, file) == 0
    assert capsys.readouterr().out == "base: unchanged\n"


def test_a_branch_that_moved_on_is_said_and_pinned_on_demand(
    script: ModuleType, hub: Hub, fake: FakeHub, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = ggufs.draft(**{"general.name": "another"})
    repo = move_on(fake, "lab/Base-eagle3", {"d.gguf": new})
    before = entry_of(file)
    assert script.main(["--write", "base"], hub, file) == 1
    said = capsys.readouterr().out
    assert f"draft: main has moved on to {repo.commit[:8]}" in said
    assert f"({len(new)} bytes)" in said

    # What was pinned can still be had.
    listing = hub.repo("lab/Base-eagle3", before.draft.revision)
    assert download(hub, listing.file("d.gguf")).read_bytes() == DRAFT

    after = entry_of(file)
    assert (after.draft.revision, after.draft.size) == (repo.commit, len(new))
    assert after.draft.sha256 == sha256(new)
    assert after.target.file == "Base-Q4_K_M.gguf"
    assert after.target.quantization is None
    assert after.target.sha256 == sha256(TARGET)
    assert after.licence == "mit"
    text = file.read_text()
    assert text.startswith("# Kept.\n")
    assert "# and this" in text
    assert script.main([], hub, file) == 0


def test_another_file_under_the_same_revision_is_said(
    script: ModuleType, hub: Hub, fake: FakeHub, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--write"], hub, file) == 0
    fake.repos["org/Base-GGUF"].files["Base-Q4_K_M.gguf"] = ggufs.target(**{"general.name": "x"})
    assert script.main([], hub, file) == 1
    said = capsys.readouterr().out
    assert "has no such revision" in said
    assert "target: another file (sha256" in said


def test_a_draft_that_no_longer_fits_is_said_and_not_pinned(
    script: ModuleType, hub: Hub, fake: FakeHub, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    move_on(fake, "lab/Base-eagle3", {"d.gguf": ggufs.draft(hidden=16)})
    before = file.read_text()
    assert script.main(["--write"], hub, file) == 1
    assert "no longer fits: the draft was made for a target" in capsys.readouterr().out
    assert file.read_text() == before


def test_a_pair_without_a_draft_needs_heads_and_keeps_its_quantisation_open(
    script: ModuleType, hub: Hub, fake: FakeHub, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text('[[pair]]\nname = "base"\ntarget = { repo = "org/Base-GGUF" }\n')
    assert script.main(["--write"], hub, file) == 1
    assert "nothing drafts for it: Base-Q4_K_M.gguf has no MTP heads" in capsys.readouterr().out
    before = entry_of(file)

    head = (*ggufs.ONE_TENSOR, ("blk.6.nextn.eh_proj.weight", (8, 8)))
    fields = {"hy_v3.nextn_predict_layers": 1}
    heads = ggufs.target("hy_v3", n_layers=7, tensors=head, **fields)
    repo = move_on(fake, "org/Base-GGUF", {"Base-Q4_K_M.gguf": heads})
    assert script.main(["--write"], hub, file) == 0
    assert capsys.readouterr().out == "base: unchanged\n"
    pinned = msgspec.structs.replace(before.target, revision=repo.commit)
    assert entry_of(file) == msgspec.structs.replace(before, target=pinned)


def test_what_is_gone_gated_or_renamed_is_said(
    script: ModuleType, hub: Hub, fake: FakeHub, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.repos["org/Base-GGUF"].gated = True
    assert script.main([], hub, file) == 1
    assert "org/Base-GGUF is gated" in capsys.readouterr().out

    fake.repos["org/Base-GGUF"].gated = False
    fake.repos["lab/Moved"] = fake.repos["lab/Base-eagle3"]
    fake.add("lab/Base-eagle3", {"d.gguf": DRAFT}, renamed="lab/Moved")
    assert script.main([], hub, file) == 1
    assert "lab/Base-eagle3 is now called lab/Moved" in capsys.readouterr().out

    del fake.repos["lab/Base-eagle3"]
    assert script.main(["--write"], hub, file) == 1
    assert "lab/Base-eagle3 is not on the Hub, or it is private" in capsys.readouterr().out
    assert entry_of(file).target.sha256 is None

    fake.repos["lab/Base-eagle3"] = fake.repos["lab/Moved"]
    fake.repos["lab/Base-eagle3"].files.pop("d.gguf")
    fake.repos["lab/Base-eagle3"].files["e.gguf"] = DRAFT
    assert script.main([], hub, file) == 1
    assert "has no complete model d.gguf; it has e.gguf" in capsys.readouterr().out


def test_without_a_network_nothing_is_said_to_have_changed(
    script: ModuleType, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = Hub("http://127.0.0.1:9", tmp_path / "cache", Timeouts(), ())
    before = file.read_text()
    assert script.main(["--write"], nowhere, file) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Cannot reach the Hub" in err
    assert file.read_text() == before


def test_a_pair_that_is_not_in_the_catalogue_is_not_taken_for_unchanged(
    script: ModuleType, hub: Hub, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        script.main(["qwen4"], hub, file)
    assert ended.value.code == 2
    assert "no pair of the catalogue is named qwen4" in capsys.readouterr().err
