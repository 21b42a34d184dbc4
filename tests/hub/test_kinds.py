"""Every kind of drafter in the library, in `eaglechat models`, `pull` and `doctor`, and on the Hub:
who drafts for what, and why nothing does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eaglechat.gguf.pairing import kind_of
from eaglechat.hub.catalogue import CatalogueEntry
from eaglechat.hub.downloads import install, targets
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.find_drafts import find_drafts, pair_up
from eaglechat.hub.local.installed import status
from eaglechat.hub.local.library import drafts_for, find, scan
from eaglechat.hub.local.model import LocalModel, ModelKind
from eaglechat.hub.references import ModelFiles, ModelSource
from eaglechat.words import ways
from eaglechat.words.wording import NAMES
from tests import ggufs
from tests.hub.commands import Commands
from tests.hub.fakehub import FakeHub
from tests.one_of_each import write_one_of_each

FITS = {
    "plain": {"dflash", "dspark", "dflash2"},
    "heads": {"sidecar"},
    "stripped": {"sidecar"},
    "gemma4": {"assistant"},
    "other": {"eagle3", "eagle4"},
    "unreadable": set[str](),
}
DRAFTERS_OF = {
    "plain": ["dflash", "dflash2", "dspark"],
    "heads": ["mtp"],
    "stripped": ["mtp"],
    "gemma4": ["mtp"],
    "other": ["eagle3", "eagle4"],
    "unreadable": [],
    "dflash": ["dflash"],
    "dspark": ["dspark"],
    "dflash2": ["dflash2"],
    "eagle3": ["eagle3"],
    "eagle4": ["eagle4"],
    "sidecar": ["mtp"],
    "assistant": ["mtp"],
    "projector": [],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_one_of_each(tmp_path_factory.mktemp("kinds") / "own")


def not_in(folder: Path, name: str) -> bytes:
    """A file of this kind that differs from the folder's own: that one would not be downloaded."""
    return (folder / f"{name}.gguf").read_bytes() + b"\0"


@pytest.fixture
def commands(fake: FakeHub, tmp_path: Path, folder: Path) -> Commands:
    config = tmp_path / "eaglechat" / "config"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f'[library]\nfolders = ["{folder.as_posix()}"]\n')
    return Commands(tmp_path, fake.endpoint)


def one(models: list[LocalModel], name: str) -> LocalModel:
    (found,) = find(models, name)
    return found


def test_the_library_knows_drafts_of_every_kind_and_what_they_fit(hub: Hub, folder: Path) -> None:
    models = scan([folder], hub.cache_dir)
    kinds = {model.name: model.kind for model in models}
    drafts = {name for name, kind in kinds.items() if kind is ModelKind.DRAFT}
    assert drafts == set.union(*FITS.values())
    targets = {name for name, kind in kinds.items() if kind is ModelKind.TARGET}
    assert targets == FITS.keys() - {"unreadable"}
    assert kinds["unreadable"] is ModelKind.PLAIN
    fits = {
        name: {draft.name for draft, kind in drafts_for(header, models) if kind != "model"}
        for name, header in ((name, one(models, name).header) for name in FITS)
        if header is not None
    }
    assert fits == FITS


def test_models_says_what_drafts_and_why_nothing_does(commands: Commands) -> None:
    document = json.loads(commands.run("models", "--json").stdout)
    assert {model["name"]: model["drafters"] for model in document["models"]} == DRAFTERS_OF
    lines = commands.run("models").stdout.splitlines()
    rows = {line.split()[0]: line for line in lines if line.startswith("  ") and line.strip()}
    for name, kinds in DRAFTERS_OF.items():
        assert ", ".join(NAMES[kind] for kind in kinds) in rows[name]
    assert "target without drafts" in rows["unreadable"]
    assert not any("no draft " in rows[name] for name in ("unreadable", "projector"))
    why = lines[lines.index(rows["unreadable"]) + 1]
    assert why.strip() == (
        "The target's file has no chat template, so it is probably a base model. No draft model, "
        "n-grams only: its file has no MTP heads, and no draft runs with gemma3 models."
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("heads", "target: MTP heads"),
        ("dspark", "draft: DSpark"),
        ("plain", "No draft model, n-grams only: its file has no MTP heads."),
    ],
)
def test_pull_says_what_a_model_drafts_with(
    commands: Commands, fake: FakeHub, folder: Path, name: str, said: str
) -> None:
    fake.add("org/one", {"model.gguf": not_in(folder, name)})
    result = commands.run("pull", "org/one")
    assert result.returncode == 0
    assert f"model.gguf: {said}" in result.stderr.splitlines()[-1]


# --- on the Hub ---


def test_drafts_of_every_kind_are_found_beside_their_target(
    hub: Hub, fake: FakeHub, folder: Path
) -> None:
    files = {"plain": "model-Q4_K_M", "dflash": "model-DFlash", "dspark": "dspark-model"}
    files |= {"heads": "mtp-other"}
    fake.add(
        "org/model",
        {f"{name}.gguf": (folder / f"{kind}.gguf").read_bytes() for kind, name in files.items()},
    )
    config = json.dumps({"architectures": ["DFlash2DraftModel"], "num_hidden_layers": 5})
    fake.add("lab/model-DFlash2", {"config.json": config.encode(), "model.safetensors": b""})
    target = targets.of_repo(hub, hub.repo("org/model"), ModelFiles(("model-Q4_K_M.gguf",)))
    *_, last = find_drafts(hub, target)
    found = {one.files[0]: one for one in last.ways if one.repo}
    assert {name: (one.fits, one.kind) for name, one in found.items()} == {
        "model-DFlash.gguf": (True, "dflash"),
        "dspark-model.gguf": (True, "dspark"),
        "mtp-other.gguf": (False, None),
        "config.json": (False, "dflash2"),
    }
    assert "only EAGLE-3 checkpoints are converted" in (found["config.json"].problem or "")
    problem = found["mtp-other.gguf"].problem or ""
    assert "is a whole language model, not a draft" in problem


@pytest.mark.parametrize("has_heads", [True, False])
def test_a_version_with_heads_is_a_way_if_it_has_them(
    hub: Hub, fake: FakeHub, folder: Path, has_heads: bool
) -> None:
    other = (folder / ("heads.gguf" if has_heads else "stripped.gguf")).read_bytes()
    files = {f"model-MTP-{q}.gguf": other for q in ("Q8_0", "Q4_K_M")}
    fake.add("org/model", {**files, "model-Q4_K_M.gguf": (folder / "plain.gguf").read_bytes()})
    target = targets.of_repo(hub, hub.repo("org/model"), ModelFiles(("model-Q4_K_M.gguf",)))
    *_, found = find_drafts(hub, target)
    its = [way for way in found.ways if way.where == "with_heads"]
    assert [way.files for way in its] == [("model-MTP-Q4_K_M.gguf",)] * has_heads
    for way in its:
        assert ways.command(target, way) == "eaglechat pull org/model/model-MTP-Q4_K_M.gguf"
        pair = pair_up(found.target, way, [])
        assert (str(pair.target), str(pair.draft)) == ("org/model/model-MTP-Q4_K_M.gguf", "")


@pytest.mark.parametrize(("model", "named"), [("plain", True), ("heads", False)])
def test_the_same_model_with_heads_of_the_catalogue_is_a_way(
    hub: Hub, folder: Path, model: str, named: bool
) -> None:
    mine = targets.of_file(folder / f"{model}.gguf", [], [])
    of_lab = replace(mine, base_models=("lab/model",))
    entry = CatalogueEntry(
        name="with-heads",
        target=ModelSource(repo="org/model-MTP-GGUF", size=4_900_000_000),
        acceptance="2.4 tokens (the lab)",
        draft=ModelSource(),
        base_model="lab/model",
        drafter="mtp",
    )
    known = [status(entry, hub.cache_dir)]
    *_, found = find_drafts(hub, of_lab, known)
    its = [way for way in found.ways if way.where == "with_heads"]
    assert [pair_up(found.target, way, known) for way in its] == [entry] * named
    for way in its:
        said = (ways.name(way), ways.facts(way), ways.judgement(way), way.reported)
        heads = "the same model with MTP heads of its own"
        assert said == ("with-heads", "MTP heads · GGUF · 4.9 GB", heads, entry.acceptance)
        assert ways.command(of_lab, way) == "eaglechat pull with-heads"


@pytest.mark.parametrize(
    ("pair", "drafters"),
    [
        (("plain", "dflash2"), ("dflash2",)),
        (("other", "eagle3"), ("eagle3",)),
        (("other", "eagle4"), ("eagle4",)),
        (("heads", "sidecar"), ("mtp",)),
        (("gemma4", "assistant"), ("mtp",)),
    ],
)
def test_what_a_pair_drafts_with_is_known_before_its_download(
    hub: Hub, fake: FakeHub, folder: Path, pair: tuple[str, str], drafters: tuple[str, ...]
) -> None:
    target, draft = (f"{name}.gguf" for name in pair)
    fake.add("org/pair", {name: (folder / name).read_bytes() for name in (target, draft)})
    entry = CatalogueEntry(
        name="pair",
        target=ModelSource(repo="org/pair", file=target),
        draft=ModelSource(repo="org/pair", file=draft),
    )
    facts = install.facts_of(hub, install.plan(hub, entry), 0)
    assert facts is not None
    assert facts.drafters == drafters


def test_heads_in_the_last_file_of_a_split_model_are_found(hub: Hub, fake: FakeHub) -> None:
    names = [f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    declares = {"hy_v3.nextn_predict_layers": 1}
    head = (("blk.3.nextn.eh_proj.weight", (8, 8)),)
    block = (("blk.0.attn_norm.weight", (8,)),)
    fake.add(
        "org/split",
        {
            names[0]: ggufs.target("hy_v3", n_layers=4, tensors=block, **declares),
            names[1]: ggufs.gguf({}, n_vocab=0, tensors=head),
        },
    )
    target = targets.of_repo(hub, hub.repo("org/split"), ModelFiles(tuple(names)))
    assert target.header is not None
    assert target.header.n_mtp_heads == 1
    assert kind_of(target.header) is None
    *_, found = find_drafts(hub, target)
    assert [(way.where, way.kind) for way in found.ways if way.fits] == [
        ("built_in", "mtp"),
        ("n_grams", None),
    ]
