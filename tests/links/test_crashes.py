"""An engine that crashes in a load starts again and leaves something out, at most twice."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat import paths
from eaglechat.cli import main
from eaglechat.engine.llama.workarounds import VARIABLE, compiler_that_breaks_amx
from eaglechat.links import crashes
from eaglechat.links.crashes import crash, likely_cause, starts_again, with_less, without
from eaglechat.wire import protocol as p
from eaglechat.wire.protocol import LeaveOut, Load, LoadOptions
from eaglechat.wire.records import FinishReason
from tests.engine_client import Client, engine_process, load
from tests.waiting import until

KERNELS: tuple[LeaveOut, ...] = ("extra_buffers", "flash_attention")
STEPS: tuple[tuple[LeaveOut, ...], ...] = ((), KERNELS, (*KERNELS, "gpu"))
Start = Callable[..., Client]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts an engine that crashes."""
    monkeypatch.delenv(VARIABLE, raising=False)
    clients: list[Client] = []

    def begin(name: str, when: str, cure: str, *more: str) -> Client:
        engine = [sys.executable, "-m", "tests.crashing_engine", name, when, cure]
        clients.append(engine_process([*engine, str(tmp_path / "loads"), *more], tmp_path / "log"))
        return clients[-1]

    yield begin
    for client in clients:
        client.link.close()


AMX_IS_BROKEN = compiler_that_breaks_amx() is not None


def after_crashes(left_out: Iterable[str]) -> tuple[str, ...]:
    """Without what is left out on this machine before any crash."""
    return tuple(one for one in left_out if one and not (one == "amx" and AMX_IS_BROKEN))


def loads(folder: Path) -> list[tuple[str, ...]]:
    """What was left out in each load of a target since the last call, in order."""
    lines = (folder / "loads").read_text().splitlines()
    (folder / "loads").unlink()
    found = [after_crashes(line.split(",")) for line in lines]
    # Target and draft are loaded alike; a crash at the target's load has none for the draft.
    return [one for index, one in enumerate(found) if index == 0 or one != found[index - 1]]


def load_of(client: Client, files: tuple[Path, Path], **options: object) -> tuple[str, ...]:
    """Load; returns what the loaded pair is left without."""
    loaded = client.expect(p.Loaded, load(files, **options))
    return after_crashes(loaded.pair.left_out)


@pytest.fixture
def other_files(tiny_files: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The same models under other names."""
    return (
        Path(shutil.copy(tiny_files[0], tmp_path / "other.gguf")),
        Path(shutil.copy(tiny_files[1], tmp_path / "other-draft.gguf")),
    )


def test_a_crash_ends_once_what_causes_it_is_left_out(
    start: Start, tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    client = start("SIGILL", "load", "gpu", "", "what the kernel said last")

    assert load_of(client, tiny_files) == STEPS[-1]
    again = client.latest.of(p.Restarting)
    assert {event.log for event in again} == {str(paths.crash_log())}
    client.link.close()
    assert "what the kernel said last" in paths.crash_log().read_text()
    assert "what the kernel said last" not in (tmp_path / "log").read_text()
    assert [(event.crash, event.leave_out) for event in again] == [
        ("SIGILL", step) for step in STEPS[1:]
    ]
    assert loads(tmp_path) == list(STEPS)
    assert client.died is None


def test_what_worked_is_remembered_for_these_models_alone_until_it_is_forgotten(
    start: Start,
    tiny_files: tuple[Path, Path],
    other_files: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    doomed = ("SIGSEGV", "1", "flash_attention", tiny_files[0].parent.name)
    load_of(start(*doomed), tiny_files)
    assert loads(tmp_path) == [(), KERNELS]

    client = start(*doomed)
    assert load_of(client, tiny_files) == KERNELS
    assert load_of(client, other_files) == ()
    assert loads(tmp_path) == [KERNELS, ()]

    main(["doctor"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"{tiny_files[0].name} runs without repacked weights and flash attention since" in said
    assert f"the log of the last crash: {paths.crash_log()}" in said
    assert "eaglechat doctor --forget-crashes" in said
    assert "llama.cpp crashed on" not in said
    assert main(["doctor", "--forget-crashes"]) == 0
    load_of(start(*doomed), tiny_files)
    assert loads(tmp_path) == [(), KERNELS]


def test_another_llama_cpp_file_or_memory_is_tried_with_everything(
    start: Start, other_files: tuple[Path, Path], tmp_path: Path
) -> None:
    doomed = ("SIGSEGV", "1", "flash_attention")
    load_of(start(*doomed), other_files)
    memory = paths.state_dir() / "crashes.json"
    (kept,) = msgspec.json.decode(memory.read_bytes())

    memory.write_bytes(msgspec.json.encode([{**kept, "key": "of another build"}]))
    load_of(start(*doomed), other_files)
    other_files[0].write_bytes(other_files[0].read_bytes())
    load_of(start(*doomed), other_files)
    memory.write_bytes(b"[" * 100_000)
    load_of(start(*doomed), other_files)

    assert loads(tmp_path) == [(), KERNELS] * 4


@pytest.mark.parametrize(
    "says",
    [
        "CUDA error: out of memory",
        "terminate called after throwing an instance of 'vk::OutOfDeviceMemoryError'",
        "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        "ggml_gallocr_reserve_n: failed to allocate Vulkan0 buffer of size 1073741824",
    ],
)
def test_every_way_to_say_that_memory_ran_out_is_known(says: str) -> None:
    tried = crashes.with_less(p.Load(target="m"), "SIGABRT", ["a line", says], has_gpu=True)
    assert tried is not None
    assert (tried.leave_out, tried.crash) == (("gpu",), "")


def test_after_out_of_memory_the_gpu_is_left_out_and_nothing_is_remembered(
    start: Start, tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    full = ("SIGABRT", "1", "gpu", "", "CUDA error: out of memory")
    client = start(*full)
    assert load_of(client, tiny_files) == ("gpu",)
    assert [one.crash for one in client.latest.of(p.Restarting)] == ["out of memory"]

    load_of(start(*full), tiny_files)
    assert loads(tmp_path) == [(), ("gpu",), (), ("gpu",)]
    assert not (paths.state_dir() / "crashes.json").exists()

    error = start(*full).expect(p.Error, load(tiny_files, n_gpu_layers=7))
    assert "its memory ran out: close other programs, lower engine.n_ctx" in error.message


def test_an_engine_that_always_crashes_says_so_and_nothing_is_remembered(
    start: Start,
    tiny_files: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = start("SIGILL", "2", "nothing that can be left out")
    answer = client.expect(p.Error, load(tiny_files))
    assert "SIGILL" in answer.message
    assert "built for a CPU with instructions that yours lacks" in answer.message
    assert "pip install --force-reinstall --no-deps --no-binary" in answer.message
    assert loads(tmp_path) == list(STEPS)
    assert not (paths.state_dir() / "crashes.json").exists()

    assert main(["doctor"]) == 1
    wrong = capsys.readouterr().out.partition("What is wrong\n")[2]
    assert "llama.cpp crashed on" in wrong
    assert main(["doctor", "--forget-crashes"]) == 0
    main(["doctor"])
    assert "llama.cpp crashed on" not in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_signal_from_outside_in_a_load_is_no_crash_of_the_pair(
    start: Start, tiny_files: tuple[Path, Path], tmp_path: Path, number: signal.Signals
) -> None:
    """SIGINT is the client's, and ends nothing."""
    client = start("hang", "load", "gpu")
    asked = client.ask(load(tiny_files))
    loaded = tmp_path / "loads"
    until(lambda: loaded.exists() and loaded.stat().st_size, "the load")
    client.process.send_signal(number)
    if number is signal.SIGINT:
        client.process.terminate()

    client.end(asked)
    died = client.death()
    assert isinstance(asked.last, p.Error)
    assert died.exit_status == (-9 if number is signal.SIGKILL else 128 + signal.SIGTERM)
    assert died.log == ""
    assert not asked.of(p.Restarting)
    assert loads(tmp_path) == [()]
    assert load_of(start("hang", "never", "gpu"), tiny_files) == ()


def test_a_crash_in_a_load_that_was_cancelled_costs_the_next_one_nothing(
    start: Start, tiny_files: tuple[Path, Path], other_files: tuple[Path, Path], tmp_path: Path
) -> None:
    """What was cancelled is answered, not asked again; the load behind it is loaded whole."""
    client = start("SIGSEGV", "load", "nothing that helps", tiny_files[0].parent.name)
    # Held, so that the crash comes with all of them waiting.
    client.until(lambda: client.link.hello is not None)
    client.process.suspend()
    first = client.ask(load(tiny_files))
    second = client.ask(load(other_files))
    request = p.Chat(messages=(p.Message(role="user", content="the cat"),), max_tokens=5)
    chat, behind = client.ask(request), client.ask(request)
    client.link.send(p.Cancel(id=chat.id))
    crashed = client.process
    crashed.send_signal(11)
    crashed.resume()
    client.end(second, behind)

    assert isinstance(second.last, p.Loaded)
    assert behind.last.end.finish_reason is FinishReason.LENGTH
    assert after_crashes(second.last.pair.left_out) == ()
    assert not second.of(p.Restarting)
    assert isinstance(first.last, p.Error)
    assert first.last.code == "cancelled"
    assert isinstance(chat.last, p.Done)
    assert chat.last.end.finish_reason is FinishReason.CANCELLED
    assert set(loads(tmp_path)) == {()}


def test_a_crash_in_a_reply_is_a_death(start: Start, tiny_files: tuple[Path, Path]) -> None:
    client = start("SIGSEGV", "100000", "flash_attention")
    client.answer(load(tiny_files))
    user = p.Message(role="user", content="the cat")
    client.ask(p.Chat(messages=(user,)))
    client.until(lambda: bool(client.latest.rounds))
    client.process.send_signal(11)
    client.end(client.latest)

    assert isinstance(client.latest.last, p.Error)
    assert client.death().why == "the engine stopped by itself (signal 11, SIGSEGV)"


# --- what counts as a crash, and what is left out after one ---


options = st.builds(
    LoadOptions,
    flash_attention=st.sampled_from(("auto", "on", "off")),
    n_gpu_layers=st.sampled_from((-1, 0, 12)),
    kv_type=st.sampled_from(("f16", "q8_0")),
    split_mode=st.sampled_from(("layer", "row")),
)
logs = st.lists(st.sampled_from(("", "CUDA error: out of memory", "GGML_ASSERT failed")))


@given(options, st.booleans(), st.lists(logs))
def test_a_load_is_tried_again_at_most_twice_each_time_with_less(
    chosen: LoadOptions, has_gpu: bool, crashes: list[list[str]]
) -> None:
    load = Load(target="model.gguf", options=chosen)
    tries = 0
    ran_out = False
    for log in crashes:
        again = with_less(load, "SIGABRT", log, has_gpu=has_gpu)
        if again is None:
            break
        tries += 1
        ran_out |= any("memory" in line for line in log)
        assert again.leave_out[: len(load.leave_out)] == load.leave_out
        assert len(set(again.leave_out)) == len(again.leave_out) > len(load.leave_out)
        # A lack of memory says nothing about the next load.
        assert again.crash == ("" if ran_out else "SIGABRT")
        load = again
    assert tries <= 2
    if "gpu" in load.leave_out:
        assert has_gpu
        assert chosen.n_gpu_layers in (-1, 0)
        assert chosen.split_mode == "layer"
    if "flash_attention" in load.leave_out:
        assert chosen.flash_attention != "on"
        assert chosen.kv_type == "f16"


@pytest.mark.skipif(sys.platform == "win32", reason="the exit statuses of POSIX")
@pytest.mark.parametrize(
    ("status", "name"),
    [
        *((-11, "SIGSEGV"), (-4, "SIGILL"), (-6, "SIGABRT"), (139, "SIGSEGV"), (134, "SIGABRT")),
        # Ends that somebody wanted.
        *((status, None) for status in (None, 0, 1, 3, -9, -15, 137, 143, 255, -999)),
    ],
)
def test_a_crash_is_named(status: int | None, name: str | None) -> None:
    assert crash(status) == name


def test_the_sentences() -> None:
    chosen = LoadOptions(flash_attention="on", n_gpu_layers=7)
    load = Load(target="m", options=chosen, leave_out=("extra_buffers",))
    assert likely_cause(load, []) == (
        ", without repacked weights too; the likely cause is a setting of yours: "
        "engine.flash_attention = on, engine.n_gpu_layers = 7"
    )
    assert without(("amx",)) == "without AMX"
    assert without(("amx", "extra_buffers", "gpu")) == "without AMX, repacked weights and the GPU"
    assert starts_again("SIGILL", ("extra_buffers",), "/log/engine-crash.log") == (
        "llama.cpp crashed (SIGILL, its log is /log/engine-crash.log): trying again without "
        "repacked weights"
    )
