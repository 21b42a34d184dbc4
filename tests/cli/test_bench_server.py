"""`eaglechat bench --server`: replies as the server drafts them, beside plain ones where it can."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eaglechat.cli import main
from tests.links.http.fault_server import FaultServer, fault_server


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
    assert "speed-up" not in printed


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
    assert "--n does not go with --server" in capsys.readouterr().err
    assert main(["bench", "--server", "box", "--shape", "tree"]) == 2
    assert "--shape does not go with --server" in capsys.readouterr().err
