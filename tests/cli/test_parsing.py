"""What is wrong with a command line: in one line, with what may have been meant."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from eaglechat.cli import COMMANDS, main, options
from eaglechat.wire.protocol import AUTO


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("rnu hi", "there is no command 'rnu'; did you mean run? (eaglechat --help)"),
        ("model.gguf", "there is no command 'model.gguf'; --pair and --target name a model"),
        ("--pear x", "there is no --pear; did you mean --pair? (eaglechat --help)"),
        ("--pair x run hi", "options of run go after it: eaglechat run ... (eaglechat --help)"),
        ("--json run hi", "options of run go after it: eaglechat run ... (eaglechat --help)"),
        ("run --temprature=1 x", "there is no --temprature=1; did you mean --temperature?"),
        ("run --zzz hi", "there is no --zzz (eaglechat run --help)"),
        ("run hello there", "'there' is one argument too many; quote what has spaces in it"),
        ("run", "the following arguments are required: PROMPT (eaglechat run --help)"),
        ("run --top 21 x", "argument --top: 21 must be between 0 and 20"),
        ("run --target= x", "argument --target: it is empty; name a model or its file"),
        ("prompt --temperature 1", "there is no --temperature"),
        ("train --target t -o d --budget 0.5", "argument --budget: '0.5' is neither a time"),
    ],
)
def test_one_line_says_what_is_wrong(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments.split())
    said = capsys.readouterr()
    assert (end.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith(f"eaglechat: {complaint}")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_usage_has_what_must_be_given_and_80_columns_hold_it(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: eaglechat {command}".rstrip() + " ")
    assert lines.index("") <= 2
    assert max(map(len, lines)) <= 80


def test_a_file_that_cannot_be_opened_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(b"\xff")
    for arguments, said in (
        (["prompt", "--reply", "/no/such"], "eaglechat: /no/such: No such file or directory\n"),
        (["prompt", "--template", str(odd)], f"eaglechat: {odd} is not text in UTF-8\n"),
        (["bench", "--prompts", str(odd)], f"eaglechat: {odd} is not text in UTF-8\n"),
    ):
        assert main(arguments) == 1
        assert capsys.readouterr().err == said


def test_a_draft_length_is_a_number_or_auto() -> None:
    draft_length = options.value_of("speculation", "n_draft_max")
    assert draft_length("auto") == AUTO
    assert draft_length("16") == 16
    with pytest.raises(argparse.ArgumentTypeError, match="between 0 and 16"):
        draft_length("17")
