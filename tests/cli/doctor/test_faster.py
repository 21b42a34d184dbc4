"""What the doctor says would make a machine faster."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from eaglechat.cli import faster
from eaglechat.gguf.header import read_header
from eaglechat.hub.local.pairs import pair_of_files
from tests.ggufs import write_target


@pytest.mark.parametrize(
    ("file", "named"), [("proc/driver/nvidia/version", "CUDA"), ("dev/kfd", "ROCm")]
)
def test_a_gpu_that_the_build_cannot_use_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, named: str
) -> None:
    monkeypatch.setattr(faster.shutil, "which", lambda _: None)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    found = faster.gpu_of_machine(tmp_path)
    assert found is not None
    assert found[1] == named
    monkeypatch.setattr(faster, "gpu_of_machine", lambda: found)
    (said,) = faster.advice(False, ["CPU"], [])
    assert f"not built for {named}" in said
    assert not list(faster.advice(False, ["CPU", named], []))
    assert not list(faster.advice(True, ["CPU"], []))


def test_a_mac_is_told_of_metal_by_its_usual_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faster.shutil, "which", lambda _: None)
    monkeypatch.setattr(faster.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(faster.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(faster, "gpu_of_machine", partial(faster.gpu_of_machine, tmp_path))
    (said,) = faster.advice(False, ["CPU"], [])
    assert "an Apple GPU" in said
    assert "not built for Metal;" in said
    assert not list(faster.advice(False, ["MTL", "CPU"], []))


def test_a_target_whose_batches_are_slow_here_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faster, "gpu_of_machine", lambda: None)
    target = write_target(tmp_path / "target.gguf")
    pair, header = pair_of_files(target, None), read_header(target)
    slow = replace(header, fields={**header.fields, "general.file_type": 3})
    assert slow.quantization == "Q4_1"
    (said,) = faster.advice(False, ["CPU"], [(pair, header), (pair, slow)])
    assert said.startswith("the target of target is in Q4_1")
    assert not list(faster.advice(False, ["CPU"], [(replace(pair, reencode=True), slow)]))
    assert not list(faster.advice(True, ["CUDA"], [(pair, slow)]))
