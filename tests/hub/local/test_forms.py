"""The form in which the built-in target is loaded: measured once, written whole, kept while it is
right."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from eaglechat import own_python, paths
from eaglechat.engine.bench import forms as measuring
from eaglechat.engine.bench.forms import FormSpeeds, FormsToMeasure
from eaglechat.engine.llama.quantise import QuantiseError, quantise
from eaglechat.gguf.header import read_header
from eaglechat.hub.local import forms
from eaglechat.hub.local.forms import LoadFile, target_to_load
from eaglechat.hub.local.pairs import Pair, builtin_pair, inspect, pair_of_files
from eaglechat.settings.model import Settings
from eaglechat.wire.protocol import LoadOptions, Sampling
from tests import tiny


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    target = tiny.write_target(tmp_path / "target.gguf")
    draft = tiny.write_draft(tmp_path / "draft.gguf")
    return replace(pair_of_files(target, draft), reencode=True, n_draft_max=3)


def to_load(pair: Pair, follow: Callable[[float], None] = lambda _: None) -> LoadFile:
    return target_to_load(pair, Settings(), follow)


class Stopwatch:
    """Says what each form's speed is, by its type; notes what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, plain: float, **drafted: float) -> None:
        self.asked: list[FormsToMeasure] = []
        self._plain, self._drafted = plain, drafted
        monkeypatch.setattr(forms, "measure_apart", self._measure)

    def _measure(self, wanted: FormsToMeasure, follow: Callable[[float], None]) -> FormSpeeds:
        self.asked.append(wanted)
        follow(0.5)
        types = {one: read_header(Path(one)).quantization for one in wanted.targets}
        drafted = {one: self._drafted.get(types[one], 1.0) for one in wanted.targets}
        return {"": self._plain, **drafted}


def test_the_forms_are_really_measured_by_replies(pair: Pair) -> None:
    fractions: list[float] = []
    found = to_load(pair, fractions.append)
    # A busy machine may not get through in its time, and says so.
    if found.problem is not None:
        assert "too busy" in found.problem
        return
    assert re.fullmatch(r"Drafted [\d,]+ tok/s in .+ at [\d,]+ tok/s\..*", found.note or "")
    assert fractions == sorted(fractions)
    assert len(list(paths.reencoded_dir().glob("*.gguf"))) <= 1


def test_a_measurement_that_says_much_is_heard_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a pipe holds that nobody reads."""
    speeds = {"": 1.0, "a": 2.0}
    answer = msgspec.json.encode(speeds).decode()
    talks = f"import sys; print('word ' * 100_000, file=sys.stderr); print({answer!r})"
    monkeypatch.setattr(own_python, "command", lambda *_: [sys.executable, "-c", talks])
    wanted = FormsToMeasure((), "", 3, LoadOptions(), Sampling())
    fails_at = time.monotonic() + 60.0

    def follow(_fraction: float) -> None:
        assert time.monotonic() < fails_at

    assert measuring.measure_apart(wanted, follow) == speeds


@pytest.mark.parametrize(("limit", "is_measured"), [("_BUDGET_S", True), ("_MOST_S", False)])
def test_one_turn_is_enough_and_none_is_no_speed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, limit: str, *, is_measured: bool
) -> None:
    # Where there is no time, but for one turn; a busy machine has all the time it needs for that.
    monkeypatch.setattr(measuring, "_MOST_S", 60.0)
    monkeypatch.setattr(measuring, limit, 0.0)
    assert pair.draft is not None
    files = str(pair.target), str(pair.draft)
    wanted = FormsToMeasure(files[:1], files[1], 3, LoadOptions(), Sampling())
    speeds = measuring.measure(wanted)
    assert (speeds is not None and {*speeds} == {"", files[0]}) is is_measured


def test_the_form_that_drafts_fastest_is_kept_and_measured_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Stopwatch(monkeypatch, plain=165.0, Q4_0=231.0)
    first = to_load(pair)
    assert read_header(first.target).quantization == "Q4_0"
    packaged = read_header(pair.target).quantization
    assert first.note == (
        f"Drafted 231 tok/s in a Q4_0 copy; the packaged {packaged} runs plainly at 165 tok/s."
    )
    assert [one.name for one in paths.reencoded_dir().glob("*.gguf")] == [first.target.name]
    assert to_load(pair) == first
    assert len(watch.asked) == 1
    # The copy may be deleted: it is written again, and what was measured of it stands.
    first.target.unlink()
    assert to_load(pair) == first
    assert first.target.is_file()
    assert len(watch.asked) == 1


def test_where_the_packaged_file_is_fastest_no_copy_stays(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = read_header(pair.target).quantization
    Stopwatch(monkeypatch, plain=165.0, **{packaged: 120.0})
    found = to_load(pair)
    assert found.target == pair.target
    assert "Plain decoding is fastest here" in (found.note or "")
    assert not list(paths.reencoded_dir().glob("*.gguf"))


@pytest.mark.parametrize("change", ["target", "llama.cpp", "threads"])
def test_what_changes_the_speeds_has_them_measured_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    watch = Stopwatch(monkeypatch, plain=165.0, Q4_0=231.0)
    to_load(pair)
    settings = Settings()
    if change == "target":
        pair.target.write_bytes(pair.target.read_bytes() + b"\0")
    elif change == "llama.cpp":
        monkeypatch.setattr(forms, "version", lambda _package: "9.9")
    else:
        settings = settings.with_value("engine", "n_threads", 7)
    target_to_load(pair, settings, lambda _: None)
    assert len(watch.asked) == 2


def test_what_stops_the_writing_leaves_nothing(pair: Pair) -> None:
    def stop(_fraction: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_load(pair, stop)
    assert not list(paths.reencoded_dir().glob("*.gguf*"))


def test_where_no_copy_can_be_written_the_target_itself_is_loaded(pair: Pair, home: Path) -> None:
    (home / "eaglechat").write_text("a file where the folder should be")
    found = to_load(pair)
    assert found.target == pair.target
    assert f"can be written ({home}" in (found.problem or "")
    assert "Errno" not in (found.problem or "")


def test_a_damaged_target_is_left_to_the_loader(tmp_path: Path, pair: Pair) -> None:
    target = tmp_path / "damaged.gguf"
    target.write_bytes(b"GGUF, but not for long")
    found = to_load(replace(pair, target=target))
    assert found.target == target
    assert "this program reads 2 and 3" in (found.problem or "")


def test_a_disk_too_small_for_a_copy_is_told_before_it_is_written(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "free_bytes", lambda _folder: 1000)
    found = to_load(pair)
    assert found.target == pair.target
    assert re.search(r"written \(it takes .+ kB, and .+ has 1 kB free\)", found.problem or "")
    assert not list(paths.reencoded_dir().glob("*.part"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk that is always full")
def test_a_disk_that_fills_up_meanwhile_is_named(pair: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    out.symlink_to("/dev/full")
    with pytest.raises(QuantiseError, match=f"could not write out.gguf: the disk of {tmp_path} is"):
        quantise(pair.target, out, 1, lambda _done, _total: None)


def test_a_pair_is_weighed_with_its_largest_form(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "cpu_info", lambda _name: "")
    Stopwatch(monkeypatch, plain=1.0, F16=2.0)
    weighed = inspect(pair).loaded_target
    assert weighed is not None
    assert weighed.size_bytes == pytest.approx(to_load(pair).target.stat().st_size, rel=0.02)
    plain = inspect(replace(pair, reencode=False))
    assert plain.loaded_target == plain.target


def test_only_the_built_in_pair_has_forms(pair: Pair) -> None:
    assert builtin_pair().reencode
    assert to_load(replace(pair, reencode=False)).target == pair.target
    elsewhere = Settings().with_value("engine", "command", ("ssh", "box"))
    assert target_to_load(pair, elsewhere, lambda _: None).target == pair.target
    assert not paths.reencoded_dir().exists()
