"""Drafts for a target, found on the Hub and judged by their headers."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from eaglechat.gguf.header import GGUFError
from eaglechat.hub.catalogue import load
from eaglechat.hub.downloads import targets
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.find_drafts import Found, Way, find_drafts
from eaglechat.hub.errors import GatedError, HubError, OfflineError
from eaglechat.hub.local.installed import status
from eaglechat.hub.references import ModelSource, choose
from tests import ggufs
from tests.convert import checkpoints
from tests.hub.fakehub import FakeHub, sha256


def a_target() -> bytes:
    """The target that the converter's small checkpoints are for."""
    return ggufs.target(
        "llama", n_embd=checkpoints.HIDDEN, n_layers=checkpoints.N_LAYERS, n_vocab=checkpoints.VOCAB
    )


def checkpoint(variant: checkpoints.Variant, **others: bytes) -> dict[str, bytes]:
    """The files of a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        files = variant.save(Path(folder)).iterdir()
        return {file.name: file.read_bytes() for file in files} | others


def found(hub: Hub, repo: str = "org/Base-GGUF") -> Found:
    listing = hub.repo(repo)
    target = targets.of_repo(hub, listing, choose(ModelSource(repo=repo), listing.paths))
    *_, last = find_drafts(hub, target)
    assert last.asking == ""
    return last


def candidates(hub: Hub) -> dict[str, Way]:
    """What the Hub has."""
    return {f"{w.repo}/{w.files[0]}": w for w in found(hub).ways if w.needs_download}


@pytest.fixture
def target(fake: FakeHub) -> None:
    fake.add(
        "org/Base-GGUF",
        {"Base-Q4_K_M.gguf": ggufs.target(), "eagle3-Base-Q8_0.gguf": ggufs.draft()},
        base_models=("org/Base",),
    )


def test_listings_carry_sizes_hashes_and_the_card(hub: Hub, fake: FakeHub, target: None) -> None:
    fake.repos["org/Base-GGUF"].files["README.md"] = b"hello"
    listing = hub.repo("org/Base-GGUF")
    data = ggufs.target()
    file = listing.file("Base-Q4_K_M.gguf")
    assert (file.size, file.sha256) == (len(data), sha256(data))
    assert listing.file("README.md").sha256 is None
    assert (listing.licence, listing.base_models) == ("apache-2.0", ("org/Base",))
    assert listing.commit == fake.repos["org/Base-GGUF"].commit
    with pytest.raises(HubError, match="has no file x"):
        listing.file("x")


def test_search_finds_gguf_repositories_most_downloaded_first(hub: Hub, fake: FakeHub) -> None:
    fake.add("a/base-GGUF", {"m.gguf": b""}, downloads=5)
    fake.add("b/base-GGUF", {"m.gguf": b""}, downloads=50, gated=True, licence=None)
    fake.add("c/base", {"m.safetensors": b""}, downloads=500)
    fake.add("d/other-GGUF", {"m.gguf": b""})
    hits = hub.search("base", tags=("gguf",))
    assert [hit.repo for hit in hits] == ["b/base-GGUF", "a/base-GGUF"]
    assert [(hit.gated, hit.licence) for hit in hits] == [(True, None), (False, "apache-2.0")]


def test_a_search_without_a_network_says_so(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        hub = Hub(f"http://127.0.0.1:{closed.getsockname()[1]}", tmp_path)
        with pytest.raises(OfflineError, match="Cannot reach the Hub to search for smollm: check"):
            hub.search("smollm")


def test_a_header_is_read_with_a_few_ranges_not_the_file(hub: Hub, fake: FakeHub) -> None:
    big = ggufs.gguf(
        {"general.architecture": "qwen3"},
        n_vocab=120_000,
        tensors=[("w", (1_000_000,))],
    )
    fake.add("org/big", {"big.gguf": big})
    header = hub.peek(hub.repo("org/big").file("big.gguf"))
    assert (header.architecture, header.n_vocab, header.size_bytes) == ("qwen3", 120_000, len(big))
    sent = [seen.range for seen in fake.requests("storage")]
    assert sent == ["bytes=0-1048575", "bytes=1048576-3145727"]


def test_a_header_is_read_where_ranges_are_ignored(hub: Hub, fake: FakeHub, target: None) -> None:
    fake.fail(ignore_range=True)
    assert hub.peek(hub.repo("org/Base-GGUF").file("Base-Q4_K_M.gguf")).architecture == "qwen3"


def test_a_file_that_is_no_gguf_is_said(hub: Hub, fake: FakeHub) -> None:
    fake.add("org/x", {"x.gguf": b"nothing", "empty.gguf": b""})
    for path in ("x.gguf", "empty.gguf"):
        with pytest.raises(GGUFError):
            hub.peek(hub.repo("org/x").file(path))


def test_the_draft_beside_the_target_comes_first(hub: Hub, target: None) -> None:
    (first, *_) = candidates(hub).values()
    assert (first.files, first.where) == (("eagle3-Base-Q8_0.gguf",), "beside")
    assert (first.fits, first.problem, first.warning) == (True, None, None)


def test_drafts_are_sought_by_base_model_and_by_name(hub: Hub, fake: FakeHub, target: None) -> None:
    fake.repos["org/Base-GGUF"].files["Base-Q4_K_M.gguf"] = a_target()
    files = checkpoint(checkpoints.draft()) | {"optimizer.bin": b"y"}
    fake.add("lab/its-eagle3", files, base_models=("org/Base",))
    fake.add("lab/Base_eagle3", files)
    fake.add("lab/quantised", {"m.gguf": ggufs.target()}, base_models=("org/Base",))
    other = checkpoints.draft(hidden_size=64)
    fake.add("lab/EAGLE3-Base", checkpoint(other))
    found = candidates(hub)
    by_base = found["lab/its-eagle3/config.json"]
    assert by_base.where == "base_model"
    assert by_base.files == ("config.json", "model.safetensors")
    assert (by_base.is_checkpoint, by_base.fits, by_base.problem) == (True, True, None)
    assert found["lab/Base_eagle3/config.json"].where == "name"
    assert "lab/quantised/m.gguf" not in found
    unfit = found["lab/EAGLE3-Base/config.json"]
    assert unfit.fits is False
    assert "a target with hidden size 64" in (unfit.problem or "")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (ggufs.target(), "is a whole language model, not a draft"),
        (ggufs.draft(hidden=16), "hidden size 16"),
        (ggufs.draft(n_vocab=40), "vocabulary of 40 tokens"),
        (ggufs.draft(layers=(1, 3, 9)), "layer 9"),
    ],
)
def test_the_header_judges_whatever_the_name(
    hub: Hub, fake: FakeHub, target: None, data: bytes, problem: str
) -> None:
    fake.repos["org/Base-GGUF"].files["eagle3-Base-Q8_0.gguf"] = data
    found = candidates(hub)["org/Base-GGUF/eagle3-Base-Q8_0.gguf"]
    assert found.fits is False
    assert problem in (found.problem or "")


@pytest.mark.parametrize(
    ("given", "note"),
    [({}, "2, 6, 9 are usual"), ({"eagle_aux_hidden_state_layer_ids": [2, 6, 9]}, "")],
)
def test_layers_that_a_checkpoint_does_not_name_are_pointed_out(
    hub: Hub, fake: FakeHub, target: None, given: dict[str, object], note: str
) -> None:
    fake.repos["org/Base-GGUF"].files["Base-Q4_K_M.gguf"] = a_target()
    fake.add("lab/Base_eagle3", checkpoint(checkpoints.draft(**given)))
    found = candidates(hub)["lab/Base_eagle3/config.json"]
    assert found.fits
    assert found.note.endswith(note)
    assert bool(found.note) == bool(note)


def test_a_checkpoint_costs_its_config_not_its_weights(
    hub: Hub, fake: FakeHub, target: None
) -> None:
    fake.repos["org/Base-GGUF"].files["Base-Q4_K_M.gguf"] = a_target()
    files = checkpoint(checkpoints.draft(embeddings=True))
    fake.add("lab/Base_eagle3", files)
    assert candidates(hub)["lab/Base_eagle3/config.json"].fits is True
    digest = sha256(files["model.safetensors"])
    assert not [seen for seen in fake.requests("storage") if digest in seen.path]


def test_a_draft_of_another_fine_tune_is_warned_of(hub: Hub, fake: FakeHub, target: None) -> None:
    fake.add("lab/Base-eagle3", {"d.gguf": ggufs.draft()}, base_models=("other/Base-Tuned",))
    found = candidates(hub)["lab/Base-eagle3/d.gguf"]
    assert found.fits is True
    assert "trained for other/Base-Tuned, the target is org/Base" in (found.warning or "")
    assert list(candidates(hub))[-1] == "lab/Base-eagle3/d.gguf"


def test_the_catalogue_is_asked_too(hub: Hub, fake: FakeHub) -> None:
    entries, _ = load(Path("none"))
    entry = next(one for one in entries if one.name == "qwen3-1.7b")
    file = entry.target.file
    assert file
    fake.add(entry.target.repo, {file: ggufs.target()}, base_models=("Qwen/Qwen3-1.7B",))
    listing = hub.repo(entry.target.repo)
    target = targets.of_repo(hub, listing, choose(entry.target, listing.paths))
    *_, last = find_drafts(hub, target, [status(one, hub.cache_dir) for one in entries])
    (missing,) = [way for way in last.ways if way.needs_download]
    assert missing.repo == entry.draft.checkpoint
    assert "not on the Hub" in (missing.problem or "")
    assert missing.reported == entry.acceptance != ""


def test_a_repository_that_is_missing_or_gated_is_said(hub: Hub, fake: FakeHub) -> None:
    with pytest.raises(HubError, match="not on the Hub"):
        hub.repo("no/such")
    with pytest.raises(HubError, match="not a name the Hub allows"):
        hub.repo("no/such/thing")
    fake.add("org/gated", {"config.json": b"{}"}, gated=True)
    listing = hub.repo("org/gated")
    assert listing.gated
    with pytest.raises(GatedError, match="accept its licence at"):
        hub.read_small(listing.file("config.json"))


QUESTIONS: list[Callable[[Hub], object]] = [
    lambda hub: hub.repo("org/Base-GGUF"),
    lambda hub: hub.search("base"),
]


def test_a_question_that_meets_a_passing_fault_is_asked_again(
    hub: Hub, fake: FakeHub, target: None
) -> None:
    fake.fail(status=502, server="hub", times=2)
    listing = hub.repo("org/Base-GGUF")
    fake.fail(status=500, server="hub", times=2)
    assert hub.search("base")
    fake.fail(close_after=10, times=2)
    assert hub.peek(listing.file("Base-Q4_K_M.gguf")).architecture == "qwen3"


@pytest.mark.parametrize("ask", QUESTIONS, ids=["repository", "search"])
def test_a_question_that_keeps_failing_is_given_up(
    hub: Hub, fake: FakeHub, target: None, ask: Callable[[Hub], object]
) -> None:
    fake.fail(status=503, server="hub", times=99)
    with pytest.raises(HubError, match="HTTP 503"):
        ask(hub)
    assert len(fake.requests("hub")) == 3
    fake.faults.clear()
    fake.fail(status=429, server="hub", headers={"Retry-After": "60"}, times=99)
    with pytest.raises(HubError, match="too many requests") as caught:
        ask(hub)
    assert caught.value.retry_after == 60
    assert len(fake.requests("hub")) == 4


def test_what_was_reported_of_a_targets_heads_is_not_said_of_n_grams(
    hub: Hub, fake: FakeHub
) -> None:
    entries, _ = load(Path("none"))
    entry = next(one for one in entries if one.name == "qwen3.5-9b-mtp")
    fake.add("me/plain", {"m.gguf": ggufs.target()}, base_models=("Qwen/Qwen3.5-9B",))
    listing = hub.repo("me/plain")
    target = targets.of_repo(hub, listing, choose(ModelSource(repo="me/plain"), listing.paths))
    *_, last = find_drafts(hub, target, [status(entry, hub.cache_dir)])
    assert entry.acceptance
    assert [way.where for way in last.ways if way.reported] == ["with_heads"]
