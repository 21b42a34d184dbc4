"""`eaglechat run` as a process: Ctrl+C, pipes, terminals."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests import tiny
from tests.cli.engines import engine_that, engine_that_takes_its_time
from tests.cli.run.running import (
    ASCII,
    command,
    process,
)
from tests.waiting import PATIENCE_S, until


@pytest.mark.parametrize(
    ("as_json", "number"),
    [
        pytest.param(False, signal.SIGINT, id="text"),
        pytest.param(True, signal.SIGTERM, id="terminated"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="no process groups")
def test_ctrl_c_during_generation_keeps_what_was_written(
    tiny_files: tuple[Path, Path], tmp_path: Path, as_json: bool, number: signal.Signals
) -> None:
    trace = tmp_path / "trace"
    how = [*engine_that_takes_its_time(), *(["--json"] if as_json else [])]
    arguments = ["--trace", str(trace), *how]
    with process(["-m", "eaglechat", *command(tiny_files, *arguments)], tmp_path) as running:
        until(lambda: running.poll() is not None or (trace.exists() and trace.stat().st_size))
        # To the engine too, as a terminal and `timeout` do.
        os.killpg(running.pid, number)
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 130
    assert b"Traceback" not in err
    written = [json.loads(line) for line in trace.read_text().splitlines()]
    text = "".join(token["text"] for round_ in written for token in round_["tokens"])
    if as_json:
        report = json.loads(out)
        assert (report["finish_reason"], report["text"]) == ("cancelled", text)
    else:
        assert out.decode().rstrip("\n") == text
        assert b", stopped" in err


def test_ctrl_c_during_the_load_ends_it(tiny_files: tuple[Path, Path], tmp_path: Path) -> None:
    """The engine sends the signal at the first progress, and loads until it is cancelled."""
    engine = engine_that(
        "import os, signal, time\n"
        "from eaglechat.engine.process import pair_worker\n"
        "from eaglechat.wire.errors import Cancelled\n"
        "def load(headers, options, progress, leave_out):\n"
        "    os.kill(os.getppid(), signal.SIGINT)\n"
        "    while progress('target', 0.5):\n"
        "        time.sleep(0.01)\n"
        "    raise Cancelled('the load was cancelled')\n"
        "pair_worker.LoadedPair = load"
    )
    with process(["-m", "eaglechat", *command(tiny_files, *engine)], tmp_path) as running:
        out, err = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 130
    assert out == b""
    assert b"Traceback" not in err


def test_a_reader_that_has_enough_ends_the_reply_quietly(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    arguments = command(tiny_files, *engine_that_takes_its_time())
    with process(["-m", "eaglechat", *arguments], tmp_path) as running:
        assert running.stdout is not None
        running.stdout.read(3)
        running.stdout.close()
        assert running.stderr is not None
        err = running.stderr.read()
        status = running.wait(PATIENCE_S)

    assert status == 1
    assert b"Traceback" not in err
    assert b"Exception ignored" not in err


def test_a_terminal_without_unicode_gets_the_reply_all_the_same(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    engine = engine_that(
        "from eaglechat.engine.llama.sampler import Sampler\n"
        f"ids = iter({[tiny.TOKENS.index(t) for t in ('a', 'Ã', '©', 'b')]})\n"
        "Sampler.sample = lambda *_: next(ids)"
    )
    arguments = command(tiny_files, "--no-speculation", "--max-tokens", "4", *engine)
    printed = []
    for how in ([], ["--json"]):
        with process(["-m", "eaglechat", *arguments, *how], tmp_path, **ASCII) as running:
            out, err = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 0, err
        printed.append(out)

    assert printed[0] == b"a?b\n"
    assert json.loads(printed[1])["text"] == "aéb"
