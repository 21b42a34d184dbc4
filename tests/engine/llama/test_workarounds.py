"""What llama.cpp does without, asked by programs that have it in their own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eaglechat.engine.llama import workarounds
from eaglechat.engine.llama.objects import Model

ROOT = Path(__file__).parents[3]
LIBRARY = "eaglechat.engine.llama"
ASK = """
import json
from pathlib import Path
from eaglechat.engine.llama import objects, workarounds
print(json.dumps([workarounds.for_this_process(), objects.Model(Path({target!r})).left_out]))
"""
CRASHING = """
import os, signal, sys
from eaglechat.engine.llama import objects, workarounds
workarounds.has_amx = lambda: True
decode = objects.Context.decode
def crash(self, batch):
    if {cure!r} not in self.model.left_out:
        os.kill(os.getpid(), signal.SIGSEGV)
    return decode(self, batch)
objects.Context.decode = crash
"""


def asked(home: Path, target: Path, *, cure: str = "", **environment: str) -> list[list[str]]:
    """What a program that loads a model itself leaves out, on a machine where it crashes without
    `cure`: each Python that it starts runs `sitecustomize`, the probe too."""
    customised = home / "customised"
    customised.mkdir(exist_ok=True)
    code = CRASHING.format(cure=cure) if cure else ""
    (customised / "sitecustomize.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(target=str(target))],
        env={
            **{key: value for key, value in os.environ.items() if key != workarounds.VARIABLE},
            "EAGLECHAT_HOME": str(home),
            "PYTHONPATH": f"{customised}{os.pathsep}{ROOT}",
            **environment,
        },
        capture_output=True,
        check=True,
    )
    found: list[list[str]] = json.loads(done.stdout)
    return found


def test_what_this_machine_has_to_leave_out_is_found_and_remembered(
    tmp_path: Path, tiny_files: tuple[Path, Path]
) -> None:
    found, again = asked(tmp_path, tiny_files[0])
    # Some compilers break AMX (see `compiler`); nothing else is known to crash anywhere.
    assert found == again
    assert found in ([], ["amx"] if workarounds.has_amx() else [])
    (known,) = json.loads((tmp_path / "state" / "llama-cpp.json").read_text())
    assert known["left_out"] == found


@pytest.mark.parametrize(
    ("cure", "found"), [("amx", ["amx"]), ("extra_buffers", ["amx", "extra_buffers"])]
)
def test_child_processes_try_first_and_the_answer_is_remembered(
    tmp_path: Path, tiny_files: tuple[Path, Path], cure: str, found: list[str]
) -> None:
    assert asked(tmp_path, tiny_files[0], cure=cure) == [found, found]
    # Remembered: nothing has to crash for it any more.
    assert asked(tmp_path, tiny_files[0]) == [found, found]


def test_the_environment_says_it_for_all_processes(
    tmp_path: Path, tiny_files: tuple[Path, Path]
) -> None:
    given = {workarounds.VARIABLE: "flash_attention,nonsense"}
    assert asked(tmp_path, tiny_files[0], **given) == [["flash_attention"]] * 2
    assert not (tmp_path / "state").exists()


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


@pytest.mark.parametrize("names", ["amx", "extra_buffers", "amx,extra_buffers,flash_attention,gpu"])
def test_the_probe_computes_whatever_is_left_out(names: str) -> None:
    assert workarounds.probe(tuple(names.split(","))) is None  # type: ignore[arg-type]


def test_a_vocabulary_alone_computes_nothing(
    tiny_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def probed() -> tuple[str, ...]:
        raise AssertionError("a vocabulary needs no probe")

    monkeypatch.setattr(f"{LIBRARY}.workarounds.for_this_process", probed)
    with Model(tiny_files[0], vocabulary_only=True) as model:
        assert model.left_out == ()


@pytest.mark.parametrize("names", [("amx",), ("extra_buffers",), ("gpu",), ("flash_attention",)])
def test_the_command_that_mends_it_is_one_for_this_python(names: tuple[str, ...]) -> None:
    command = workarounds.mending_command(names)  # type: ignore[arg-type]
    assert f"{sys.executable} -m pip install" in command
    assert ("-mno-amx-tile" in command) == (names == ("amx",))
    assert "\n" not in command
