from __future__ import annotations

import os
from pathlib import Path

import pytest

from eaglechat.tui.services.desktop import put


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A desktop whose clipboard is a file."""
    if os.name != "posix":
        pytest.skip("a program of a desktop is made as a shell script")
    program = tmp_path / "xclip"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/clipboard\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("SSH_CONNECTION", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("sys.platform", "linux")
    return tmp_path


def test_a_desktop_says_whether_it_has_the_text(desktop: Path) -> None:
    assert put("für dich\n")
    assert (desktop / "clipboard").read_text(encoding="utf-8") == "für dich\n"


def test_a_program_that_fails_has_copied_nothing(desktop: Path) -> None:
    (desktop / "xclip").write_text("#!/bin/sh\nexit 1\n")
    assert not put("lost")


@pytest.mark.parametrize("name", ["SSH_CONNECTION", "no DISPLAY"])
def test_elsewhere_only_the_terminal_can_copy(
    desktop: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "no DISPLAY":
        monkeypatch.delenv("DISPLAY")
    else:
        monkeypatch.setenv(name, "1.2.3.4 5 6.7.8.9 22")
    assert not put("text")
    assert not (desktop / "clipboard").exists()
