"""`eaglechat bench` on the tiny pair: what it measures, through which door, and how it ends."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eaglechat import paths
from eaglechat.chat.comparing import Comparison
from eaglechat.cli import loading, main
from eaglechat.hub.local import fingerprint
from eaglechat.hub.local.speeds import Gain
from eaglechat.words.gain import measured_here
from tests import tiny
from tests.cli.engines import engine_that
from tests.cli.run.running import in_this_process
from tests.links.http.fault_server import FaultServer, fault_server
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


def test_every_setting_writes_every_reply_as_often_as_it_is_asked_to(
    bench: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    results = bench()

    found = {
        (one["setting"], prompt["prompt"])
        for one in results["settings"]
        for prompt in one["prompts"]
    }
    names = ("plain", "length 0", "length 2")
    assert found == {(name, prompt) for name in names for prompt in ("cat", "fox")}
    # Both replies twice.
    assert (results["heats"], results["tokens"]) == (4, 48)
    assert results["settings"][0]["speed_up"] == 1.0
    two = results["settings"][2]
    counts = two["stats"]
    assert two["accepted_of_tested"] == counts["accepted"] / counts["tested"]
    assert two["accepted_of_drafted"] == counts["accepted"] / counts["drafted"]
    assert results["pair"]["n_ctx"] == 512
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("target + draft · F32 + EAGLE-3, 1 thread, ")
    # Whoever is the fastest: what the draft was worth is shown.
    table = "\n".join(said)
    assert re.search("^ +plain tok/s +length 0 +length 2$", table, re.M)
    for prompt in ("cat", "fox"):
        assert re.search(rf"^{prompt} +\d+\.\d +\d\.\d\dx +\d\.\d\dx$", table, re.M)
    assert results["verdict"] == said[2]
    assert re.search("as plain|an't tell: |eaning ", said[2])
    assert said[2].endswith(" Of 48 tokens of each, over 2 prompts; both wrote the same.")


def test_a_long_reply_is_written_in_parts_to_its_end(bench: Callable[..., dict[str, Any]]) -> None:
    results = bench("--max-tokens", "100", "--repeat", "1")
    assert (results["heats"], results["tokens"]) == (4, 200)


def test_shapes_and_n_grams_are_settings_too(
    bench: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    results = bench("--shape", "chain,tree", "--ngram", "off,on", "--repeat", "1")

    found = results["settings"]
    hows = [(row["setting"], row["speculation"]) for row in found]
    assert [(name, how["n_draft_max"], how["shape"], how["ngram"]) for name, how in hows[1:]] == [
        ("length 0", 0, "chain", False),
        ("length 2", 2, "chain", False),
        ("tree length 2", 2, "tree", False),
        ("length 2 + n-grams", 2, "chain", True),
        ("tree length 2 + n-grams", 2, "tree", True),
    ]
    assert all("eagle3" in row["stats"]["by_drafter"] for row in found[2:4])
    table = capsys.readouterr().out
    assert re.search(r"^tree length 2 \+ n-grams +\d+\.\d ", table, re.MULTILINE)
    heads = "tok/s +spread +times plain +tok/round +accepted / tested +/ drafted"
    assert re.search(rf"^ +{heads}$", table, re.MULTILINE)


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
    found = bench("--target", str(target), "--shape", "tree", "--repeat", "1")["settings"]
    assert [row["speculation"]["shape"] for row in found[1:]] == ["chain", "chain"]
    assert [row["setting"] for row in found[1:]] == ["length 0", "length 2"]
    assert "drafts stay chains: the target is a recurrent" in capsys.readouterr().err


def test_copies_are_prompts_of_their_own_and_a_shape_that_is_none_is_refused(
    arguments: list[str], bench: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    results = bench("--prompts", "copy", "--repeat", "1", "--n", "2", "--ctx", "4096")
    assert {one["prompt"] for one in results["settings"][0]["prompts"]} >= {"rename", "quotation"}
    with pytest.raises(SystemExit):
        main([*arguments, "--shape", "bush"])
    assert '"bush" must be chain, tree or auto' in capsys.readouterr().err


def test_a_card_is_printed_in_place_of_the_tables_if_the_machine_was_quiet(
    arguments: list[str],
    tiny_files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(loading, "start_engine", in_this_process)
    others = 0.0
    monkeypatch.setattr(fingerprint.Witness, "others", lambda _: others)
    assert main([*arguments, "--card", "--max-tokens", "60"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# ")
    for file in tiny_files:
        assert hashlib.sha256(file.read_bytes()).hexdigest() in printed
    assert "plain tok/s  length 0" not in printed

    others = 0.75
    assert main([*arguments, "--card"]) == 1
    said = capsys.readouterr()
    assert "no card: other programs kept 75% of the CPUs busy: end them" in said.err
    assert "plain tok/s  length 0" in said.out


def test_a_bench_of_sampled_replies_says_so_everywhere(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(loading, "start_engine", in_this_process)
    monkeypatch.setattr(fingerprint.Witness, "others", lambda _: 0.0)
    results = tmp_path / "results.json"
    # The figures that the menu shows are those of the prompts that come with the program.
    own = arguments[: arguments.index("--prompts")]
    how = ["--n", "2", "--ctx", "8192", "--max-tokens", "24", "--temperature", "0.7"]
    how += ["--json", str(results)]

    assert main([*own, *how, "--card"]) == 0
    said = capsys.readouterr().out
    assert "over 8 prompts at temperature 0.7." in said
    assert "replies of at most 24 tokens, temperature 0.7\n" in said
    assert "- another temperature than 0.7\n" in said
    written = json.loads(results.read_bytes())
    assert written["temperature"] == 0.7
    assert "at temperature 0.7." in written["verdict"]
    (known,) = json.loads((paths.state_dir() / "speeds.json").read_bytes())
    (gain,) = known["measured"]
    assert measured_here(msgspec.convert(gain, Gain), gain["at"]).endswith(
        "with length 2 (bench at temperature 0.7, just now)"
    )


def test_json_lines_are_summed_up_by_category(
    bench: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "mine.jsonl"
    said = [("qa", "the cat sat"), ("qa", "on the mat"), ("code", "the quick brown fox")]
    objects = [{"category": category, "prompt": prompt} for category, prompt in said]
    lines.write_text("".join(f"{json.dumps(one)}\n" for one in objects))
    summary = bench("--prompts", str(lines), "--repeat", "1")["summary"]

    assert {(row["category"], row["samples"]) for row in summary} == {("qa", 2), ("code", 1)}
    assert [row["setting"] for row in summary[:3]] == ["plain", "length 0", "length 2"]
    for row in summary:
        is_drafting = row["setting"] == "length 2"
        assert (row["accepted_of_drafted"] is not None) is is_drafting
        assert (row["accepted_of_tested"] is not None) is is_drafting
    lines.write_text('{"prompt": "a"}\n{"category": "b"}\n')
    assert main(["bench", "--prompts", str(lines)]) == 1
    assert f"{lines}: line 2: " in capsys.readouterr().err


def test_a_target_without_a_draft_is_measured_with_n_grams_alone(
    tiny_files: tuple[Path, Path], prompts: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(loading, "start_engine", in_this_process)
    how = ["--n", "4", "--repeat", "1", "--prompts", str(prompts)]

    assert main(["bench", "--target", str(tiny_files[0]), *how, "--max-tokens", "60"]) == 0
    table = capsys.readouterr().out
    assert re.search(r"^length 4 +\d+\.\d ", table, re.MULTILINE)


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
    monkeypatch.setattr(Comparison, "seconds_left", 0.0)
    results = tmp_path / "results.json"
    pair = ["--target", str(tiny_files[0]), "--draft", str(tiny_files[1]), "--ctx", "65536"]

    assert main(["bench", *pair, "--max-tokens", "60000", "--json", str(results)]) == 0
    assert json.loads(results.read_bytes())["settings"] == []


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


def engine_that_does_with_its_fifth_reply(what: str) -> list[str]:
    return engine_that(
        "import os, signal, sys\n"
        "from eaglechat.engine.process import PairWorker\n"
        "from eaglechat.wire.protocol import Done\n"
        "say, replies = PairWorker.say, []\n"
        "def watched(self, event):\n"
        "    say(self, event)\n"
        "    if isinstance(event, Done):\n"
        "        replies.append(event)\n"
        "        if len(replies) == 5:\n"
        f"            {what}\n"
        "PairWorker.say = watched"
    )


def test_an_engine_that_dies_leaves_what_was_measured(arguments: list[str], tmp_path: Path) -> None:
    said = "GGML_ASSERT(n_outputs > 0) failed"
    abort = f"print({said!r}, file=sys.stderr, flush=True); os.abort()"
    dying = engine_that_does_with_its_fifth_reply(abort)
    with process([*arguments, *dying, "--repeat", "100000"], tmp_path) as running:
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 1
    assert "cat" in out
    assert "the engine stopped by itself (signal 6, SIGABRT)" in err
    assert said in err


def test_ctrl_c_ends_the_bench_with_what_was_measured(arguments: list[str], tmp_path: Path) -> None:
    engine = engine_that_does_with_its_fifth_reply("os.kill(os.getppid(), signal.SIGINT)")
    with process([*arguments, *engine, "--repeat", "100000"], tmp_path) as running:
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 130
    assert "cat" in out
    assert "eaglechat: stopped\n" in err
    assert "Traceback" not in err


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with fault_server() as faults:
        yield faults


@pytest.fixture
def folder(server: FaultServer, home: Path) -> Path:
    """Where config.toml names the server twice: with a model for comparisons, and without."""
    config = home / "eaglechat" / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    entry = f'[[server]]\nurl = "{server.url}"\nname = '
    config.write_text(f'{entry}"box"\nplain_model = "p"\n{entry}"bare"\n')
    return home


def measured(folder: Path, *words: str) -> dict[str, Any]:
    prompts = folder / "prompts.txt"
    prompts.write_text("=== cat\nthe cat sat\n")
    out = folder / "out.json"
    how = ["--repeat", "2", "--prompts", str(prompts), "--json", str(out)]
    assert main(["bench", *words, *how]) == 0
    found: dict[str, Any] = json.loads(out.read_bytes())
    return found


def test_both_models_take_turns_and_the_server_is_named(
    server: FaultServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measured(folder, "--server", "box")

    assert [row["setting"] for row in found["settings"]] == ["plain", "as started"]
    assert [asked.body["model"] for asked in server.chats()] == [*"pm", *"mp"]
    assert found["engine"]["name"] == "this server"
    assert found["pair"]["server"] == server.url
    printed = capsys.readouterr().out
    assert f"box · m, this server at {server.url}, " in printed
    assert "plain_model" not in printed


def test_without_a_plain_model_it_says_why_there_is_no_comparison(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measured(folder, "--server", "bare")

    assert [row["setting"] for row in found["settings"]] == ["as started"]
    assert found["heats"] == 2
    printed = capsys.readouterr().out
    assert "To compare, name the same model without a draft as plain_model" in printed
    assert "as fast as plain" not in printed
    assert re.search(r"^as started +\d+\.\d +\d+% +- ", printed, re.MULTILINE)


def test_what_a_server_counts_of_whole_replies_is_in_the_bench(
    server: FaultServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"draft_rounds": 3, "draft_n": 9, "draft_n_accepted": 6, "draft_kind": "mtp"}
    server.chat = lambda handler: handler.reply(*"abcdefgh", timings=counts)

    found = measured(folder, "--server", "bare")

    (result,) = found["settings"]
    assert (result["accepted_of_tested"], result["mean_accepted_length"]) == (None, 3.0)
    assert (result["accepted_of_drafted"], result["stats"]["accepted"]) == (12 / 18, 12)
    printed = capsys.readouterr().out
    assert "as started: accepted 12 of 18 drafted tokens; which were tested is not" in printed


def test_a_reply_that_comes_at_once_has_no_speed(
    server: FaultServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.chat = lambda handler: handler.reply("all at once")
    prompts = folder / "prompts.txt"
    prompts.write_text("=== cat\nthe cat sat\n")
    assert main(["bench", "--server", "bare", "--prompts", str(prompts)]) == 1
    said = capsys.readouterr()
    assert said.err.endswith(
        "eaglechat: the reply to “cat” came all at once, so its speed is not known\n"
    )
    assert "Nothing was measured." in said.out


def test_what_only_the_own_engine_can_do_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--server", "box", "--n", "3"]) == 2
    assert "--n is for eaglechat's own engine, not for this server" in capsys.readouterr().err
    assert main(["bench", "--server", "box", "--shape", "tree"]) == 2
    assert "--shape is for eaglechat's own engine" in capsys.readouterr().err
