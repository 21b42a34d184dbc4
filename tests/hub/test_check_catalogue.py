"""The script that says what of the catalogue is wrong on the Hub now."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from eaglechat.hub.downloads.client import Hub
from tests import ggufs
from tests.hub.fakehub import FakeHub

TARGET, DRAFT = ggufs.target(), ggufs.draft()
SCRIPT = Path(__file__).parents[2] / "docs" / "check_catalogue.py"
CATALOGUE = f"""
[[pair]]
name = "base"
target = {{ repo = "org/Base-GGUF", quantization = "Q4_K_M" }}
draft = {{ repo = "lab/Base-eagle3", file = "d.gguf", size = {len(DRAFT)} }}
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
    fake.add("org/Base-GGUF", {"Base-Q4_K_M.gguf": TARGET})
    fake.add("lab/Base-eagle3", {"d.gguf": DRAFT})
    path = tmp_path / "catalogue.toml"
    path.write_text(CATALOGUE)
    return path


def another(fake: FakeHub, draft: bytes) -> None:
    fake.add("lab/Base-eagle3", {"d.gguf": draft})


def gated(fake: FakeHub) -> None:
    fake.repos["org/Base-GGUF"].gated = True


def renamed(fake: FakeHub) -> None:
    fake.add("lab/Moved", {"d.gguf": DRAFT})
    fake.add("lab/Base-eagle3", {"d.gguf": DRAFT}, renamed="lab/Moved")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _fake: None, "base: as it says\n"),
        (lambda fake: another(fake, ggufs.draft(**{"general.name": "x"})), "draft: 2 kB became"),
        (lambda fake: another(fake, ggufs.draft(hidden=16)), "does not fit: the draft was made"),
        (gated, "org/Base-GGUF is gated"),
        (renamed, "lab/Base-eagle3 is now called lab/Moved"),
        (lambda fake: fake.repos.pop("lab/Base-eagle3"), "is not on the Hub, or it is private"),
        (
            lambda fake: fake.add("lab/Base-eagle3", {"e.gguf": DRAFT}),
            "has no complete model d.gguf; it has e.gguf",
        ),
    ],
)
def test_what_is_wrong_with_a_pair_is_said(
    *,
    change: Callable[[FakeHub], object],
    said: str,
    script: ModuleType,
    hub: Hub,
    fake: FakeHub,
    file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(fake)
    assert script.main(["base"], hub, file) == int("as it says" not in said)
    assert said in capsys.readouterr().out


def test_a_pair_without_a_draft_needs_heads(
    script: ModuleType, hub: Hub, fake: FakeHub, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text('[[pair]]\nname = "base"\ntarget = { repo = "org/Base-GGUF" }\n')
    assert script.main([], hub, file) == 1
    assert "nothing drafts for it: Base-Q4_K_M.gguf has no MTP heads" in capsys.readouterr().out
    head = (*ggufs.ONE_TENSOR, ("blk.6.nextn.eh_proj.weight", (8, 8)))
    fields = {"hy_v3.nextn_predict_layers": 1}
    heads = ggufs.target("hy_v3", n_layers=7, tensors=head, **fields)
    fake.add("org/Base-GGUF", {"Base-Q4_K_M.gguf": heads})
    assert script.main([], hub, file) == 0


def test_without_a_network_nothing_is_said_to_be_wrong(
    script: ModuleType, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = Hub("http://127.0.0.1:9", tmp_path / "cache", waits=())
    assert script.main([], nowhere, file) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Cannot reach the Hub" in err


def test_a_pair_that_is_not_in_the_catalogue_is_not_taken_for_right(
    script: ModuleType, hub: Hub, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        script.main(["qwen4"], hub, file)
    assert ended.value.code == 2
    assert "no pair of the catalogue is named qwen4" in capsys.readouterr().err
