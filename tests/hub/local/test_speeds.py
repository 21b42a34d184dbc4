"""What drafting gained with pairs on this machine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from eaglechat.hub.local.pairs import builtin_pair, pair_of_files
from eaglechat.hub.local.speeds import FEWEST_REPLIES, Gain, Setup, Speeds, setup_of
from eaglechat.settings.model import EngineSettings

HERE = setup_of(builtin_pair(), EngineSettings())
BENCH = Gain(1.4, 0.1, 3, "bench", at=1.0)


def test_replies_are_a_mean_by_length_once_they_are_several(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path)
    for place in range(FEWEST_REPLIES):
        assert Speeds(tmp_path).gain(HERE, 3) is None
        # One of them gained much, most gained nothing; a long one counts as much as its time.
        plain_ms = 3000.0 if place == 3 else 1000.0
        speeds.note_reply(HERE, 3, plain_ms, 1000.0)
    gain = Speeds(tmp_path).gain(HERE, 3)
    assert gain is not None
    assert (gain.by, gain.replies, gain.n_draft_max) == ("replies", FEWEST_REPLIES, 3)
    assert gain.speed_up == pytest.approx((FEWEST_REPLIES + 2) / FEWEST_REPLIES)
    assert gain.verdict == "unclear"
    assert speeds.gain(HERE, "auto") is None


def test_replies_that_agree_have_a_small_error(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path)
    for place in range(20):
        speeds.note_reply(HERE, "auto", 1200.0 + place, 1000.0 + place % 2)
    gain = speeds.gain(HERE, "auto")
    assert gain is not None
    assert gain.verdict == "faster"
    assert 0.0 < gain.error < 0.02


def test_a_bench_counts_before_a_question_and_a_question_before_replies(tmp_path: Path) -> None:
    speeds = Speeds(tmp_path)
    for _ in range(FEWEST_REPLIES):
        speeds.note_reply(HERE, 3, 2000.0, 1000.0)
    for gain in (msgspec.structs.replace(BENCH, by="question"), BENCH):
        speeds.note(HERE, gain)
        assert Speeds(tmp_path).gain(HERE, 3) == gain
    speeds.note(
        HERE, Gain(2.0, 0.1, 3, "question", at=2.0), Gain(1.7, 0.1, "auto", "question", at=2.0)
    )
    assert speeds.gain(HERE, 3) == BENCH
    auto = speeds.gain(HERE, "auto")
    assert auto is not None
    assert auto.speed_up == 1.7
    # One that could not tell is worth less than replies that can.
    speeds.note(HERE, msgspec.structs.replace(BENCH, error=2.0))
    gain = speeds.gain(HERE, 3)
    assert gain is not None
    assert (gain.by, gain.verdict) == ("replies", "faster")


@pytest.mark.parametrize(
    "other",
    [
        setup_of(builtin_pair(), EngineSettings(n_threads=1)),
        setup_of(builtin_pair(), EngineSettings(n_gpu_layers=3)),
        setup_of(builtin_pair(), EngineSettings(kv_type="q8_0")),
        setup_of(builtin_pair(), EngineSettings(draft_kv_type="q8_0")),
        setup_of(builtin_pair(), EngineSettings(command=("ssh", "box"))),
        setup_of(builtin_pair(), EngineSettings(llama_server="/bin/llama-server")),
        setup_of(builtin_pair(), EngineSettings(), "mtp"),
        setup_of(pair_of_files(Path("a.gguf"), None), EngineSettings()),
        msgspec.structs.replace(HERE, llama_cpp="0.1"),
    ],
)
def test_what_changes_speed_has_gains_of_its_own(tmp_path: Path, other: Setup) -> None:
    speeds = Speeds(tmp_path)
    speeds.note(HERE, BENCH)
    assert other != HERE
    assert Speeds(tmp_path).gain(other, 3) is None
    assert Speeds(tmp_path).gain(HERE, 3) == BENCH


def test_a_question_has_another_name_in_older_files(tmp_path: Path) -> None:
    Speeds(tmp_path).note(HERE, msgspec.structs.replace(BENCH, by="question"))
    file = tmp_path / "speeds.json"
    file.write_text(file.read_text().replace('"question"', '"race"'))
    assert Speeds(tmp_path).gain(HERE, 3) == msgspec.structs.replace(BENCH, by="question")
    Speeds(tmp_path).note(HERE, msgspec.structs.replace(BENCH, n_draft_max=5))
    assert "race" not in file.read_text()


def test_two_programs_keep_what_both_measured(tmp_path: Path) -> None:
    one, two = Speeds(tmp_path), Speeds(tmp_path)
    other = setup_of(pair_of_files(Path("a.gguf"), None), EngineSettings())
    assert one.gain(HERE, 3) is None
    two.note(other, BENCH)
    one.note(HERE, BENCH)
    read = Speeds(tmp_path)
    assert read.gain(HERE, 3) == read.gain(other, 3) == BENCH


@pytest.mark.parametrize(
    "before", [b"\xff", b'[{"target": "a.gguf", "draft": null, "gain": null}]']
)
def test_a_file_that_cannot_be_read_counts_as_empty(tmp_path: Path, before: bytes) -> None:
    (tmp_path / "speeds.json").write_bytes(before)
    speeds = Speeds(tmp_path)
    assert speeds.gain(HERE, 3) is None
    speeds.note(HERE, BENCH)
    assert Speeds(tmp_path).gain(HERE, 3) == BENCH
