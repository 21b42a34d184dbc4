"""Writing a file so that nothing is lost, wherever its name leads."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eaglechat.paths import config_dir, write_atomically


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
