"""A program is started with the options of a pair, watched, and ended, whatever it does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import psutil
import pytest

from eaglechat.gguf.header import read_header
from eaglechat.gguf.preflight import NORM_OUTPUT, NORMS_FEATURES, Pairing
from eaglechat.links.llama_server.probe import find
from eaglechat.links.llama_server.program import (
    chosen_drafter,
    server_options,
)
from eaglechat.wire import protocol as p
from eaglechat.wire.protocol import LoadOptions
from eaglechat.wire.records import FinishReason
from tests.engine_client import Client
from tests.engine_client import load as load_of
from tests.links.engines import chat as chat_of
from tests.links.llama_server.program import started, write_program
from tests.rpc.fake_server import nobody, serving
from tests.tiny import write_draft
from tests.waiting import PATIENCE_S, until

USER = p.Message(role="user", content="Name three rivers of Europe and say where they end.")


def programs(process: psutil.Process | None = None) -> list[psutil.Process]:
    """The programs that this process, or another one, has started."""
    children = (process or psutil.Process()).children(recursive=True)
    return [one for one in children if "tests.links.llama_server.program" in one.cmdline()]


def load(files: tuple[Path, Path], **options: object) -> p.Load:
    return load_of(files, **{"n_ctx": 1024, **options})


def lengths(folder: Path) -> list[str | None]:
    """The draft length of each start of the program; None without a draft."""
    return [
        options[options.index("--spec-draft-n-max") + 1] if "-md" in options else None
        for options in started(folder)
    ]


def chat(n: int = 3, *, enabled: bool = True, max_tokens: int = 24) -> p.Chat:
    return chat_of(
        messages=(USER,),
        speculation=p.Speculation(n_draft_max=n, enabled=enabled),
        max_tokens=max_tokens,
    )


def test_the_options_are_those_of_the_settings(tiny_files: tuple[Path, Path]) -> None:
    options = LoadOptions(
        n_ctx=4096,
        n_gpu_layers=9,
        tensor_split=(3, 1),
        kv_type="q8_0",
        rpc_servers=("a:1", "b:2"),
    )
    eagle3 = Pairing("eagle3", read_header(tiny_files[1]))
    asked = p.Speculation(n_draft_max=5, n_min=1, p_min=0.25)
    given = " ".join(server_options(Path("t.gguf"), eagle3, asked, options))
    for part in (
        "-m t.gguf", "-c 4096", "-np 1", "-ngl 9", "-ts 3,1", "--rpc a:1,b:2",
        "-ctk q8_0 -ctv q8_0",
        f"-md {tiny_files[1]} -ngld 9 --spec-type draft-eagle3 --spec-draft-n-max 5",
        "--spec-draft-n-min 1", "--spec-draft-p-min 0.25",
    ):  # fmt: skip
        assert part in given
    plain = server_options(Path("t.gguf"), None, asked, LoadOptions())
    assert not {"-md", "--spec-type"}.intersection(plain)
    without_head = replace(eagle3, kind="dspark")
    wanted = server_options(Path("t.gguf"), without_head, asked, options)
    assert wanted[wanted.index("--spec-draft-p-min") + 1] == "0"
    auto = server_options(Path("t.gguf"), eagle3, p.Speculation(n_draft_max="auto"), options)
    assert "--spec-draft-n-max 3" in " ".join(auto)


def test_the_first_drafter_that_is_asked_for_drafts() -> None:
    heads, draft = Pairing("mtp"), Pairing("eagle3")
    for asked, drafter in (
        (p.Speculation(n_draft_max=0), None),
        (p.Speculation(enabled=False, n_draft_max=5), None),
        (p.Speculation(), draft),
        (p.Speculation(drafter="mtp"), heads),
        (p.Speculation(drafter="none"), None),
        (p.Speculation(drafter="dflash"), None),
    ):
        assert chosen_drafter(asked, [draft, heads]) is drafter


def test_a_path_in_the_current_folder_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = write_program(tmp_path, "hang")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert find("./llama-server") == find(str(program)) == str(program)
    assert find("llama-server") is None


def test_a_load_starts_the_program_as_the_first_reply_needs_it(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    for speculation, draft in (
        (p.Speculation(n_draft_max="auto"), str(tiny_files[1])),
        (p.Speculation(enabled=False), str(tiny_files[1])),
        (p.Speculation(n_draft_max=5), None),
    ):
        wanted = msgspec.structs.replace(load(tiny_files), draft=draft, speculation=speculation)
        client.expect(p.Loaded, wanted)
        reply = msgspec.structs.replace(chat(max_tokens=4), speculation=speculation)
        client.expect(p.Done, reply)
    assert lengths(tmp_path) == ["3", None, None]


def test_a_pair_is_loaded_chatted_with_and_started_again_for_another_draft_length(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    loaded = client.expect(p.Loaded, load(tiny_files))
    hello = client.link.hello
    assert hello is not None
    assert (hello.engine, hello.can.own, hello.can.draft_length) == ("llama-server", False, True)
    assert hello.llama_cpp.startswith("version: 1.2.3 (abcdef)")
    assert loaded.pair.target.path == str(tiny_files[0])
    assert [one.kind for one in loaded.pair.drafters] == ["eagle3"]
    assert loaded.pair.n_ctx == 1024
    assert (loaded.pair.server, loaded.pair.devices) == ("", ("llama-server with A Card (24 GB)",))

    texts, before = set(), None
    for n, enabled in ((3, True), (5, True), (5, False)):
        done = client.expect(p.Done, chat(n, enabled=enabled))
        assert set(done.stats.by_drafter) == ({"eagle3"} if enabled else set())
        longest = max(len(round_.drafted) for round_ in client.latest.rounds)
        assert longest == (n if enabled else 0)
        assert bool(client.latest.of(p.Loading)) is (before is not None)
        assert before is None or not before.is_running()
        (before,) = programs()
        texts.add(client.latest.text)
    assert len(texts) == 1
    assert lengths(tmp_path) == ["3", "5", None]

    client.expect(p.Unloaded, p.Unload())
    assert client.expect(p.Error, chat()).code == "no_pair"
    assert programs() == []


@pytest.mark.real
def test_a_program_that_dies_in_mid_reply_ends_the_engine_and_not_what_was_written(
    start: Callable[[str], Client], real_files: tuple[Path, Path], tiny_files: tuple[Path, Path]
) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    client.expect(p.Loaded, load(real_files))
    client.ask(chat(max_tokens=600))
    client.until(lambda: len(client.latest.rounds) >= 3)

    programs()[0].kill()

    client.end(client.latest)
    assert isinstance(client.latest.last, p.Error), client.latest.last
    assert client.death().why == (
        "the engine stopped because llama-server was killed (signal 9), as happens when memory "
        "runs out"
    )

    client.link.start()
    client.expect(p.Loaded, load(tiny_files))


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv: the system ends nothing")
def test_the_program_ends_with_a_client_that_is_killed(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from eaglechat.links.llama_server.worker import program_link\n"
        "from eaglechat.wire.protocol import Load\n"
        "program, target, draft = sys.argv[1:]\n"
        "link = program_link(program, None)\n"
        "link.start()\n"
        "link.request(Load(target=target, draft=draft), print)\n"
        "while True:\n"
        "    link.pump(1.0)\n"
    )
    command = [sys.executable, "-c", code, str(write_program(tmp_path, "hang"))]
    with subprocess.Popen([*command, *map(str, tiny_files)]) as client:
        process = psutil.Process(client.pid)
        try:
            # Before it is started it is asked what it can do.
            until((tmp_path / "started").exists, "the program")
            (program,) = programs(process)
        finally:
            client.kill()
    assert psutil.wait_procs([program], timeout=PATIENCE_S)[1] == []


def test_a_program_that_crashes_says_why_the_load_failed(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    client = start("crash")
    for _ in range(2):
        failed = client.expect(p.Error, load(tiny_files))
        assert failed.code == "load"
        assert failed.message == (
            "the models did not load: llama-server ended (exit status 3): "
            "error: failed to load the model: out of memory"
        )
    assert "out of memory" in "\n".join(client.link.log_tail())

    write_program(tmp_path, "dated")
    failed = client.expect(p.Error, load(tiny_files))
    assert failed.message.endswith(
        "error: invalid argument: --spec-draft-p-min; a newer llama-server knows it"
    )

    write_program(tmp_path, "doomed")
    n_started = len(started(tmp_path))
    failed = client.expect(p.Error, load(tiny_files))
    assert "(signal 4, SIGILL)" in failed.message
    assert len(started(tmp_path)) == n_started + 1

    write_program(tmp_path, "garbage")
    failed = client.expect(p.Error, load(tiny_files))
    assert failed.code == "load"
    assert programs() == []


# One that is deaf is waited for before it is killed: 5 s.
@pytest.mark.parametrize("kind", ["hang", pytest.param("deaf", marks=pytest.mark.slow)])
def test_a_load_that_hangs_can_be_cancelled(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path], kind: str
) -> None:
    client = start(kind)
    asked = client.ask(load(tiny_files))
    client.until(lambda: asked.of(p.Loading) and programs())
    (program,) = programs()
    if sys.platform != "win32":
        # A terminal sends Ctrl+C to the process group that the client is in.
        assert os.getpgid(program.pid) != os.getpgid(0)
    client.link.send(p.Cancel(id=asked.id))
    client.end(asked)
    error = asked.last
    assert isinstance(error, p.Error)
    assert error.code == "cancelled"
    assert not program.is_running()


def test_a_reply_whose_restart_is_cancelled_was_stopped_before_it_began(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    client.expect(p.Loaded, load(tiny_files))
    write_program(tmp_path, "hang")
    asked = client.ask(chat(5))
    client.until(lambda: asked.of(p.Loading))
    client.link.send(p.Cancel(id=asked.id))
    client.end(asked)
    done = asked.last
    assert isinstance(done, p.Done), done
    assert done.end.finish_reason is FinishReason.CANCELLED
    assert programs() == []
    write_program(tmp_path, "real")
    client.expect(p.Done, chat(5))


def test_a_program_that_cannot_run_the_pair_says_so_at_each_load(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    client = start("stranger")
    for kind, why in (
        ("stranger", "is not a llama-server"),
        ("stranger", "is not a llama-server"),
        ("old", "is too old to draft with EAGLE-3"),
        ("gone", "there is no program "),
        ("gone", "there is no program "),
    ):
        write_program(tmp_path, kind)
        if kind == "gone":
            (tmp_path / "llama-server").unlink()
        failed = client.expect(p.Error, load(tiny_files))
        assert failed.code == "program"
        assert why in failed.message
    write_program(tmp_path, "crash")
    failed = client.expect(p.Error, load(tiny_files))
    # What has been installed meanwhile is found.
    assert failed.code == "load"


def test_an_rpc_server_that_cannot_be_reached_is_named_before_the_program_starts(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    client = start("crash")
    with serving() as here:
        gone = nobody()
        failed = client.answer(load(tiny_files, rpc_servers=(here, gone))).last
    assert isinstance(failed, p.Error)
    assert failed.code == "rpc"
    assert f"the RPC server {gone} cannot be reached" in failed.message
    assert not (tmp_path / "started").exists()


def test_a_draft_that_the_program_would_run_wrongly_is_refused(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    client = start("crash")
    client.ready()
    refused = client.expect(p.Error, chat())
    assert refused.code == "no_pair"
    for key in (NORM_OUTPUT, NORMS_FEATURES):
        draft = write_draft(tmp_path / "newer.gguf", flags=[key])
        failed = client.expect(p.Error, load((tiny_files[0], draft)))
        assert failed.message.startswith("newer.gguf has EAGLE-3.1's norms")
    assert not (tmp_path / "started").exists()
