"""What llama.cpp does without on this machine, before any crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eaglechat import machine
from eaglechat.cli import main
from eaglechat.engine.llama import workarounds
from eaglechat.engine.llama.objects import Model

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(workarounds.VARIABLE, raising=False)
    monkeypatch.setattr(workarounds, "for_every_model", workarounds.for_every_model.__wrapped__)


@pytest.mark.parametrize(
    ("flags", "compiler", "broken"),
    [
        ("fpu amx_tile", "GCC: (Debian 12.2.0-14+deb12u1) 12.2.0", "12.2.0"),
        ("fpu amx_tile", "GCC: (GNU) 13.1.1", "13.1.1"),
        ("fpu amx_tile", "GCC: (GNU) 13.2.0", None),
        ("fpu amx_tile", "clang version 12.0.0", None),
        ("fpu avx512f", "GCC: (GNU) 12.2.0", None),
    ],
)
def test_amx_is_left_out_where_the_compiler_breaks_it_before_anything_crashes(  # noqa: PLR0917
    tmp_path: Path,
    tiny_files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: str,
    compiler: str,
    broken: str | None,
) -> None:
    library = tmp_path / "libggml-cpu.so"
    library.write_bytes(b"\x7fELF\0" + compiler.encode() + b"\0")
    monkeypatch.setattr(machine, "cpu_info", {"flags": flags}.__getitem__)
    monkeypatch.setattr(workarounds, "library_files", lambda: [library])

    assert workarounds.compiler_that_breaks_amx() == broken
    with Model(tiny_files[0]) as model:
        assert model.left_out == (("amx",) if broken else ())
    main(["doctor"])
    said = " ".join(capsys.readouterr().out.split())
    assert (f"GCC {broken}, which compiled it, breaks AMX" in said) == (broken is not None)
    assert (f"{sys.executable} -m pip install" in said) == (broken is not None)


def test_the_environment_says_what_is_left_out(
    tiny_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(workarounds.VARIABLE, "flash_attention,nonsense")
    with Model(tiny_files[0]) as model:
        assert model.left_out == ("flash_attention",)


@pytest.mark.skipif(sys.platform != "linux", reason="AMX is refused by Linux")
def test_the_signal_stack_is_as_before_a_load_without_amx(tiny_files: tuple[Path, Path]) -> None:
    """A signal stack that is too small for AMX stays with nobody: Python's own is there again."""
    code = (
        "import faulthandler, os, signal, sys\n"
        "from pathlib import Path\n"
        "faulthandler.enable()\n"
        "from eaglechat.engine.llama.objects import Model\n"
        f"model = Model(Path({str(tiny_files[0])!r}))\n"
        "assert model.left_out == ('amx',)\n"
        "print('loaded', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, workarounds.VARIABLE: "amx"},
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"loaded\n"
    assert b"Fatal Python error: Segmentation fault" in done.stderr
