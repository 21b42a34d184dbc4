"""What `run` refuses, and what the end of an engine, Ctrl+C or a closed pipe leaves of a reply."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from eaglechat.cli import loading, main
from tests import tiny
from tests.cli.engines import engine_that, engine_that_dies_after, engine_that_takes_its_time
from tests.cli.redrawn import Terminal
from tests.cli.run.running import ASCII, PROMPT, Runner, command, process
from tests.waiting import PATIENCE_S, until


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
    assert "options of run go after it" in capsys.readouterr().err


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
        (("--pair", "qwen3-4"), "lists; did you mean qwen3-4b?"),
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_the_trace_s(eaglechat: Runner) -> None:
    ended = eaglechat("--trace", "/dev/full", PROMPT)

    assert ended.status == 1
    assert "eaglechat: /dev/full cannot be written: No space left on device" in ended.err


def test_a_bad_setting_is_named_and_the_reply_comes(eaglechat: Runner, home: Path) -> None:
    config = home / "eaglechat" / "config" / "config.toml"
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


def test_json_keeps_what_had_come_before_the_engine_died(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    arguments = command(tiny_files, "--json", *engine_that_dies_after(3))
    with process(["-m", "eaglechat", *arguments], tmp_path) as running:
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 1
    report = json.loads(out)
    assert report["finish_reason"] == "error"
    assert report["error"].startswith("the engine stopped by itself (signal 6, SIGABRT)")
    assert report["text"]
    assert report["speculation"]["rounds"] == 3
    assert report["tokens"] >= 3
    assert report["timings"]["tokens_per_second"] is None
    assert err.startswith(b"eaglechat: the engine stopped by itself")


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
    assert first == (
        "eaglechat: the engine stopped by itself (signal 6, SIGABRT); its log ends with:"
    )
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
    engine = engine_that("from eaglechat.engine import process")
    pair = ("--target", "/models/not-here.gguf")
    ended = eaglechat(*engine, PROMPT, pair=pair, own_engine=False)

    assert ended.complaint == "the target /models/not-here.gguf does not exist"


def test_where_no_process_can_be_started_that_is_said(
    eaglechat: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    ended = eaglechat(PROMPT, own_engine=False)

    assert ended.status == 1
    assert ended.complaint.startswith("cannot start the engine with “/no/such/python ")


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


@pytest.mark.parametrize(
    ("as_json", "number"),
    [
        pytest.param(False, signal.SIGINT, id="text"),
        pytest.param(True, signal.SIGTERM, id="terminated"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="no process groups")
def test_ctrl_c_during_generation_keeps_what_was_written(
    tiny_files: tuple[Path, Path], tmp_path: Path, as_json: bool, number: signal.Signals
) -> None:
    trace = tmp_path / "trace"
    how = [*engine_that_takes_its_time(), *(["--json"] if as_json else [])]
    arguments = ["--trace", str(trace), *how]
    with process(["-m", "eaglechat", *command(tiny_files, *arguments)], tmp_path) as running:
        until(lambda: running.poll() is not None or (trace.exists() and trace.stat().st_size))
        # To the engine too, as a terminal and `timeout` do.
        os.killpg(running.pid, number)
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
        assert b", stopped" in err


def test_ctrl_c_during_the_load_ends_it(tiny_files: tuple[Path, Path], tmp_path: Path) -> None:
    """The engine sends the signal at the first progress, and loads until it is cancelled."""
    engine = engine_that(
        "import os, signal, time\n"
        "from eaglechat.engine import process\n"
        "from eaglechat.wire.errors import Cancelled\n"
        "def load(headers, options, progress, leave_out):\n"
        "    os.kill(os.getppid(), signal.SIGINT)\n"
        "    while progress('target', 0.5):\n"
        "        time.sleep(0.01)\n"
        "    raise Cancelled('the load was cancelled')\n"
        "process.LoadedPair = load"
    )
    with process(["-m", "eaglechat", *command(tiny_files, *engine)], tmp_path) as running:
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 130
    assert out == b""
    assert b"Traceback" not in err


def test_a_reader_that_has_enough_ends_the_reply_quietly(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    arguments = command(tiny_files, *engine_that_takes_its_time())
    with process(["-m", "eaglechat", *arguments], tmp_path) as running:
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
