"""What was measured of pairs on this machine."""

from __future__ import annotations

from pathlib import Path

from eaglechat.hub.local.pairs import builtin_pair, pair_of_files
from eaglechat.hub.local.speeds import Gain, PlainSpeed, Speeds


def test_a_plain_speed_is_found_again_at_a_comparable_context(tmp_path: Path) -> None:
    pair, other = builtin_pair(), pair_of_files(Path("a.gguf"), None)
    short, long = PlainSpeed(40.0, 1.0, 30, at=1.0), PlainSpeed(20.0, 1.0, 3000, at=2.0)
    for speed in (short, long):
        Speeds(tmp_path).note_plain(pair, speed)
    speeds = Speeds(tmp_path)
    found = {n: speeds.plain(pair, n) for n in (0, 500, 1000, 1500, 6000, 7000)}
    assert found == {0: short, 500: short, 1000: None, 1500: long, 6000: long, 7000: None}
    assert speeds.plain(other, 0) is None
    newer = PlainSpeed(42.0, 1.0, 200, at=3.0)
    speeds.note_plain(pair, newer)
    assert Speeds(tmp_path).plain(pair, 0) == newer


def test_two_programs_keep_what_both_measured(tmp_path: Path) -> None:
    one, two = Speeds(tmp_path), Speeds(tmp_path)
    gain = Gain(1.4, 0.1, "auto", "bench", at=1.0)
    assert one.gain(builtin_pair()) is None
    two.note_plain(pair_of_files(Path("a.gguf"), None), PlainSpeed(40.0, 1.0, 30, at=1.0))
    one.note_gain(builtin_pair(), gain)
    read = Speeds(tmp_path)
    assert read.gain(builtin_pair()) == gain
    assert read.plain(pair_of_files(Path("a.gguf"), None), 0) is not None


def test_a_file_that_cannot_be_read_counts_as_empty(tmp_path: Path) -> None:
    (tmp_path / "speeds.json").write_bytes(b"\xff")
    speeds = Speeds(tmp_path)
    assert speeds.gain(builtin_pair()) is None
    gain = Gain(1.4, 0.1, 3, "chat", at=1.0)
    speeds.note_gain(builtin_pair(), gain)
    assert Speeds(tmp_path).gain(builtin_pair()) == gain
