"""What `eaglechat run` refuses, in a sentence and with a status."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from eaglechat.cli import main
from tests import tiny
from tests.cli.run.running import (
    PROMPT,
    Runner,
)


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
