"""An engine that crashes in a load starts again and leaves something out, until it loads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from eaglechat.engine.llama.workarounds import VARIABLE
from eaglechat.links.base import Starting
from eaglechat.wire import protocol as p
from eaglechat.wire.left_out import LADDER
from tests.engine_client import Client, engine_process, load

STEPS = tuple(LADDER)
Start = Callable[..., Client]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts an engine that crashes."""
    monkeypatch.delenv(VARIABLE, raising=False)
    clients: list[Client] = []

    def begin(signal: str, when: str, cure: str) -> Client:
        engine = [sys.executable, "-m", "tests.crashing_engine", signal, when, cure]
        clients.append(engine_process([*engine, str(tmp_path / "loads")], tmp_path / "log"))
        return clients[-1]

    yield begin
    for client in clients:
        client.link.close()


def loads(folder: Path) -> list[tuple[str, ...]]:
    """What was left out in each load of a target, in order."""
    lines = (folder / "loads").read_text().splitlines()
    found = [tuple(filter(None, line.split(","))) for line in lines]
    # Target and draft are loaded alike; a crash at the target's load has none for the draft.
    return [one for index, one in enumerate(found) if index == 0 or one != found[index - 1]]


@pytest.mark.parametrize(
    "crash",
    [
        pytest.param(crash, marks=[pytest.mark.slow] * (crash[2] != "gpu"))
        for crash in zip(
            ("SIGSEGV", "SIGABRT", "SIGSEGV", "SIGILL"),
            ("1", "10", "load", "load"),
            STEPS,
            strict=True,
        )
    ],
)
def test_a_crash_ends_once_what_causes_it_is_left_out(
    start: Start, tiny_files: tuple[Path, Path], tmp_path: Path, crash: tuple[str, str, str]
) -> None:
    signal, when, cure = crash
    client = start(signal, when, cure)
    loaded = client.answer(load(tiny_files)).last

    needed = STEPS[: STEPS.index(cure) + 1]
    assert isinstance(loaded, p.Loaded)
    assert loaded.pair.left_out == needed
    again = client.latest.of(p.Restarting)
    assert [(event.crash, event.leave_out) for event in again] == [
        (signal, needed[:count]) for count in range(1, len(needed) + 1)
    ]
    assert loads(tmp_path) == [needed[:count] for count in range(len(needed) + 1)]
    assert client.died is None


def test_what_worked_is_remembered_and_the_second_start_does_not_crash(
    start: Start, tiny_files: tuple[Path, Path], tmp_path: Path, home: Path
) -> None:
    start("SIGSEGV", "1", "amx").answer(load(tiny_files))
    (tmp_path / "loads").unlink()

    client = start("SIGSEGV", "1", "amx")
    loaded = client.answer(load(tiny_files)).last

    assert isinstance(loaded, p.Loaded)
    assert loaded.pair.left_out == STEPS[:1]
    assert client.link.hello is not None
    assert client.link.hello.left_out == STEPS[:1]
    assert loads(tmp_path) == [STEPS[:1]]

    # Another llama.cpp tries everything again.
    memory = home / "eaglechat" / "state" / "llama-cpp.json"
    (kept,) = msgspec.json.decode(memory.read_bytes())
    memory.write_bytes(msgspec.json.encode([{**kept, "library": "0.3.99 of another build"}]))
    (tmp_path / "loads").unlink()

    start("SIGSEGV", "1", "amx").answer(load(tiny_files))

    assert loads(tmp_path) == [(), ("amx",)]


def test_a_memory_that_is_no_json_is_none(
    start: Start, tiny_files: tuple[Path, Path], tmp_path: Path, home: Path
) -> None:
    memory = home / "eaglechat" / "state" / "llama-cpp.json"
    memory.parent.mkdir(parents=True)
    memory.write_bytes(b"[" * 100_000)

    loaded = start("SIGSEGV", "1", "amx").answer(load(tiny_files)).last

    assert isinstance(loaded, p.Loaded)
    assert loaded.pair.left_out == ("amx",)


def test_a_setting_of_the_users_is_kept_and_named_as_the_likely_cause(
    start: Start, tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    client = start("SIGSEGV", "1", "flash_attention")
    answer = client.answer(load(tiny_files, flash_attention="on", n_gpu_layers=7)).last

    assert isinstance(answer, p.Error)
    assert "engine.flash_attention = on, engine.n_gpu_layers = 7" in answer.message
    assert "without AMX and repacked weights too" in answer.message
    assert loads(tmp_path) == [(), STEPS[:1], STEPS[:2]]
    assert client.died is not None


def test_an_engine_that_always_crashes_says_so_and_nothing_is_remembered(
    start: Start, tiny_files: tuple[Path, Path], tmp_path: Path, home: Path
) -> None:
    client = start("SIGILL", "2", "nothing that can be left out")
    answer = client.answer(load(tiny_files)).last

    assert isinstance(answer, p.Error)
    assert "SIGILL" in answer.message
    assert "built for a CPU with instructions that yours lacks" in answer.message
    assert "pip install --force-reinstall --no-deps --no-binary" in answer.message
    assert loads(tmp_path) == [STEPS[:count] for count in range(5)]
    assert not (home / "eaglechat" / "state" / "llama-cpp.json").exists()


@pytest.mark.parametrize("signal", ["SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.slow)])
def test_an_engine_that_somebody_ends_is_not_started_again(
    start: Start, tiny_files: tuple[Path, Path], tmp_path: Path, signal: str
) -> None:
    client = start(signal, "load", "amx")
    answer = client.answer(load(tiny_files)).last

    assert isinstance(answer, p.Error)
    assert loads(tmp_path) == [()]


def test_what_was_asked_behind_the_load_is_answered_by_the_new_engine(
    start: Start, tiny_files: tuple[Path, Path]
) -> None:
    client = start("SIGSEGV", "1", "amx")
    user = p.Message(role="user", content="the cat")
    client.ask(load(tiny_files))
    chat = client.answer(p.Chat(messages=(user,), max_tokens=5))

    assert isinstance(chat.last, p.Done)
    assert client.heard.count(Starting()) == 2


def test_a_load_that_is_cancelled_is_not_tried_again(
    start: Start, tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    client = start("SIGSEGV", "1", "amx")
    asked = client.ask(load(tiny_files))
    client.link.send(p.Cancel(id=asked.id))
    client.end(asked)
    assert isinstance(asked.last, p.Error)

    assert not client.latest.of(p.Restarting)


def test_a_crash_in_a_reply_is_a_death(start: Start, tiny_files: tuple[Path, Path]) -> None:
    client = start("SIGSEGV", "100000", "amx")
    client.answer(load(tiny_files))
    user = p.Message(role="user", content="the cat")
    client.ask(p.Chat(messages=(user,)))
    client.until(lambda: bool(client.latest.rounds))
    client.process.send_signal(11)
    client.end(client.latest)

    assert isinstance(client.latest.last, p.Error)
    assert client.death().reason == "the engine stopped by itself (signal 11, SIGSEGV)"
