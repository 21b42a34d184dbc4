"""The command on the tiny pair."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from eaglechat.cli import loading, main
from eaglechat.cli.loading import start_engine
from tests.cli.run.running import (
    Ended,
    Runner,
    in_this_process,
)


@pytest.fixture
def eaglechat(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tiny_files: tuple[Path, Path],
) -> Runner:
    """Runs `eaglechat run` on the tiny pair, with the engine in this process, which saves time."""
    # Whether drafting pays on so small a pair is a matter of chance: it drafts in any case.
    pair = ("--target", str(tiny_files[0]), "--draft", str(tiny_files[1]), "--n-draft-max", "3")

    def run(
        *arguments: str,
        pair: Sequence[str] = pair,
        stdin: bytes = b"",
        own_engine: bool = True,
    ) -> Ended:
        """`own_engine`: the one in this process, whatever is asked for."""
        start = in_this_process if own_engine else start_engine
        monkeypatch.setattr(loading, "start_engine", start)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        defaults = ("--temperature", "0", "--threads", "1", "--max-tokens", "40")
        try:
            status = main(["run", *pair, *defaults, *arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        sys.stdout.flush()
        return Ended(status, *capfd.readouterr())

    return run
