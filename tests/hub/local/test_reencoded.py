"""The copy that a slow target is loaded from: written once, whole, for exactly that file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from eaglechat import paths
from eaglechat.engine.llama.quantise import QuantiseError, quantise
from eaglechat.gguf.header import read_header
from eaglechat.hub.local import reencoded
from eaglechat.hub.local.pairs import builtin_pair, inspect, pair_of_files
from eaglechat.hub.local.reencoded import copy_of, target_to_load
from tests import tiny


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tiny.write_target(tmp_path / "target.gguf")


def test_the_copy_is_in_f16_and_written_once(target: Path) -> None:
    pair = replace(pair_of_files(target, None), reencode=True)
    fractions: list[float] = []
    first = target_to_load(pair, fractions.append)
    assert (first.problem, first.target) == (None, copy_of(target))
    assert read_header(first.target).quantization == "F16"
    assert fractions
    written = first.target.stat().st_mtime_ns
    assert target_to_load(pair, fractions.append) == first
    assert first.target.stat().st_mtime_ns == written


def test_another_target_of_the_same_name_has_another_copy(target: Path) -> None:
    before = copy_of(target)
    target.write_bytes(target.read_bytes() + b"\0")
    assert copy_of(target) != before


def test_what_stops_the_writing_leaves_nothing(target: Path) -> None:
    def stop(_fraction: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        target_to_load(replace(pair_of_files(target, None), reencode=True), stop)
    assert not list(paths.reencoded_dir().glob("*.gguf*[!k]"))


def test_where_no_copy_can_be_written_the_target_itself_is_loaded(
    target: Path, tmp_path: Path
) -> None:
    home = tmp_path / "eaglechat"
    home.write_text("a file where the folder should be")
    found = target_to_load(replace(pair_of_files(target, None), reencode=True), lambda _: None)
    assert found.target == target
    assert f"cannot be written ({home}" in (found.problem or "")
    assert "Errno" not in (found.problem or "")


def test_a_damaged_target_is_left_to_the_loader(tmp_path: Path) -> None:
    target = tmp_path / "target.gguf"
    target.write_bytes(b"GGUF, but not for long")
    found = target_to_load(replace(pair_of_files(target, None), reencode=True), lambda _: None)
    assert found.target == target
    assert "this program reads 2 and 3" in (found.problem or "")


def test_a_disk_too_small_for_the_copy_is_told_before_it_is_written(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reencoded, "free_bytes", lambda _folder: 1000)
    found = target_to_load(replace(pair_of_files(target, None), reencode=True), lambda _: None)
    assert found.target == target
    assert re.search(r"written \(it takes .+ kB, and .+ has 1 kB free\)", found.problem or "")
    assert not list(paths.reencoded_dir().glob("*.part"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
def test_a_disk_that_fills_up_meanwhile_is_named(target: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.symlink_to("/dev/full")
    with pytest.raises(QuantiseError, match=f"could not write out.gguf: the disk of {tmp_path} is"):
        quantise(target, out, 1, lambda _done, _total: None)


def test_a_pair_is_weighed_as_it_is_loaded(target: Path) -> None:
    pair = replace(pair_of_files(target, None), reencode=True)
    weighed = inspect(pair).loaded_target
    copy = target_to_load(pair, lambda _: None).target
    assert weighed is not None
    assert weighed.size_bytes == pytest.approx(copy.stat().st_size, rel=0.02)
    plain = inspect(pair_of_files(target, None))
    assert plain.loaded_target == plain.target


def test_only_the_built_in_pair_has_a_copy(target: Path) -> None:
    assert builtin_pair().reencode
    pair = pair_of_files(target, None)
    assert target_to_load(pair, lambda _: None).target == target
    assert not paths.reencoded_dir().exists()
