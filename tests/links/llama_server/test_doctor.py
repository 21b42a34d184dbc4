"""The doctor finds a llama-server, offers it, and says what it cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglechat.cli import main
from tests.links.llama_server.program import write_program
from tests.rpc.fake_server import GIB, serving


@pytest.fixture(autouse=True)
def folders(home: Path) -> None:
    (home / "eaglechat" / "config").mkdir(parents=True)
    (home / "bin").mkdir()


def doctor(capsys: pytest.CaptureFixture[str]) -> str:
    main(["doctor"])
    return " ".join(capsys.readouterr().out.split())


def test_one_on_the_path_is_offered(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(home / "bin"), prepend=":")
    assert "llama-server none on the PATH: eaglechat's own engine runs the pairs" in doctor(capsys)
    program = write_program(home / "bin", "hang")
    shown = doctor(capsys)
    assert f"llama-server {program}: version: 1.2.3 (abcdef)" in shown
    assert "A Card (24 GB): 24.1 GB free of 25.2 GB" in shown
    assert f'[engine] llama_server = "{program}"' in shown
    assert "drafts with EAGLE-3, MTP heads, DFlash, DSpark and draft models" in shown
    assert "too old" not in shown
    write_program(home / "bin", "june")
    shown = doctor(capsys)
    assert "drafts with EAGLE-3 and draft models" in shown
    assert "too old to draft with MTP heads, DFlash and DSpark" in shown
    assert f'[engine] llama_server = "{program}"' in shown
    write_program(home / "bin", "old")
    assert "too old to draft with EAGLE-3, MTP heads, DFlash, DSpark and draft" in doctor(capsys)
    write_program(home / "bin", "stranger")
    shown = doctor(capsys)
    assert f"on the PATH, but cannot be used: {program} is not a llama-server" in shown
    assert "would load" not in shown


def choose(home: Path, program: Path, more: str = "") -> None:
    config = home / "eaglechat" / "config" / "config.toml"
    config.write_text(f'[engine]\nllama_server = "{program}"\n{more}')


def test_the_one_of_the_settings_is_judged(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = write_program(home / "bin", "hang")
    choose(home, program)
    assert "runs the pairs (engine.llama_server)" in doctor(capsys)
    write_program(home / "bin", "june")
    shown = doctor(capsys)
    assert "too old to draft with MTP heads" in shown
    assert "Nothing is wrong." in shown
    write_program(home / "bin", "old")
    shown = doctor(capsys)
    assert f"no pair with a draft would load: {program} is too old to draft" in shown
    assert "install a newer one" in shown


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("stranger", "is not a llama-server: “--help” lists none of its options"),
        ("missing", "there is no program "),
        ("folder", "is a folder: name the llama-server in it"),
        ("text", "may not be executed: make it executable (chmod +x)"),
    ],
)
def test_what_is_none_is_named_with_what_to_do(
    home: Path, capsys: pytest.CaptureFixture[str], what: str, why: str
) -> None:
    program = home / "bin" / "llama-server"
    if what == "stranger":
        write_program(home / "bin", "stranger")
    elif what == "folder":
        program.mkdir()
    elif what == "text":
        program.write_text("nothing to run")
    choose(home, program)
    shown = doctor(capsys)
    assert "no pair would load: " in shown
    assert why in shown
    assert "Change engine.llama_server, or empty it: then eaglechat's own engine runs" in shown


def test_rpc_is_wanted_of_the_program_that_runs_the_pairs(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """eaglechat's own llama.cpp needs none then."""
    program = write_program(home / "bin", "hang")
    with serving([(3 * GIB, 4 * GIB)]) as endpoint:
        choose(home, program, f'rpc_servers = ["{endpoint}"]\n')
        shown = doctor(capsys)
        assert "RPC0: 3.2 GB free of 4.3 GB" in shown
        assert "needs a llama-cpp-python" not in shown
        assert "Nothing is wrong." in shown
        assert " of 3.2 GB free" in shown
        write_program(home / "bin", "old")
        assert f"no pair would load: {program} was built without RPC" in doctor(capsys)
