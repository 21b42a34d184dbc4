"""What commands that run a pair share."""

from __future__ import annotations

import os
import signal

import pytest

from eaglechat.cli.loading import Interrupt


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
