"""Engines in processes, beside what every link does (test_contract.py): ours, and those that die,
hang, say what nobody understands, or never start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from eaglechat.links import process as process_module
from eaglechat.links.base import ENGINE_DIED
from eaglechat.links.process import ProcessLink
from eaglechat.wire import protocol as p
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import decode_event, encode
from eaglechat.wire.records import FinishReason
from eaglechat.wire.worker import Died
from tests import tiny
from tests.engine_client import Client, load
from tests.links.engines import ENGINE, USER, chat
from tests.waiting import PATIENCE_S, until


def test_a_session_from_hello_to_shutdown(
    start: Callable[..., Client], tiny_files: tuple[Path, Path]
) -> None:
    client = start()
    assert "llama-cpp-python" in client.ready().llama_cpp

    pair = client.expect(p.Loaded, load(tiny_files, n_ctx=512)).pair
    assert (pair.n_ctx, pair.n_threads, pair.speculation_off) == (512, 1, None)
    assert pair.drafter is not None
    assert pair.drafter.layers == tiny.TARGET_LAYERS

    reply = client.answer(chat(speculation=p.Speculation(n_draft_max=2)))
    assert reply.last.stats.accepted > 0

    answer = p.Message(role="assistant", content="x" + reply.text + reply.last.end.tail)
    messages = (USER, answer, p.Message(role="user", content="and"))
    timings = client.answer(chat(messages=messages)).last.end.timings
    assert timings.reused_tokens > 40
    assert timings.prefill_tokens < 12

    process = client.process
    client.link.hand_over(p.Shutdown())
    assert client.death().exit_status == 0
    assert not process.is_running()


def test_a_template_that_never_ends_can_be_cancelled(
    start: Callable[..., Client], tmp_path: Path
) -> None:
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    asked = "{% if 'endlessly' in messages[-1].content %}" + endless + "{% endif %}"
    target = tiny.write_target(tmp_path / "endless.gguf", template=asked + tiny.TEMPLATE)
    client = start()
    client.answer(load((target, None)))
    reply = client.ask(chat(messages=(p.Message(role="user", content="endlessly"),)))
    client.link.send(p.Cancel())
    client.end(reply)
    assert reply.last.end.finish_reason is FinishReason.CANCELLED
    assert client.answer(chat()).last.end.finish_reason is FinishReason.LENGTH


def test_bad_requests_are_answered_in_a_sentence_and_the_engine_lives_on(
    start: Callable[..., Client], tiny_files: tuple[Path, Path]
) -> None:
    client = start()
    process = client.process
    for files, why in (
        ((Path("~nobody-of-this-name/x.gguf"), None), "does not exist"),
        ((tiny_files[1], tiny_files[0]), "swapped"),
    ):
        refused = client.answer(load(files)).last
        assert (refused.code, why in refused.message) == ("preflight", True)

    client.answer(load(tiny_files, n_ctx=256))
    long = (p.Message(role="user", content="long " * 400),)
    too_long = client.answer(chat(messages=long)).last
    assert (too_long.code, "the context holds 256" in too_long.message) == ("prompt", True)
    client.expect(p.Done, chat())
    assert process.is_running()


def test_the_engine_ends_with_its_client(tiny_files: tuple[Path, Path], tmp_path: Path) -> None:
    """In the middle of a reply too: the end of its input is the end of its client."""
    requests = load(tiny_files, n_ctx=1 << 16), chat(id=2, max_tokens=None)
    environment = {**os.environ}
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            ENGINE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"".join(map(encode, requests)))
        process.stdin.flush()
        while b'"type":"round"' not in process.stdout.readline():
            pass

        rest, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0
    # Nothing but events on its standard output, whatever llama.cpp says.
    *_, last = [decode_event(line) for line in rest.splitlines()]
    assert isinstance(last, p.Done)
    assert last.end.finish_reason is FinishReason.CANCELLED
    assert "llama" in (tmp_path / "log").read_text()


def test_an_engine_that_reads_nothing_holds_up_neither_a_request_nor_a_quit(
    start: Callable[..., Client], tmp_path: Path
) -> None:
    """More is sent than a pipe holds to a process that sleeps."""
    client = start(["sleep", "3600"])
    process = client.process
    long_chat = chat(messages=(p.Message(role="user", content="x" * 2_000_000),))
    done: list[bool] = []

    def send_and_close() -> None:
        client.ask(long_chat)
        client.link.close(patience_s=0.1)
        done.append(not process.is_running())

    thread = threading.Thread(target=send_and_close, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)

    assert done == [True]


def log_of_load(client: Client, files: tuple[Path, Path], folder: Path) -> str:
    """The engine's log after a load, before which the client heard only its hello."""
    hello = client.ready()
    assert client.heard == [hello]
    client.expect(p.Loaded, load(files))
    return (folder / "log" / "engine.log").read_text()


def test_native_output_does_not_reach_the_pipe(
    start: Callable[..., Client], tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    """Printed by C and by Python, before and after the events' pipe is made."""
    noisy = (
        "import ctypes, sys;"
        "from eaglechat.engine import process;"
        "from eaglechat.engine.llama import backend;"
        "start = backend.start_backend;"
        "libc = ctypes.CDLL(None);"
        "say = lambda level: (start(level), libc.puts(b'native noise'), libc.fflush(None),"
        " print('python noise', flush=True));"
        "backend.start_backend = say;"
        "sys.exit(process.main())"
    )
    client = start([sys.executable, "-c", noisy])

    log = log_of_load(client, tiny_files, tmp_path)
    assert "native noise" in log
    assert "python noise" in log
    assert "not an engine message" not in log


def test_a_remote_shell_s_greeting_is_skipped_and_kept_in_the_log(
    start: Callable[..., Client], tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    greeting = 'echo "Welcome to gpu-box"; echo "{}"; echo before >&2; exec "$@"'
    client = start(["sh", "-c", greeting, "sh", *ENGINE])

    log = log_of_load(client, tiny_files, tmp_path)
    assert "not an engine message: Welcome to gpu-box\n" in log
    assert "before\n" in log
    assert "llama_model_loader" in log


def says(*lines: str) -> list[str]:
    """A program that reads a request and then says some lines."""
    return ["sh", "-c", 'read request; for line in "$@"; do echo "$line"; done', "sh", *lines]


@pytest.mark.parametrize(
    "line",
    [
        '{"type": "done", "id": 1}',
        '{"type": "song", "id": 1, "text": "la"}',
        '{"type": "loading", "id": 1, "stage": "x", "fraction": "half"}',
    ],
)
def test_an_answer_that_is_not_understood_fails_its_request(
    start: Callable[..., Client], line: str
) -> None:
    client = start(says("[" * 100_000, '{"type": "done"', "\udcff", line))
    asked = client.answer(chat())

    assert (asked.last.id, asked.last.code) == (asked.id, "protocol")
    assert asked.last.message.startswith("the engine's answer is not understood: ")
    assert client.death().exit_status == 0


def test_a_path_that_is_no_utf_8_is_refused_in_words(start: Callable[..., Client]) -> None:
    client = start(["sleep", "3600"])
    asked = client.answer(p.Load(target=os.fsdecode(b"/models/caf\xe9.gguf")))

    assert asked.last.message == (
        "the request cannot be sent: “/models/caf\\udce9.gguf” is not text in UTF-8"
    )


def test_an_engine_that_can_say_nothing_more_is_dead(
    start: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "SILENT_S", 0.1)
    client = start(["sh", "-c", "exec >&-; echo still here >&2; exec sleep 3600"])
    asked = client.answer(chat())

    died = client.death()
    assert (died.exit_status, died.log_tail) == (-signal.SIGKILL, ("still here",))
    assert asked.last.code == ENGINE_DIED


def test_ctrl_c_in_the_terminal_is_not_for_the_engine(start: Callable[..., Client]) -> None:
    """From its first moment: it may be a program that knows nothing of it, such as ssh."""
    ask = "import signal, sys; print(signal.getsignal(signal.SIGINT).name, file=sys.stderr)"
    before = signal.getsignal(signal.SIGINT)
    client = start([sys.executable, "-c", ask])

    assert client.death().log_tail == ("SIG_IGN",)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_full_disk_costs_the_log_and_nothing_else(
    start: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    monkeypatch.setattr(process_module, "open_log", lambda _path: full.open("a+b", buffering=0))
    client = start(says("Welcome to gpu-box", '{"type": "unloaded", "id": 1}'))
    unload = client.answer(p.Unload())

    assert unload.last == p.Unloaded(id=unload.id)
    assert client.death().exit_status == 0


def test_a_command_that_does_not_exist_says_so(start: Callable[..., Client]) -> None:
    with pytest.raises(EngineError, match="cannot start the engine with “no-such-program x”"):
        start(["no-such-program", "x"])


@pytest.mark.parametrize("can_log", [True, False])
def test_a_command_that_ends_at_once_dies_with_what_it_said(
    start: Callable[..., Client], tmp_path: Path, *, can_log: bool
) -> None:
    if not can_log:
        (tmp_path / "log").write_text("a file where a folder should be")
    client = start(["sh", "-c", "echo no eaglechat here >&2; exit 127"])

    why = "the engine stopped by itself (exit status 127)"
    client.death()
    assert client.heard == [Died(127, ("no eaglechat here",), why)]


def test_each_of_two_engines_keeps_its_own_log(tmp_path: Path) -> None:
    """Two eaglechats have one engine.log: the later one takes the name, not the lines."""
    links = []
    for word in ("first", "second"):
        code = f"import sys; print('said by the {word}', file=sys.stderr); sys.stdin.read()"
        links.append(ProcessLink([sys.executable, "-c", code], tmp_path / "engine.log"))
        links[-1].start()
        wait_for_log(links[-1])
    tails = [link.log_tail() for link in links]
    for link in links:
        link.close()

    assert tails == [("said by the first",), ("said by the second",)]
    assert (tmp_path / "engine.log").read_text() == "said by the second\n"
    assert [path.name for path in tmp_path.iterdir()] == ["engine.log"]


def wait_for_log(link: ProcessLink) -> None:
    until(link.log_tail, "a line in the log")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process without asking it")
def test_sigterm_ends_a_reply_and_the_engine(
    start: Callable[..., Client], tiny_files: tuple[Path, Path]
) -> None:
    client = start()
    client.answer(load(tiny_files, n_ctx=1 << 16))
    reply = client.ask(chat(max_tokens=None))
    client.until(lambda: reply.rounds, "a round")
    client.process.terminate()

    # What was being written has an end, before the process has one.
    client.end(reply)
    assert reply.last.end.finish_reason is FinishReason.CANCELLED
    assert client.death().exit_status == 128 + signal.SIGTERM
