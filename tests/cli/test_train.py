"""`eaglechat train` where torch is missing, or asked for nonsense."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from eaglechat import cli
from eaglechat.cli import train
from eaglechat.train import written
from eaglechat.train.settings import SELF_WRITTEN_TOKENS, RunSettings, TrainingError


def test_without_torch_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "find_spec", lambda _: None)

    status = cli.main(["train", "--target", "t.gguf", "-o", str(tmp_path / "d.gguf")])

    assert status == 1
    assert "pip install torch" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--budget", "soon"], "'soon' is neither a time such as 90m"),
        (["--budget", "0m"], "'0m' is neither"),
        (["--longest", "1"], "1 must be 8 or more"),
        (["--layers", "1,2"], "'1,2' is not three layers"),
    ],
)
def test_nonsense_is_named(
    flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--target", "t.gguf", "-o", "d.gguf", *flags])

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_defaults_are_those_of_a_run() -> None:
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    args = parser.parse_args(["--target", "t.gguf", "-o", "d.gguf"])

    settings = train.run_settings(args)

    assert settings == RunSettings(
        target=args.target,
        out=args.out,
        work=settings.work,
        self_written_tokens=SELF_WRITTEN_TOKENS,
        n_threads=settings.n_threads,
    )


def test_thinking_is_asked_for_as_in_run() -> None:
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    given = ([], ["--thinking", "on"], ["--no-thinking"])

    asked = [
        train.run_settings(
            parser.parse_args(["--target", "t.gguf", "-o", "d.gguf", *flags])
        ).thinking
        for flags in given
    ]

    assert [thinking.enabled for thinking in asked] == [None, True, False]


@pytest.mark.parametrize(
    ("text", "tokens", "seconds"),
    [
        ("90m", None, 5400.0),
        ("1.5h", None, 5400.0),
        ("30s", None, 30.0),
        ("2000000", 2_000_000, None),
    ],
)
def test_a_budget_is_a_time_or_tokens(text: str, tokens: int | None, seconds: float | None) -> None:
    budget = train.parse_budget(text)

    assert (budget.tokens, budget.seconds) == (tokens, seconds)


@pytest.mark.parametrize(
    ("output", "report", "work"),
    [
        ("d.gguf", "d.md", "d.training"),
        ("draft-v1.2", "draft-v1.2.md", "draft-v1.2.training"),
        ("draft-v1.2.gguf", "draft-v1.2.md", "draft-v1.2.training"),
    ],
)
def test_only_what_a_run_in_this_folder_wrote_is_replaced(
    tmp_path: Path, output: str, report: str, work: str
) -> None:
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    given = ["--target", str(tmp_path / "t.gguf"), "-o", str(tmp_path / output)]
    asked = train.run_settings(parser.parse_args(given))
    assert (asked.work, asked.report) == (tmp_path / work, tmp_path / report)
    asked.work.mkdir()
    for file in (asked.out, asked.report):
        written.check(asked.work, (asked.out, asked.report))
        file.write_text("somebody else's\n")
        with pytest.raises(TrainingError, match="exists, and no run in"):
            written.check(asked.work, (asked.out, asked.report))
        written.note(asked.work, file)
    written.check(asked.work, (asked.out, asked.report))
    asked.report.write_text("with my notes\n")
    with pytest.raises(TrainingError, match=f"{report} exists"):
        written.check(asked.work, (asked.out, asked.report))
