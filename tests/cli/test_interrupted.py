"""Ctrl+C at any moment, the first ones too, ends a command without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from eaglechat.cli.loading import Interrupt

INTERRUPT_AT = """
import os, runpy, signal, sys
class Hook:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Hook())
sys.argv[1:] = ["models"]
runpy.run_module("eaglechat", run_name="__main__")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is sent otherwise there")
@pytest.mark.parametrize(
    "module",
    ["eaglechat.cli", "eaglechat.hub.catalogue"],
)
def test_ctrl_c_while_the_program_is_read_is_no_traceback(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT_AT.format(module=module)],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_ctrl_c_ends_the_program_and_what_it_has_open(number: signal.Signals) -> None:
    """Not by force: bars are taken off the screen, an engine that does not listen is killed."""
    before = signal.getsignal(number)
    with Interrupt() as interrupt:
        os.kill(os.getpid(), number)
        assert interrupt.happened
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
