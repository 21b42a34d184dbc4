from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eaglechat.cli import loading, main
from eaglechat.cli.loading import start_engine
from eaglechat.engine.process.local import LocalEngine
from eaglechat.links.base import Link
from eaglechat.settings import Settings
from eaglechat.wire.records import Round
from eaglechat.wire.stats import stats_of
from tests import tiny
from tests.cli.engines import engine_that, engine_that_dies_after
from tests.cli.redrawn import Terminal

ROOT = Path(__file__).parent.parent.parent
PROMPT = "the cat sat on the mat"
PATIENCE_S = 60
ASCII = {"PYTHONIOENCODING": "ascii"}

SCHEMA = {
    "text": str,
    "reasoning": str,
    "tokens": int,
    "finish_reason": str,
    "pair": str,
    "engine": str,
    "context": {"size": int, "used": int},
    "speculation": {
        "n_draft_max": int,
        "rounds": int,
        "drafted": int,
        "tested": int,
        "accepted": int,
        "acceptance_rate": float,
        "mean_accepted_length": float,
        "per_position": list,
        "trees": int,
        "siblings": int,
        "by_drafter": {"eagle3": {"rounds": int, "drafted": int, "tested": int, "accepted": int}},
    },
    "parts": {
        "answer": {
            "tokens": int,
            "tokens_per_second": float,
            "acceptance_rate": float,
            "mean_accepted_length": float,
        }
    },
    "timings": {
        "load_ms": float,
        "prefill_ms": float,
        "prefill_tokens": int,
        "generation_ms": float,
        "tokens_per_second": float,
        "draft_ms": float,
        "verify_ms": float,
    },
}


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on standard error, of a command that printed nothing."""
        assert self.out == ""
        assert "Traceback" not in self.err
        (line,) = [line for line in self.err.splitlines() if line.startswith("eaglechat: ")]
        return line.removeprefix("eaglechat: ")


Runner = Callable[..., Ended]


@pytest.fixture
def eaglechat(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tiny_files: tuple[Path, Path],
) -> Runner:
    """Runs `eaglechat run` on the tiny pair, with the engine in this process, which saves time."""
    monkeypatch.setenv("EAGLECHAT_HOME", str(tmp_path / "home"))
    # Whether drafting pays on so small a pair is a matter of chance: it drafts in any case.
    pair = ("--target", str(tiny_files[0]), "--draft", str(tiny_files[1]), "--n-draft-max", "3")

    def run(
        *arguments: str,
        pair: Sequence[str] = pair,
        stdin: bytes = b"",
        own_engine: bool = True,
    ) -> Ended:
        """`own_engine`: the one in this process, whatever is asked for."""
        start = in_this_process if own_engine else start_engine
        monkeypatch.setattr(loading, "start_engine", start)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        defaults = ("--temperature", "0", "--threads", "1", "--max-tokens", "40")
        try:
            status = main(["run", *pair, *defaults, *arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        sys.stdout.flush()
        return Ended(status, *capfd.readouterr())

    return run


def in_this_process(_settings: Settings) -> Link:
    engine = LocalEngine()
    engine.start()
    return engine


def shape(value: Any) -> Any:
    return {k: shape(v) for k, v in value.items()} if isinstance(value, dict) else type(value)


# --- replies ---


def test_a_reply_streams_to_stdout_and_the_summary_to_stderr(eaglechat: Runner) -> None:
    ended = eaglechat(PROMPT)

    assert ended.status == 0
    assert len(ended.out.strip()) > 20
    assert "40 tokens" in ended.err
    assert "accepted" in ended.err
    assert "token limit reached" in ended.err


def test_the_json_object_has_exactly_the_promised_shape(eaglechat: Runner) -> None:
    ended = eaglechat("--json", "--no-ngram", "--n-draft-max", "2", PROMPT)

    report = json.loads(ended.out)
    assert ended.out.count("\n") == 1
    assert shape(report) == SCHEMA
    assert list(report) == list(SCHEMA)
    assert (report["tokens"], report["finish_reason"]) == (40, "length")
    assert report["pair"] == "target + draft"
    assert report["speculation"]["n_draft_max"] == 2
    assert report["speculation"]["accepted"] > 0
    assert report["text"] == eaglechat(PROMPT).out.removesuffix("\n")


def test_the_trace_holds_the_rounds_the_report_counts(eaglechat: Runner, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"

    report = json.loads(eaglechat("--json", "--trace", str(trace), PROMPT).out)

    rounds = [msgspec.json.decode(line, type=Round) for line in trace.read_bytes().splitlines()]
    stats, counts = stats_of(rounds), report["speculation"]
    assert [round_.index for round_ in rounds] == list(range(counts["rounds"]))
    assert "".join(round_.text for round_ in rounds) == report["text"]
    assert (stats.drafted, stats.tested) == (counts["drafted"], counts["tested"])
    assert stats.accepted == counts["accepted"]
    assert counts["acceptance_rate"] == stats.accepted / stats.tested
    assert counts["mean_accepted_length"] == 1 + stats.accepted / stats.verify_steps
    assert counts["per_position"] == list(stats.per_position)
    assert report["timings"]["verify_ms"] == pytest.approx(
        sum(round_.timings.verify_ms for round_ in rounds)
    )


@pytest.mark.parametrize(
    "plain", [["--no-speculation"], ["--n-draft-max", "0"]], ids=["off", "n_draft_max 0"]
)
def test_plain_decoding_writes_the_same_text_and_drafts_nothing(
    eaglechat: Runner, plain: list[str]
) -> None:
    drafted = json.loads(eaglechat("--json", PROMPT).out)
    report = json.loads(eaglechat("--json", *plain, PROMPT).out)

    assert report["text"] == drafted["text"]
    counts = report["speculation"]
    assert (counts["n_draft_max"], counts["drafted"], counts["tested"]) == (0, 0, 0)
    assert (counts["rounds"], counts["acceptance_rate"], counts["per_position"]) == (40, 0.0, [])
    assert report["timings"]["draft_ms"] == 0.0


def test_a_target_without_a_draft_speculates_from_its_own_words(
    eaglechat: Runner, tiny_files: tuple[Path, Path]
) -> None:
    counts = {}
    for flags in (("--n-draft-max", "8"), ("--n-draft-max", "8", "--no-ngram")):
        ended = eaglechat("--json", *flags, PROMPT, pair=("--target", str(tiny_files[0])))
        assert "speculation is off" not in ended.err
        counts[len(flags)] = json.loads(ended.out)["speculation"]
    assert counts[2]["accepted"] > 0
    assert counts[3]["drafted"] == 0


def test_stdin_system_prompt_and_seed_reach_the_reply(eaglechat: Runner) -> None:
    hot = ("--temperature", "1", "--json")

    def text(*arguments: str, stdin: bytes = b"") -> str:
        return str(json.loads(eaglechat(*hot, *arguments, stdin=stdin).out)["text"])

    assert text("--seed", "5", "-", stdin=PROMPT.encode()) == text("--seed", "5", PROMPT)
    assert text("--seed", "5", PROMPT) != text("--seed", "6", PROMPT)
    assert text("--seed", "5", PROMPT) != text("--seed", "5", "--system", "be brief", PROMPT)


def test_the_context_s_end_is_a_finish_reason(eaglechat: Runner) -> None:
    report = json.loads(eaglechat("--json", "--ctx", "256", "--max-tokens", "9999", PROMPT).out)

    assert report["finish_reason"] == "context"


@pytest.mark.real
def test_the_built_in_pair_is_the_default_with_its_fixed_length(
    eaglechat: Runner, real_files: tuple[Path, Path]
) -> None:
    report = json.loads(eaglechat("--json", "--max-tokens", "12", "Say hello.", pair=()).out)

    assert (report["pair"], report["speculation"]["n_draft_max"]) == ("smollm2-135m", 3)
    assert report["text"]


# --- what is refused, in a sentence and with a status ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n-draft-max", "-1", PROMPT], "argument --n-draft-max: -1 must be between 0 and 16"),
        (["--n-draft-max", "99", PROMPT], "argument --n-draft-max: 99 must be between 0 and 16"),
        (["--p-min", "2", PROMPT], "argument --p-min: 2 must be between 0 and 1"),
        (["--dance", PROMPT], "--dance"),
        ([], "PROMPT"),
        ([""], "the prompt is empty"),
        ([" \n"], "the prompt is empty"),
        (["-"], "the prompt is empty"),
        (["bad \udcff byte"], "not text in UTF-8"),
        (["--system", "\udcff", PROMPT], "not text in UTF-8"),
        (["--pair", "x", PROMPT], "--pair and --target name two pairs"),
    ],
)
def test_wrong_usage_is_status_2(eaglechat: Runner, arguments: list[str], message: str) -> None:
    ended = eaglechat(*arguments)

    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
    assert "Traceback" not in ended.err


def test_a_draft_alone_and_bytes_on_stdin_are_wrong_usage(eaglechat: Runner) -> None:
    alone = eaglechat(PROMPT, pair=("--draft", "d.gguf"))
    assert (alone.status, "--draft needs --target" in alone.complaint) == (2, True)

    piped = eaglechat("-", stdin=b"caf\xe9")
    assert (piped.status, "not text in UTF-8" in piped.complaint) == (2, True)


def test_options_before_the_command_are_not_dropped_without_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--temperature", "0", "run", PROMPT])

    assert end.value.code == 2
    assert "options of run stand after it" in capsys.readouterr().err


def test_files_that_cannot_run_are_status_1_with_the_reason(
    eaglechat: Runner, tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    target, draft = map(str, tiny_files)
    text = tmp_path / "text.gguf"
    text.write_text("Once upon a time")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_files[0].read_bytes()[:90_000])
    other = str(tiny.write_draft(tmp_path / "other.gguf", target_hidden_size=64))
    missing = str(tmp_path / "missing.gguf")

    for pair, reason in (
        (("--target", missing), "does not exist"),
        (("--target", target, "--draft", missing), "the draft"),
        (("--target", str(text)), "is not a GGUF file"),
        (("--target", str(cut)), "is cut short"),
        (("--target", draft, "--draft", target), "swapped?"),
        (("--target", target, "--draft", other), "hidden size 64, target.gguf has 32"),
        (("--pair", "nobody"), "there is no pair named 'nobody'; known: smollm2-135m"),
    ):
        ended = eaglechat(PROMPT, pair=pair)
        assert ended.status == 1
        assert reason in ended.complaint


def test_a_prompt_that_does_not_fit_is_status_1_with_both_numbers(eaglechat: Runner) -> None:
    ended = eaglechat("--ctx", "256", "a " * 300)

    assert ended.status == 1
    assert "the prompt has 60" in ended.complaint
    assert "the context holds 256" in ended.complaint


@pytest.mark.parametrize("plain", [[], ["--no-speculation"]], ids=["drafting", "plain"])
def test_a_context_too_small_for_anything_is_refused(eaglechat: Runner, plain: list[str]) -> None:
    """llama.cpp would take 256 tokens without a word, or run out of rows in mid-reply."""
    ended = eaglechat("--ctx", "1", *plain, PROMPT)

    assert ended.complaint == "a context holds at least 256 tokens, and engine.n_ctx (--ctx) is 1"


def test_a_trace_that_cannot_be_written_is_status_1(eaglechat: Runner, tmp_path: Path) -> None:
    ended = eaglechat("--trace", str(tmp_path / "no" / "trace"), PROMPT)

    assert ended.status == 1
    assert "trace" in ended.complaint


def test_a_bad_setting_is_named_and_the_reply_comes(eaglechat: Runner, tmp_path: Path) -> None:
    config = tmp_path / "home" / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[speculation]\nn_draft_max = 99\n[generation]\ntop_k = 3\n")

    ended = eaglechat(PROMPT)

    assert ended.status == 0
    assert f"{config}: speculation.n_draft_max" in ended.err
    assert len(ended.out) > 20


def test_an_interrupt_while_stdin_is_read_is_status_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(io.BytesIO):
        def read(self, *_args: object) -> bytes:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Interrupted()))

    assert main(["run", "-"]) == 130
    assert capsys.readouterr().err == ""


# --- a real process ---


def process(arguments: Sequence[str], home: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "EAGLECHAT_HOME": str(home), "PYTHONPATH": str(ROOT), **environment},
        cwd=home,
    )


def command(files: tuple[Path, Path], *arguments: str) -> list[str]:
    pair = ["--target", str(files[0]), "--draft", str(files[1]), "--threads", "1"]
    return ["run", *pair, "--temperature", "0", *arguments, PROMPT]


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_ctrl_c_during_generation_keeps_what_was_written(
    tiny_files: tuple[Path, Path], tmp_path: Path, as_json: bool
) -> None:
    trace = tmp_path / "trace"
    arguments = ["--trace", str(trace), *(["--json"] if as_json else [])]
    with process(["-m", "eaglechat", *command(tiny_files, *arguments)], tmp_path) as running:
        while running.poll() is None and not (trace.exists() and trace.stat().st_size):
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 130
    assert b"Traceback" not in err
    written = [json.loads(line) for line in trace.read_text().splitlines()]
    text = "".join(token["text"] for round_ in written for token in round_["tokens"])
    if as_json:
        report = json.loads(out)
        assert (report["finish_reason"], report["text"]) == ("cancelled", text)
    else:
        assert out.decode().rstrip("\n") == text
        assert b", cancelled" in err


def test_ctrl_c_during_the_load_ends_it(tiny_files: tuple[Path, Path], tmp_path: Path) -> None:
    """The engine sends the signal at the first progress, and loads until it is cancelled."""
    engine = engine_that(
        "import os, signal, time\n"
        "from eaglechat.engine.process import job_loop\n"
        "from eaglechat.wire.errors import LoadCancelledError\n"
        "def load(headers, options, progress):\n"
        "    os.kill(os.getppid(), signal.SIGINT)\n"
        "    while progress('target', 0.5):\n"
        "        time.sleep(0.01)\n"
        "    raise LoadCancelledError('the load was cancelled')\n"
        "job_loop.LoadedPair = load"
    )
    with process(["-m", "eaglechat", *command(tiny_files, *engine)], tmp_path) as running:
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 130
    assert out == b""
    assert b"Traceback" not in err


def test_a_reader_that_has_enough_ends_the_reply_quietly(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    with process(["-m", "eaglechat", *command(tiny_files)], tmp_path) as running:
        assert running.stdout is not None
        running.stdout.read(3)
        running.stdout.close()
        assert running.stderr is not None
        err = running.stderr.read()
        status = running.wait(PATIENCE_S)

    assert status == 1
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


def test_a_terminal_without_unicode_gets_the_reply_all_the_same(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    engine = engine_that(
        "from eaglechat.engine.llama.sampler import Sampler\n"
        f"ids = iter({[tiny.TOKENS.index(t) for t in ('a', 'Ã', '©', 'b')]})\n"
        "Sampler.sample = lambda *_: next(ids)"
    )
    arguments = command(tiny_files, "--no-speculation", "--max-tokens", "4", *engine)
    printed = []
    for how in ([], ["--json"]):
        with process(["-m", "eaglechat", *arguments, *how], tmp_path, **ASCII) as running:
            out, err = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 0, err
        printed.append(out)

    assert printed[0] == b"a?b\n"
    assert json.loads(printed[1])["text"] == "aéb"


def test_an_engine_that_dies_is_reported_with_the_end_of_its_log(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    arguments = command(tiny_files, *engine_that_dies_after(3))
    with process(["-m", "eaglechat", *arguments], tmp_path) as running:
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 1
    # What was written stays, on a line of its own.
    assert len(out) > 3
    assert out.endswith(b"\n")
    first, *log = err.decode().splitlines()
    assert first == ("eaglechat: the engine stopped by itself (signal 6); its log ends with:")
    assert "  GGML_ASSERT(n_outputs > 0) failed" in log
    assert "Traceback" not in err.decode()


def test_a_command_that_is_no_engine_says_what_it_was(eaglechat: Runner) -> None:
    # Not in this process: the fixture's engine is not what is asked for here.
    for engine, complaint in (
        ('["no-such-program", "x"]', "cannot start the engine with “no-such-program x”"),
        ('["sh", "-c", "echo no eaglechat here >&2; exit 3"]', "exit status 3"),
    ):
        ended = eaglechat("-o", f"engine.command={engine}", PROMPT, own_engine=False)
        assert (ended.status, complaint in ended.err) == (1, True), ended.err
    assert "  no eaglechat here" in ended.err


def test_an_engine_of_another_version_is_named(eaglechat: Runner) -> None:
    hello = json.dumps({"type": "hello", "protocol": 99, "eaglechat": "7.1", "llama_cpp": "b1"})
    says = json.dumps(["sh", "-c", f"echo '{hello[:-1]}, \"devices\": []}}'; sleep 60"])
    ended = eaglechat("-o", f"engine.command={says}", PROMPT, own_engine=False)

    assert (ended.status, ended.out) == (1, "")
    assert "the engine speaks version 99 of the protocol (eaglechat 7.1)" in ended.err


def test_only_the_engine_looks_at_the_files_of_an_engine_elsewhere(eaglechat: Runner) -> None:
    """Where its command starts it, there may be other files."""
    engine = engine_that("from eaglechat.engine.process import job_loop")
    pair = ("--target", "/models/not-here.gguf")
    ended = eaglechat(*engine, PROMPT, pair=pair, own_engine=False)

    assert ended.complaint == "the target /models/not-here.gguf does not exist"


def test_where_no_process_can_be_started_the_engine_runs_in_this_one(
    eaglechat: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    assert eaglechat(PROMPT, own_engine=False).status == 0


def test_a_long_prompt_is_shown_as_it_is_read_until_the_reply_begins(
    eaglechat: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PATIENCE_S", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    with redirect_stderr(terminal):
        ended = eaglechat("-o", "engine.n_batch=32", "the cat sat " * 30)

    assert ended.status == 0
    drawn = ["".join(frame) for frame in terminal.frames()]
    assert any("loading the target" in frame for frame in drawn)
    reading = [frame for frame in drawn if "reading the prompt" in frame]
    assert "of 332 tokens" in "".join(reading)
    assert "reading" not in drawn[-1]


def test_nothing_is_drawn_off_a_terminal(
    eaglechat: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "PATIENCE_S", 0.0)
    (summary,) = eaglechat("the cat sat " * 30).err.splitlines()
    assert summary.startswith("eaglechat: 40 tokens")
