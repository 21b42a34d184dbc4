"""What is in Ollama's store is listed as `ollama list` names it, and never written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.hub.desk import HubDesk
from eaglechat.hub.local import headers, ollama
from eaglechat.hub.local.library import find, scan, targets
from eaglechat.hub.local.model import ModelKind, Source
from eaglechat.hub.local.ollama import ManifestError, weights
from eaglechat.hub.local.pairs import pair_of_files
from eaglechat.hub.local.removal import plan_removal, remove
from eaglechat.words.removal import consequences
from tests import ggufs
from tests.hub.ollama_store import MODEL, layer, manifest, put, put_blob, put_manifest

TARGET, DRAFT = ggufs.target(), ggufs.draft()


@pytest.fixture
def store(home: Path) -> Path:
    return home / ".ollama" / "models"


def other(number: int) -> bytes:
    """A target of its own."""
    return TARGET + bytes([number])


def test_models_have_the_names_that_ollama_gives_them(store: Path, tmp_path: Path) -> None:
    blob = put(store, "qwen3/8b", TARGET)
    put(store, "qwen3/latest", TARGET)
    put(store, "registry.ollama.ai/me/mine/v2", other(1))
    put(store, "hf.co/user/repo-GGUF/Q4_K_M", other(2))
    put(store, "host.test/user/model/x", other(3))
    models = scan([], tmp_path)
    assert {(model.name, model.kind, model.source) for model in models} == {
        (name, ModelKind.TARGET, Source.OLLAMA)
        for name in (
            "qwen3:8b", "me/mine:v2", "hf.co/user/repo-GGUF:Q4_K_M", "host.test/user/model:x"
        )
    }  # fmt: skip
    for text in ("qwen3:8b", "qwen3:latest", "qwen3", str(blob), blob.name):
        (model,) = find(models, text)
        assert (model.path, [one.name for one in model.also]) == (blob, ["qwen3:latest"])
        assert model.disk_bytes == len(TARGET)
    (from_hub,) = find(models, "user/repo-GGUF:Q4_K_M")
    assert from_hub.repo == "user/repo-GGUF"


def test_the_newer_layout_is_read_too_and_a_name_counts_once(store: Path, tmp_path: Path) -> None:
    child = put_blob(store, manifest(layer(put_blob(store, TARGET))))
    listed = msgspec.json.encode({"manifests": [{"digest": child}]})
    link = put_manifest(store, "ollama.com/library/qwen3/8b", b"", "manifests-v2")
    link.unlink()
    link.symlink_to(store / "blobs" / put_blob(store, listed).replace(":", "-"))
    put_manifest(store, "qwen3/8b", b"what the older layout has does not count")
    assert [model.name for model in scan([], tmp_path)] == ["qwen3:8b"]


def test_the_store_is_where_the_variable_says(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "qwen3/8b", TARGET)
    put(tmp_path / "other", "llama3/1b", other(1))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "other"))
    assert [model.name for model in scan([], tmp_path)] == ["llama3:1b"]


GONE = "sha256:" + "a" * 64
BAD: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"hello", "is not what Ollama writes"),
    "a list": (b"[]", "is not what Ollama writes"),
    "wrong types": (b'{"layers": [{"mediaType": 7}]}', "is not what Ollama writes"),
    "deep": (b'{"x":' + b"[" * 100_000, "is not what Ollama writes"),
    "no layers": (b"{}", "names no GGUF"),
    "a cloud model": (manifest(), "names no GGUF"),
    "huge": (b" " * (5 << 20), "larger than 4 MiB"),
    "a path for a digest": (manifest(layer("../../../etc/passwd")), "that is no SHA-256"),
    "a path behind a hash": (manifest(layer(GONE + "/../x")), "that is no SHA-256"),
    "two files": (manifest(layer(GONE), layer(GONE)), "in several files"),
    "an adapter": (manifest(layer(GONE), layer(GONE, f"{MODEL[:-5]}adapter")), "has an adapter"),
    "weights that are gone": (manifest(layer(GONE)), "`ollama pull m:t` fetches them"),
    "a list of what is gone": (b'{"manifests": [{"digest": "%s"}]}' % GONE.encode(), "No such"),
}


@pytest.mark.parametrize(("data", "says"), BAD.values(), ids=BAD.keys())
def test_a_bad_manifest_is_told_in_a_sentence_and_costs_no_other_model(
    store: Path, tmp_path: Path, data: bytes, says: str
) -> None:
    put(store, "good/t", TARGET)
    put_manifest(store, "m/t", data)
    found = {model.name: model for model in scan([], tmp_path)}
    assert found.keys() == {"good:t", "m:t"}
    only_ollama = "GGUF" in says or "several" in says or "adapter" in says
    assert found["m:t"].kind is (ModelKind.OTHER if only_ollama else ModelKind.BROKEN)
    assert says in (found["m:t"].problem or "")
    assert (found["m:t"].problem or "").isprintable()


def test_links_in_circles_pipes_and_closed_folders_cost_no_other_model(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "good/t", TARGET)
    library = store / "manifests" / "registry.ollama.ai" / "library"
    (library / "circle").symlink_to(library)
    (library / "good" / "itself").symlink_to("itself")
    os.mkfifo(library / "good" / "pipe")
    (library / "closed").mkdir()
    scandir = os.scandir

    def guarded(folder: Any) -> Any:
        if os.fspath(folder) in (str(library / "closed"), f"{store}/manifests-v2"):
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    good, *closed = scan([], tmp_path)
    assert good.name == "good:t"
    assert {model.name for model in closed} == {str(store), str(library / "closed")}
    assert {model.problem for model in closed} == {
        "Ollama's store cannot be read: Permission denied."
    }


KEYS = ["layers", "manifests", "mediaType", "digest"]
VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from([MODEL, GONE, "x"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(KEYS), inner),
)


@given(data=st.binary() | VALUES.map(msgspec.json.encode))
def test_whatever_a_manifest_holds_it_names_a_hash_or_says_why_not(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = put_manifest(tmp_path_factory.getbasetemp() / "any", "m/t", data)
    with suppress(ManifestError, FileNotFoundError):
        assert weights(path.parents[4], path) == "a" * 64


def test_a_blob_that_vanishes_after_its_listing_is_told(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = put(store, "qwen3/8b", TARGET)
    listed = list(ollama.models())
    monkeypatch.setattr(ollama, "models", lambda: iter(listed))
    blob.unlink()
    (model,) = scan([], tmp_path)
    assert (model.kind, model.problem) == (ModelKind.BROKEN, "No such file or directory.")


def test_the_same_file_under_three_roofs_is_one_model(store: Path, tmp_path: Path) -> None:
    blob = put(store, "qwen3/8b", TARGET)
    own = tmp_path / "own"
    own.mkdir()
    (own / "linked.gguf").symlink_to(blob)
    os.link(blob, own / "hard.gguf")
    copy = tmp_path / "cache" / "models--user--repo" / "blobs" / blob.name.removeprefix("sha256-")
    copy.parent.mkdir(parents=True)
    copy.write_bytes(TARGET)
    pointer = copy.parents[1] / "snapshots" / ("0" * 40) / "m.gguf"
    pointer.parent.mkdir(parents=True)
    pointer.symlink_to(copy)
    (model,) = scan([own], tmp_path / "cache")
    assert model.name == "user/repo/m.gguf"
    assert {one.name for one in model.also} == {"qwen3:8b", "linked", "hard"}
    assert model.disk_bytes == 2 * len(TARGET)
    planned = plan_removal([model])
    assert planned.freed_bytes == len(TARGET)
    shared = "It is in the Hugging Face cache, where other programs find it too."
    stays = "A copy stays: hard (folder), linked (folder), qwen3:8b (Ollama)."
    assert consequences(planned, [pair_of_files(blob, None)], 0) == [shared, stays]


def test_deleting_a_link_to_ollamas_file_costs_ollama_nothing(store: Path, tmp_path: Path) -> None:
    blob = put(store, "qwen3/8b", TARGET)
    own = tmp_path / "own"
    own.mkdir()
    (own / "linked.gguf").symlink_to(blob)
    (model,) = scan([own], tmp_path)
    planned = plan_removal([model])
    pairs = [pair_of_files(blob, None, "blob"), pair_of_files(own / "linked.gguf", None, "link")]
    assert consequences(planned, pairs, 0) == [
        "Pairs that need it: link.",
        "A copy stays: qwen3:8b (Ollama).",
    ]
    assert planned.freed_bytes == 0
    remove(planned)
    assert blob.exists()


def test_a_target_is_listed_with_the_drafts_that_fit_it(store: Path, tmp_path: Path) -> None:
    put(store, "qwen3/8b", TARGET)
    put(store, "eagle/q8", DRAFT)
    put(store, "eagle/wide", ggufs.draft(hidden=16))
    ((model, pair),) = targets(scan([], tmp_path))
    assert (model.name, pair.drafters) == ("qwen3:8b", ("eagle3",))
    assert pair.pair.name == "qwen3:8b + eagle:q8"


def test_the_built_in_draft_is_known_as_a_draft(
    store: Path, real_files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    put(store, "smollm2/135m", real_files[0].read_bytes())
    ((model, pair),) = HubDesk().targets([])
    assert (model.name, pair.drafters) == ("smollm2:135m", ("eagle3",))


def test_a_header_is_read_once_as_long_as_its_file_stays(
    store: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = put(store, "qwen3/8b", TARGET)
    (first,) = scan([], tmp_path)
    # What JSON has no number for is read again, and costs no other header.
    odd = put(store, "odd/t", ggufs.target(**{"general.odd": float("nan")}))
    assert len(scan([], tmp_path)) == 2
    odd.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(headers, "read_header", pytest.fail)
        assert scan([], tmp_path)[0] == first
    blob.write_bytes(DRAFT)
    changed, _ = scan([], tmp_path)
    assert changed.kind is ModelKind.DRAFT
    (book,) = (home / "eaglechat" / "state").iterdir()
    book.write_bytes(b"\x81\xc4\x00\xc4\x00")
    assert scan([], tmp_path)[0] == changed


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("smol", "smol:latest"),
        ("SMOL:135M", "smol:135m"),
        ("library/smol:135m", "smol:135m"),
        ("ollama.com/library/smol", "smol:latest"),
        ("registry.ollama.ai/library/smol:135m", "smol:135m"),
        ("https://registry.ollama.ai/me/mine", "me/mine:latest"),
        ("me/mine", "me/mine:latest"),
        ("some/thing-gguf:q8_0", "hf.co/Some/Thing-GGUF:Q8_0"),
        ("Some/Thing-GGUF", "hf.co/Some/Thing-GGUF:latest"),
        ("HF.co/some/Thing-GGUF", "hf.co/Some/Thing-GGUF:latest"),
        ("https://huggingface.co/Some/Thing-GGUF", "hf.co/Some/Thing-GGUF:latest"),
        ("hf:Some/Thing-GGUF:Q8_0", "hf.co/Some/Thing-GGUF:Q8_0"),
        ("hf.co/own/thing", "huggingface.co/Own/Thing:latest"),
        ("Own/Thing", "huggingface.co/Own/Thing:latest"),
        ("smol:", "smol:latest"),
        ("smol:1b", None),
        ("thing-gguf", None),
    ],
)
def test_a_model_is_found_by_every_name_that_ollama_takes(
    store: Path, tmp_path: Path, text: str, wanted: str | None
) -> None:
    names = ("smol/135m", "smol/latest", "registry.ollama.ai/me/mine/latest",
             "hf.co/Some/Thing-GGUF/latest", "hf.co/Some/Thing-GGUF/Q8_0",
             "huggingface.co/Own/Thing/latest")  # fmt: skip
    for number, name in enumerate(names):
        put(store, name, ggufs.target(**{"general.name": str(number)}))
    assert [one.name for one in find(scan([], tmp_path), text)] == ([wanted] if wanted else [])
