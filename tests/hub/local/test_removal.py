"""Exactly what is named is deleted: of several copies, links and programs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir
from huggingface_hub.utils import WeakFileLock

from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.newer import newer
from eaglechat.hub.local.cache import RepoCache
from eaglechat.hub.local.library import copies, scan
from eaglechat.hub.local.removal import plan_removal, remove
from eaglechat.hub.units import format_bytes
from tests import ggufs
from tests.hub import ollama_store
from tests.hub.commands import Commands
from tests.hub.fakehub import FakeHub, sha256

TARGET, DRAFT = ggufs.target(), ggufs.draft()


def put(
    cache: Path,
    repo: str,
    data: bytes,
    *,
    store: bool = False,
    commit: str = "a" * 40,
    name: str = "m.gguf",
) -> Path:
    """A file as huggingface_hub leaves it, since 2.4 in the `store` of the whole cache."""
    folder = RepoCache(cache, repo).folder
    blob = folder / "blobs" / sha256(data)
    pointer = folder / "snapshots" / commit / name
    for place in (blob, pointer, folder / "refs" / "main"):
        place.parent.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    if not store:
        blob.write_bytes(data)
    elif not blob.is_symlink():
        xet = sha256(data[::-1])  # another hash than the file's
        payload = cache / "blobs" / xet[:2] / xet
        payload.parent.mkdir(parents=True, exist_ok=True)
        (cache / "blobs" / ".huggingface-shared-blobs").write_text("1\n")
        payload.write_bytes(data)
        with payload.with_name(f"{xet}.refs").open("a") as refs:
            refs.write(f"{blob.relative_to(cache).as_posix()}\n")
        blob.symlink_to(os.path.relpath(payload, blob.parent))
    pointer.symlink_to(os.path.relpath(blob, pointer.parent))
    return pointer


def files(*folders: Path) -> dict[Path, bytes | str]:
    """Every file and link that a deletion may touch, with what is in it."""
    found = (path for folder in folders for path in folder.rglob("*") if not path.is_dir())
    kept = (path for path in found if path.suffix not in (".refs", ".lock"))
    return {p: str(p.readlink()) if p.is_symlink() else p.read_bytes() for p in kept}


@pytest.fixture
def commands(fake: FakeHub, tmp_path: Path) -> Commands:
    commands = Commands(tmp_path, fake.endpoint)
    config = tmp_path / "eaglechat" / "config"
    config.mkdir(parents=True)
    (tmp_path / "own").mkdir()
    (config / "config.toml").write_text(f'[library]\nfolders = ["{tmp_path / "own"}"]\n')
    return commands


@pytest.mark.parametrize("store", [False, True], ids=["own blobs", "shared blobs"])
@pytest.mark.parametrize(
    ("named", "loses"),
    [
        ("bob/m/m.gguf", "bob/m"),
        ("BOB/m", "bob/m"),
        ("hf.co/bob/m", "bob/m"),
        ("https://huggingface.co/bob/m/blob/main/m.gguf", "bob/m"),
        ("BOB", "bob/m"),
        ("OWN", "own"),
        ("alice/m/m.gguf", "alice/m"),
        ("qwen3:8b", None),
        ("QWEN3:8B", None),
        ("registry.ollama.ai/library/qwen3:8b", None),
        ("hf.co/org/m:Q8_0", None),
        ("m.gguf", None),
    ],
)
def test_of_several_copies_the_named_one_goes(
    commands: Commands, store: bool, named: str, loses: str | None
) -> None:
    at = {repo: put(commands.cache, repo, TARGET, store=store) for repo in ("alice/m", "bob/m")}
    at["own"] = commands.home / "own" / "linked.gguf"
    at["own"].symlink_to(at["bob/m"])
    ollama = commands.home / ".ollama" / "models"
    ollama_store.put(ollama, "qwen3/8b", TARGET)
    ollama_store.put(ollama, "hf.co/org/m/Q8_0", TARGET)
    before = files(commands.cache, ollama, commands.home / "own")
    words = {"BOB": str(at["bob/m"]), "OWN": str(at["own"])}.get(named, named)
    said = commands.run("remove", words)
    assert files(commands.cache, ollama, commands.home / "own") == before
    done = commands.run("remove", words, "--yes")
    gone = before.keys() - files(commands.cache, ollama, commands.home / "own").keys()
    if loses is None:
        assert not gone
        if named == "m.gguf":
            assert done.returncode == 2
            assert "could be" in done.stderr
            assert "alice/m/m.gguf, bob/m/m.gguf" in done.stderr
        else:
            assert done.returncode == 1
            name = "hf.co/org/m:Q8_0" if named.startswith("hf.co") else "qwen3:8b"
            assert f"`ollama rm {name}` removes it" in done.stderr
        return
    own = RepoCache(commands.cache, loses).folder
    assert gone == {path for path in before if path == at[loses] or path.is_relative_to(own)}, (
        done.stderr
    )
    freed = 0 if store or loses == "own" else len(TARGET)
    assert f"Deleted; {format_bytes(freed)} freed." in done.stdout
    for path in gone - {own / "refs" / "main"}:
        assert str(path) in said.stdout


def test_of_a_pair_its_own_copy_goes_and_no_file_that_has_its_name(commands: Commands) -> None:
    at = {repo: put(commands.cache, repo, TARGET) for repo in ("alice/m", "bob/m")}
    (commands.home / "eaglechat" / "config" / "catalogue.toml").write_text(
        '[[pair]]\nname = "bobs"\ntarget = { repo = "bob/m", file = "m.gguf" }\n'
    )
    namesake = commands.home / "own" / "bobs.gguf"
    namesake.write_bytes(DRAFT)
    unsure = commands.run("remove", "bobs", "--yes")
    assert unsure.returncode == 2
    assert f"could be the pair ({at['bob/m']}) or {namesake}" in unsure.stderr
    namesake.rename(namesake.with_name("other.gguf"))
    assert commands.run("remove", "bobs", "--yes").returncode == 0
    assert (at["alice/m"].exists(), at["bob/m"].exists()) == (True, False)


@pytest.mark.parametrize("words", [("remove", "m", "--yes"), ("run", "--target", "m", "hi")])
def test_two_versions_of_a_file_are_told_apart_by_their_paths(
    commands: Commands, words: tuple[str, ...]
) -> None:
    versions = ggufs.target(), ggufs.target(**{"general.name": "newer"})
    at = [
        put(commands.cache, "alice/m", data, commit=commit * 40)
        for data, commit in zip(versions, "ab", strict=True)
    ]
    put(commands.cache, "bob/m", ggufs.target("llama"))
    done = commands.run(*words)
    assert done.returncode == 2
    names = done.stderr.partition(" could be ")[2].partition(";")[0].split(", ")
    assert set(names) == {str(at[0]), str(at[1]), "bob/m/m.gguf"}
    assert all(file.exists() for file in at)


def test_of_two_files_of_a_repository_the_other_stays_and_with_the_last_all_goes(hub: Hub) -> None:
    """Also of a file that two commits have."""
    cache = hub.cache_dir
    gone = [put(cache, "alice/m", TARGET, name="q8/a.gguf", commit=one * 40) for one in "ab"]
    put(cache, "alice/m", DRAFT, name="b.gguf", commit="b" * 40)
    before = files(cache)
    planned = plan_removal(copies(scan([], cache), "alice/m/q8/a.gguf"))
    assert planned.freed_bytes == remove(planned) == len(TARGET)
    assert before.keys() - files(cache).keys() == {
        *gone,
        gone[0].parents[3] / "blobs" / sha256(TARGET),
    }
    assert not scan_cache_dir(cache).warnings
    remove(plan_removal(scan([], cache)))
    assert not RepoCache(cache, "alice/m").folder.exists()


def test_of_a_link_out_of_the_cache_stays_what_it_leads_to(hub: Hub, tmp_path: Path) -> None:
    pointer = put(hub.cache_dir, "alice/m", TARGET)
    own = pointer.resolve().rename(tmp_path / "own.gguf")
    pointer.unlink()
    pointer.symlink_to(own)
    remove(plan_removal(scan([], hub.cache_dir)))
    assert own.read_bytes() == TARGET
    assert scan([], hub.cache_dir) == []


def test_what_several_repositories_share_goes_with_the_last_one(hub: Hub) -> None:
    cache = hub.cache_dir
    put(cache, "alice/m", TARGET, store=True)
    put(cache, "bob/m", TARGET, store=True)
    put(cache, "bob/m", TARGET, store=True, commit="b" * 40)
    (model,) = scan([], cache)
    assert {one.repo for one in model.everywhere} == {"alice/m", "bob/m"}
    for named, freed in (("bob/m/m.gguf", 0), ("alice/m/m.gguf", len(TARGET))):
        (one,) = copies(scan([], cache), named)
        planned = plan_removal([one])
        assert (planned.freed_bytes, remove(planned)) == (freed, freed)
        assert planned.files.keys().isdisjoint(files(cache))
        assert not scan_cache_dir(cache).warnings
    assert scan([], cache) == []
    assert not [path for path in files(cache) if TARGET in path.read_bytes()]


def test_a_shared_blob_is_known_by_its_hash(hub: Hub, fake: FakeHub, home: Path) -> None:
    fake.add("alice/m", {"m.gguf": TARGET})
    put(hub.cache_dir, "alice/m", TARGET, store=True)
    ollama_store.put(home / ".ollama" / "models", "m/8b", TARGET)
    (model,) = scan([], hub.cache_dir)
    assert [one.name for one in model.also] == ["m:8b"]
    assert newer(hub, [model]) == set()
    fake.repos["alice/m"].files["m.gguf"] = DRAFT
    assert newer(hub, [model]) == {"alice/m/m.gguf"}


def begin_incomplete(repo: RepoCache) -> Callable[[], None]:
    (repo.folder / "blobs" / "e.0123abcd.incomplete").write_bytes(b"half")
    return lambda: None


def hold_lock(repo: RepoCache) -> Callable[[], None]:
    lock = WeakFileLock(repo.lock("e"))
    repo.lock("e").parent.mkdir(parents=True)
    lock.__enter__()
    return lambda: lock.__exit__(None, None, None)


@pytest.mark.parametrize("begin", [begin_incomplete, hold_lock])
def test_what_another_program_downloads_stays(
    hub: Hub, begin: Callable[[RepoCache], Callable[[], None]]
) -> None:
    """Also the empty folder of the commit, into which that program will put its link."""
    cache = hub.cache_dir
    pointer = put(cache, "alice/m", TARGET)
    end = begin(RepoCache(cache, "alice/m"))
    others = files(cache).keys() - {pointer, pointer.resolve()}
    (model,) = scan([], cache)
    remove(plan_removal([model]))
    assert files(cache).keys() == others
    assert pointer.parent.is_dir()
    end()
