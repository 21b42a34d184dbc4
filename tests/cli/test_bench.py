"""`eaglechat bench` on the tiny pair: what it measures, through which door, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eaglechat.cli import loading, main
from eaglechat.cli.bench import command
from tests import tiny
from tests.cli.engines import engine_that
from tests.cli.run.running import in_this_process
from tests.waiting import PATIENCE_S

PROMPTS = "=== cat\nthe cat sat on the mat\n=== fox\nthe quick brown fox\n"


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text(PROMPTS)
    return path


@pytest.fixture
def arguments(tiny_files: tuple[Path, Path], prompts: Path) -> list[str]:
    target, draft = map(str, tiny_files)
    pair = ["--target", target, "--draft", draft, "--threads", "1", "--ctx", "512"]
    how = ["--n", "0,2", "--repeat", "2", "--max-tokens", "12", "--prompts", str(prompts)]
    return ["bench", *pair, *how]


@pytest.fixture
def bench(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Runs it with the engine in this process; what it wrote as JSON."""
    monkeypatch.setattr(loading, "start_engine", in_this_process)

    def run(*more: str) -> dict[str, Any]:
        results = tmp_path / "measured" / "results.json"  # in a folder it has to make
        assert main([*arguments, *more, "--json", str(results)]) == 0
        return json.loads(results.read_bytes())

    return run


def runs_of(results: dict[str, Any]) -> list[tuple[str, int, str]]:
    return [(run["prompt"], run["repeat"], run["setting"]) for run in results["report"]["runs"]]


def test_every_setting_of_every_repeat_of_a_prompt_is_measured_in_turns(
    bench: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    results = bench()

    assert runs_of(results) == [
        (prompt, repeat, setting)
        for prompt, repeat, order in (
            ("cat", 0, ["plain", "0", "2"]),
            ("fox", 0, ["2", "0", "plain"]),
            ("cat", 1, ["2", "0", "plain"]),
            ("fox", 1, ["0", "2", "plain"]),
        )
        for setting in order
    ]
    assert results["pair"]["n_ctx"] == 512
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("target + draft · F32 + EAGLE-3, 1 thread, ")
    assert "cat" in "".join(said)
    assert results["verdict"] == said[2]
    assert re.search("orth it|No gain|an't tell: |eaning ", said[2])


def test_by_turns_writes_the_same_replies(bench: Callable[..., dict[str, Any]]) -> None:
    counts = [
        {
            (run["prompt"], run["setting"]): (run["tokens"], run["n_accepted"])
            for run in bench(*how)["report"]["runs"]
        }
        for how in ([], ["--by-turns"])
    ]
    assert counts[0] == counts[1]


def test_shapes_and_n_grams_are_settings_too(
    bench: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    results = bench("--shape", "chain,tree", "--ngram", "off,on", "--repeat", "1")

    found = results["report"]["settings"]
    assert [(row["setting"], row["n"], row["shape"], row["ngram"]) for row in found] == [
        ("plain", None, None, False),
        ("0", 0, "chain", False),
        ("2", 2, "chain", False),
        ("tree 2", 2, "tree", False),
        ("2 + n-grams", 2, "chain", True),
        ("tree 2 + n-grams", 2, "tree", True),
    ]
    assert all("eagle3" in row["by_drafter"] for row in found[2:4])
    table = capsys.readouterr().out
    assert re.search(r"^tree 2 \+ n-grams +2 +tree +EAGLE-3, n-grams ", table, re.MULTILINE)
    assert re.search(r"of the draft +of n-grams$", table, re.MULTILINE)


def test_a_draft_that_does_not_fit_is_said_to(
    bench: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    warning = "made for another model than this target"
    bench("--max-tokens", "60")
    assert warning not in capsys.readouterr().out
    # Tokens its target never says.
    monkeypatch.setattr(tiny, "DRAFT_VOCABULARY", [27, 28, tiny.BOS])
    other = tiny.write_draft(tmp_path / "other.gguf")
    bench("--draft", str(other), "--max-tokens", "60")
    assert warning in capsys.readouterr().out


def test_a_target_that_cannot_follow_several_paths_is_measured_with_chains_alone(
    bench: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tiny.write_hybrid_target(tmp_path / "hybrid.gguf")
    found = bench("--target", str(target), "--shape", "tree", "--repeat", "1")["report"]["settings"]
    assert [(row["setting"], row["shape"]) for row in found[1:]] == [("0", "chain"), ("2", "chain")]
    assert "drafts stay chains: the target is a recurrent" in capsys.readouterr().err


def test_copies_are_prompts_of_their_own_and_a_shape_that_is_none_is_refused(
    arguments: list[str], bench: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    results = bench("--prompts", "copy", "--repeat", "1", "--n", "2", "--ctx", "4096")
    assert {run["prompt"] for run in results["report"]["runs"]} >= {"rename", "quotation"}
    with pytest.raises(SystemExit):
        main([*arguments, "--shape", "bush"])
    assert "'bush' is none of chain, tree" in capsys.readouterr().err


def test_a_target_without_a_draft_has_nothing_to_compare(
    tiny_files: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "start_engine", in_this_process)

    alone = ["bench", "--target", str(tiny_files[0])]
    assert main(alone) == 1
    wrong = "there is nothing to compare: no draft is loaded, and n-grams are off; --ngram on "
    assert wrong in capsys.readouterr().err


def test_a_target_without_a_draft_is_measured_with_n_grams_alone(
    tiny_files: tuple[Path, Path], prompts: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(loading, "start_engine", in_this_process)
    how = ["--n", "4", "--ngram", "off,on", "--repeat", "1", "--prompts", str(prompts)]

    assert main(["bench", "--target", str(tiny_files[0]), *how, "--max-tokens", "60"]) == 0
    table = capsys.readouterr().out
    assert re.search(r"^4 \+ n-grams +4 +chain +n-grams ", table, re.MULTILINE)
    assert not re.search(r"^4 +4 ", table, re.MULTILINE)


def test_a_file_that_cannot_be_written_is_known_before_anything_is_measured(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(loading, "start_engine", None)
    results = tmp_path / "prompts.txt" / "results.json"

    assert main([*arguments, "--json", str(results)]) == 1
    assert f"{results} cannot be written: " in capsys.readouterr().err


def test_a_reply_that_outlasts_the_time_is_cut_off_and_not_counted(
    tiny_files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "start_engine", in_this_process)
    monkeypatch.setattr(command, "minutes_for", lambda *_: 0)
    results = tmp_path / "results.json"
    pair = ["--target", str(tiny_files[0]), "--draft", str(tiny_files[1]), "--ctx", "65536"]

    assert main(["bench", *pair, "--max-tokens", "60000", "--json", str(results)]) == 0
    assert json.loads(results.read_bytes())["report"]["runs"] == []


# --- an engine of its own ---


def process(arguments: list[str], home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "eaglechat", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "EAGLECHAT_HOME": str(home)},
        cwd=home,
    )


def engine_that_does_with_its_second_run(what: str) -> list[str]:
    return engine_that(
        "import os, signal, sys\n"
        "from eaglechat.engine.process.pair_worker import PairWorker\n"
        "from eaglechat.wire.protocol import BenchRunDone\n"
        "say, runs = PairWorker.say, []\n"
        "def watched(self, event):\n"
        "    say(self, event)\n"
        "    if isinstance(event, BenchRunDone):\n"
        "        runs.append(event)\n"
        "        if len(runs) == 2:\n"
        f"            {what}\n"
        "PairWorker.say = watched"
    )


def test_an_engine_that_dies_leaves_what_was_measured(arguments: list[str], tmp_path: Path) -> None:
    said = "GGML_ASSERT(n_outputs > 0) failed"
    abort = f"print({said!r}, file=sys.stderr, flush=True); os.abort()"
    dying = engine_that_does_with_its_second_run(abort)
    with process([*arguments, *dying, "--repeat", "100000"], tmp_path) as running:
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 1
    assert "cat" in out
    assert "the engine stopped by itself (signal 6, SIGABRT)" in err
    assert said in err
    assert "the tables show what was measured before that" in err


def test_ctrl_c_ends_the_bench_with_what_was_measured(arguments: list[str], tmp_path: Path) -> None:
    engine = engine_that_does_with_its_second_run("os.kill(os.getppid(), signal.SIGINT)")
    with process([*arguments, *engine, "--repeat", "100000"], tmp_path) as running:
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 130
    assert "cat" in out
    assert "stopped; the tables show what was measured before that" in err
    assert "Traceback" not in err
