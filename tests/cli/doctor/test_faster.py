"""What the doctor says would make a machine faster."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from eaglechat.cli import doctor
from eaglechat.engine.llama import backend
from eaglechat.settings import Settings


@pytest.mark.parametrize(
    ("file", "named", "said"),
    [
        ("proc/driver/nvidia/version", "CUDA", "an NVIDIA GPU, and .* not built for CUDA;"),
        ("dev/kfd", "ROCm", "an AMD GPU, and .* not built for ROCm;"),
        ("", "MTL", "an Apple GPU, and .* not built for Metal;"),
    ],
)
def test_a_gpu_that_the_build_cannot_use_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, named: str, said: str
) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    if file:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    else:
        monkeypatch.setattr(doctor.platform, "system", lambda: "Darwin")
        monkeypatch.setattr(doctor.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(doctor, "gpu_of_machine", partial(doctor.gpu_of_machine, tmp_path))
    patient = doctor.Doctor(Settings(), [])
    list(patient.llama_cpp())
    for built_for, matches in ((("CPU",), [said]), ((named, "CPU"), [])):
        monkeypatch.setattr(backend, "backends", lambda built_for=built_for: built_for)
        found = [one for one in patient.faster() if "not built" in one]
        assert len(found) == len(matches)
        assert all(re.search(pattern, one) for pattern, one in zip(matches, found, strict=True))
