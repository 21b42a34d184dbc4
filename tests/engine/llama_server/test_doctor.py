"""The doctor finds a llama-server, offers it, and says what it cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglechat.cli import main
from tests.engine.llama_server.program import write_program


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EAGLECHAT_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "config").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    return tmp_path


def doctor(capsys: pytest.CaptureFixture[str]) -> str:
    main(["doctor"])
    return " ".join(capsys.readouterr().out.split())


def test_one_on_the_path_is_offered(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(home / "bin"), prepend=":")
    assert "llama-server none on the PATH" in doctor(capsys)
    program = write_program(home / "bin", "hang")
    shown = doctor(capsys)
    assert f"llama-server {program}: version: 1.2.3 (abcdef)" in shown
    assert f'[engine] llama_server = "{program}"' in shown
    write_program(home / "bin", "crash")
    assert "too old to draft with EAGLE-3" in doctor(capsys)


def test_the_one_of_the_settings_is_judged(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = write_program(home / "bin", "hang")
    config = home / "home" / "config" / "config.toml"
    config.write_text(f'[engine]\nllama_server = "{program}"\n')
    assert "runs the pairs (engine.llama_server)" in doctor(capsys)
    write_program(home / "bin", "crash")
    assert f"{program} (engine.llama_server) cannot draft with EAGLE-3" in doctor(capsys)
    program.unlink()
    assert f"no pair would load: there is no program {program}" in doctor(capsys)
