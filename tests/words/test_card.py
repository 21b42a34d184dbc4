"""The card of a measurement: what it says, in which order, and when there is none."""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from eaglechat import paths
from eaglechat.chat.compared import Result
from eaglechat.chat.comparing import Asked
from eaglechat.chat.recording import Terms
from eaglechat.hub.local import fingerprint, passes
from eaglechat.hub.local.fingerprint import Witness
from eaglechat.settings.model import EngineSettings
from eaglechat.wire import protocol
from eaglechat.wire.protocol import OWN_ENGINE, Sampling
from eaglechat.words import gain
from eaglechat.words.card import card, why_no_card, why_not
from eaglechat.words.comparing import in_json
from tests.chat.test_compared import measured
from tests.tui.scripted_reports import pair_info

HELLO = protocol.Hello(
    protocol=protocol.PROTOCOL_VERSION, can=OWN_ENGINE, eaglechat="1.2", llama_cpp="b9 (abc)",
    devices=(),
)  # fmt: skip
RESULT = measured(
    {
        "chat": {"plain": 10.0, "2": 14.0, "auto": 9.0},
        "code": {"plain": 10.0, "2": 14.2, "auto": 12.0},
        "maths": {"plain": 10.0, "2": 14.1, "auto": 10.0},
    },
    repeats=3,
)


def measurement(tmp_path: Path, result: Result = RESULT, others: float = 0.03) -> Any:
    """A comparison of a pair whose files are in the folder."""
    for name in ("t.gguf", "d.gguf"):
        (tmp_path / name).write_bytes(name.encode())
    return SimpleNamespace(
        info=pair_info(str(tmp_path / "t.gguf"), str(tmp_path / "d.gguf"), None),
        hello=HELLO,
        asked=Asked({}, Terms(sampling=Sampling(temperature=0.0), max_tokens=256)),
        heat_tokens=64,
        in_a_row=4,
        failure=None,
        others=others,
        loads=[0.2, 2.1],
        so_far=lambda: result,
    )


def test_a_card_has_what_was_measured_on_how_the_figures_and_their_limits(tmp_path: Path) -> None:
    known = measurement(tmp_path)
    assert why_not(known) is None
    categories = {"chat": "talk", "code": "work", "maths": "work"}
    text = card(known, EngineSettings(), "of mine.jsonl", categories)

    parts = re.findall("^## (.*)$", text, re.MULTILINE)
    assert parts == ["Fingerprint", "Protocol", "Numbers", "Not to be quoted for"]
    for name in ("t.gguf", "d.gguf"):
        assert f"SHA-256 `{hashlib.sha256(name.encode()).hexdigest()}`" in text
    for said in (
        "| llama.cpp | b9 (abc) |", "`t.gguf`, Q4_1, 98.0 MB", "EAGLE-3, `d.gguf`, Q8_0",
        "2 threads", "3 prompts (of mine.jsonl)", "at most 256 tokens, temperature 0",
        "36 heats of 64 tokens, at most 4 of a prompt before the next one",
        "other programs took 3% of the CPUs meanwhile; load average 0.2 before, 2.1 after",
        "| plain | 10.0 | ", "| talk | 10.0 | 1.40x | 0.90x |", "| work | 10.0 | 1.41x | 1.10x |",
        "with auto: 1.0 lies within the error", "sampled replies",
    ):  # fmt: skip
        assert said in text, said
    (row,) = [line for line in text.splitlines() if line.startswith("| 2 |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:4] == ["14.1", "0%", "1.41x ±0.04"]
    # A round of the test drafts two tokens, and the first is tested and rejected.
    assert cells[4:] == ["1.00", "0.00", "0.00", "0.00", "none"]
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)


def test_a_category_has_the_same_figures_on_a_card_and_in_json(tmp_path: Path) -> None:
    speeds = {
        "chat": {"plain": 10.0, "2": 20.0},
        "code": {"plain": 20.0, "2": 20.0},
        "maths": {"plain": 10.0, "2": 10.0},
    }
    result, categories = measured(speeds, noise=0.0), {"chat": "talk", "code": "talk"}
    plain, drafted = in_json(result, categories)["summary"][:2]
    assert (plain["category"], plain["samples"]) == ("talk", 2)
    # The mean of both speeds would be 15: as many tokens take longer at 10 a second.
    assert plain["tokens_per_second"] == pytest.approx(40 / 3)
    assert drafted["speed_up"] == pytest.approx(math.sqrt(2.0))
    text = card(measurement(tmp_path, result), EngineSettings(), "of mine", categories)
    assert "| talk | 13.3 | 1.41x |" in text


@pytest.mark.parametrize(
    ("result", "others", "why"),
    [
        (RESULT, 0.45, "kept 45% of the CPUs busy: end them"),
        (measured({"q": {"plain": 10.0, "3": 14.0}}), 0.0, "3 was not used: the longest draft"),
        (Result(), 0.0, "too little was measured"),
        (Result(RESULT.heats[:12:4], RESULT.who), 0.0, "a speed has no spread"),
    ],
)  # fmt: skip
def test_what_proves_nothing_has_no_card(
    tmp_path: Path, result: Result, others: float, why: str
) -> None:
    assert why in (why_not(measurement(tmp_path, result, others)) or "")


def test_a_failure_and_an_engine_elsewhere_have_no_card(tmp_path: Path) -> None:
    known = measurement(tmp_path)
    known.failure = protocol.Error(id=1, code="decode", message="no memory")
    assert why_not(known) == "the measurement failed: no memory"
    here = EngineSettings()
    assert why_no_card(HELLO, known.info, here) is None
    remote = msgspec.structs.replace(here, command=("ssh", "box"))
    assert "run eaglechat on that machine" in (why_no_card(HELLO, known.info, remote) or "")
    served = msgspec.structs.replace(known.info, server="http://box")
    assert "of a server" in (why_no_card(HELLO, served, here) or "")


def test_what_other_programs_take_is_what_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    now, busy, own = 0.0, 100.0, 10.0
    monkeypatch.setattr(fingerprint.time, "monotonic", lambda: now)
    monkeypatch.setattr(fingerprint.psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr(fingerprint, "_busy_s", lambda: busy)
    monkeypatch.setattr(fingerprint, "_own_s", lambda: own)
    witness = Witness()
    now, busy, own = 10.0, 125.0, 28.0
    assert witness.others() == pytest.approx(0.35)


def test_a_gpu_has_its_power_limit_and_its_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA RTX 9, 280.00 W, 4, 16'\necho 'no devices'\n")
    program.chmod(0o755)
    assert fingerprint.gpus() == ["NVIDIA RTX 9, power limit 280.00 W, PCIe 4.0 x16"]
    program.write_text("#!/bin/sh\nexit 9\n")
    assert fingerprint.gpus() == []


def test_a_cpu_has_its_name_and_its_governor(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: Best CPU\n")
    for cpu in ("cpu0", "cpu1"):
        folder = tmp_path / "sys/devices/system/cpu" / cpu / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text("powersave\n")
    said = dict(fingerprint.machine(tmp_path))
    assert said["CPU"].startswith("Best CPU, ")
    assert said["Governor"] == "powersave"


TIMES = {1: 5.6, 2: 8.8, 4: 10.7, 8: 15.4}
"""Milliseconds by rows."""


@pytest.mark.parametrize(
    ("times", "longest", "found"),
    [
        (TIMES, 1, 2 * 5.6 / 8.8),
        (TIMES, 3, 4 * 5.6 / 10.7),
        (TIMES, 7, 8 * 5.6 / 15.4),
        (TIMES, 16, 8 * 5.6 / 15.4),
        ({1: 5.6}, 16, None),
        ({2: 5.6, 4: 9.0}, 16, None),
        ({1: 5.6, 8: 9.0}, 3, None),
    ],
)
def test_a_round_writes_at_most_as_many_tokens_as_it_has_rows(
    times: dict[int, float], longest: int, found: float | None
) -> None:
    drafter = protocol.DrafterInfo(kind="eagle3", longest=longest)
    info = msgspec.structs.replace(pair_info("t", "d", None), drafters=(drafter,), verify_ms=times)
    assert info.most == (None if found is None else pytest.approx(found))


def test_another_quantisation_that_was_timed_here_raises_what_can_be_gained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "state_dir", lambda: tmp_path)

    def load(name: str, quantization: str, times: dict[int, float]) -> protocol.PairInfo:
        file = tmp_path / name
        file.write_bytes(b"")
        info = pair_info(str(file), "d.gguf", None)
        model = msgspec.structs.replace(info.target, quantization=quantization)
        info = msgspec.structs.replace(info, target=model, verify_ms=times)
        passes.note(tmp_path, info)
        return info

    slow = load("q4_1.gguf", "Q4_1", {1: 7.2, 2: 14.0, 4: 20.0})
    assert gain.at_most(slow, None).endswith("with a draft that is always right and free.")
    fast = load("q4_0.gguf", "Q4_0", {1: 5.6, 2: 8.8, 4: 10.7})
    assert gain.at_most(slow, None) == (
        "At most 1.4x as fast as plain here, with a draft that is always right and free; the same "
        "model in Q4_0: 2.1x."
    )
    assert "the same model" not in gain.at_most(fast, None)
    load("again.gguf", "Q4_1", {1: 7.2, 2: 9.0, 4: 12.0})
    assert "the same model in Q4_0" in gain.at_most(slow, None)
    # Timed while the machine was busier than later, when more than that was measured.
    faster = measured({"chat": {"plain": 10.0, "2": 15.0}}).best
    assert gain.at_most(slow, RESULT.best) != "" == gain.at_most(slow, faster)
    (tmp_path / "q4_0.gguf").unlink()
    assert "the same model" not in gain.at_most(slow, None)
    untimed = msgspec.structs.replace(slow, verify_ms={})
    passes.note(tmp_path, untimed)
    assert gain.at_most(untimed, None) == ""
    assert slow.most == pytest.approx(4 * 7.2 / 20.0)
