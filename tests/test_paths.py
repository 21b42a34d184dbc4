"""Writing a file so that nothing is lost, wherever its name leads."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eaglechat.paths import config_dir, tidy_environment, write_atomically


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles" / "eaglechat.toml"
    kept.parent.mkdir()
    kept.write_bytes(b"old")
    link = tmp_path / "config" / "config.toml"
    link.parent.mkdir()
    link.symlink_to(Path("..") / "dotfiles" / "eaglechat.toml")

    write_atomically(link, b"new")

    assert link.is_symlink()
    assert kept.read_bytes() == b"new"
    assert [path.name for path in (*kept.parent.iterdir(), *link.parent.iterdir())] == [
        "eaglechat.toml",
        "config.toml",
    ]


def test_a_link_to_a_file_that_is_not_there_yet_is_filled(tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to("later/real.toml")

    write_atomically(link, b"new")

    assert link.is_symlink()
    assert (tmp_path / "later" / "real.toml").read_bytes() == b"new"


def test_two_threads_may_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"

    def write(number: int) -> None:
        for _ in range(20):
            write_atomically(path, bytes([number]) * 10_000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(set(path.read_bytes())) == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps no such permissions")
def test_permissions_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"old")
    path.chmod(0o600)

    write_atomically(path, b"new")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.name == "nt", reason="Windows opens no folders")
def test_the_bytes_are_on_the_disk_before_the_name_is_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"old")
    seen: list[tuple[bool, bytes]] = []

    def fsync(handle: int) -> None:
        seen.append((stat.S_ISDIR(os.fstat(handle).st_mode), path.read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(path, b"new")

    assert seen == [(False, b"old"), (True, b"new")]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")

    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]


def test_the_home_of_nobody_is_a_folder_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLECHAT_HOME", "~nobody-of-this-name/x")
    assert config_dir() == Path("~nobody-of-this-name/x/config")


@pytest.mark.parametrize(
    ("name", "value", "stays"),
    [
        *((name, blank, None) for blank in ("", "  ", "\t") for name in (
            "EAGLECHAT_HOME", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_TOKEN",
            "HF_TOKEN_PATH", "HOME", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "OLLAMA_MODELS",
            "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
        )),
        *((f"XDG_{kind}_HOME", value, None) for value in ("rel", "./x", "../x", "~/x") for kind in (
            "CACHE", "CONFIG", "DATA", "STATE",
        )),
        ("XDG_CACHE_HOME", "/abs", "/abs"),
        *((name, value, None) for value in ("", "10s") for name in (
            "HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT",
        )),
        ("HF_HUB_ETAG_TIMEOUT", "10", "10"),
        ("HF_HUB_OFFLINE", "", None),
        ("HF_HUB_OFFLINE", "1", "1"),
        ("HF_HOME", "~/hf", "/home/me/hf"),
        ("HF_HUB_CACHE", "/abs/hub", "/abs/hub"),
        ("OLLAMA_MODELS", " /abs/models\n", "/abs/models"),
        ("HF_HOME", "rel", "/here/rel"),
        ("HF_ENDPOINT", "https://mirror", "https://mirror"),
        *(("HF_ENDPOINT", f"http://{rest}", rest) for rest in ("h:99999", "h:x", "[::1", "h:1\a")),
        *((name, f" {quote}/abs{quote} ", "/abs") for quote in "\"'" for name in (
            "HF_ENDPOINT", "HF_HOME", "OLLAMA_MODELS", "XDG_CACHE_HOME",
        )),
        ("HF_TOKEN", "\"\"", None),
        ("HF_TOKEN", "hf_x\n", "hf_x"),
        ("OTHER", "", ""),
    ],
)  # fmt: skip
@pytest.mark.skipif(os.name == "nt", reason="the paths are of other systems")
def test_a_variable_that_names_no_folder_counts_as_unset(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, stays: str | None
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr(os, "getcwd", lambda: "/here")
    environment = {name: value}
    tidy_environment(environment)
    assert environment.get(name) == stays
    assert environment["HF_HUB_DISABLE_TELEMETRY"] == "1"
