"""A program is started with the options of a pair, watched, and ended, whatever it does."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from eaglechat.engine.llama_server.arguments import (
    NO_DRAFT,
    Drafting,
    drafting_of,
    server_options,
)
from eaglechat.links.base import Died, Lifecycle, Ready
from eaglechat.links.process import EngineProcess
from eaglechat.wire import protocol as p
from eaglechat.wire.load_options import LoadOptions
from tests.engine.llama_server.program import ROOT, started, write_program

USER = p.Message(role="user", content="Name three rivers of Europe and say where they end.")


class Client:
    """An engine that has a program compute."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.log = folder / "engine.log"
        command = [sys.executable, "-m", "eaglechat", "engine", "--llama-server", str(program)]
        self.link = EngineProcess(command, self.log)
        self.news: list[Lifecycle] = []
        self.heard: list[p.Answer] = []
        self.link.watch(self.news.append)
        self.link.start()

    def ask(self, request: p.Load | p.Chat | p.Unload) -> p.Answer:
        """The last answer to a request."""
        self.begin(request)
        last = (p.Loaded, p.Done, p.Unloaded, p.Error)
        self.until(lambda: bool(self.heard) and isinstance(self.heard[-1], last))
        return self.heard[-1]

    def begin(self, request: p.Load | p.Chat | p.Unload) -> int:
        self.heard.clear()
        return self.link.request(request, self.heard.append)

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(600):
            if holds():
                return
            self.link.pump(0.1)
        raise AssertionError(f"it never came to hold; {self.log.read_text()}")

    @property
    def programs(self) -> list[psutil.Process]:
        """The processes that the engine has started."""
        assert self.link._running is not None
        return psutil.Process(self.link._running.process.pid).children(recursive=True)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Client]]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    clients: list[Client] = []

    def begin(kind: str) -> Client:
        clients.append(Client(write_program(tmp_path, kind), tmp_path))
        return clients[-1]

    yield begin
    for client in clients:
        client.link.close(patience_s=8.0)


def load(files: tuple[Path, Path], **options: object) -> p.Load:
    wanted = {"n_ctx": 1024, "n_threads": 1, **options}
    return p.Load(target=str(files[0]), draft=str(files[1]), options=LoadOptions(**wanted))


def chat(n: int | p.Auto = 3, *, enabled: bool = True, max_tokens: int = 24) -> p.Chat:
    return p.Chat(
        messages=(USER,),
        sampling=p.Sampling(temperature=0.0, seed=1),
        speculation=p.Speculation(n_draft_max=n, enabled=enabled),
        max_tokens=max_tokens,
    )


def test_the_options_are_those_of_the_settings() -> None:
    options = LoadOptions(
        n_gpu_layers=9, tensor_split=(3, 1), kv_type="q8_0", rpc_servers=("a:1", "b:2")
    )
    given = " ".join(
        server_options(Path("t.gguf"), Path("d.gguf"), Drafting(5, 1, 0.25), options, 4096)
    )
    for part in (
        "-m t.gguf", "-c 4096", "-np 1", "-ngl 9", "-ts 3,1", "--rpc a:1,b:2",
        "-ctk q8_0 -ctv q8_0",
        "-md d.gguf --spec-type draft-eagle3 --spec-draft-n-max 5", "--spec-draft-n-min 1",
        "--spec-draft-p-min 0.25", "-ngld 9",
    ):  # fmt: skip
        assert part in given
    plain = server_options(Path("t.gguf"), Path("d.gguf"), NO_DRAFT, LoadOptions(), 4096)
    assert "-md" not in plain


def test_what_the_program_cannot_do_comes_nearest() -> None:
    assert drafting_of(p.Speculation(n_draft_max="auto")) == Drafting(3)
    assert drafting_of(p.Speculation(n_draft_max=0)) == NO_DRAFT
    assert drafting_of(p.Speculation(enabled=False, n_draft_max=5)) == NO_DRAFT


@pytest.mark.real
def test_a_pair_is_loaded_chatted_with_and_started_again_for_another_draft_length(
    start: Callable[[str], Client], real_files: tuple[Path, Path], tmp_path: Path
) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    loaded = client.ask(load(real_files))
    assert isinstance(loaded, p.Loaded), loaded
    hello = client.link.hello
    assert hello is not None
    assert (hello.engine, hello.can.auto, hello.can.restarts) == ("llama-server", False, True)
    assert hello.llama_cpp.startswith("version: 1.2.3 (abcdef)")
    assert loaded.pair.target.path == str(real_files[0])
    assert loaded.pair.draft is not None
    assert loaded.pair.n_ctx == 1024
    assert (loaded.pair.server, loaded.pair.devices) == ("", ("llama-server",))

    done = client.ask(chat(3))
    assert isinstance(done, p.Done), done
    assert done.stats.accepted > 0
    rounds = [event.round for event in client.heard if isinstance(event, p.RoundDone)]
    assert max(len(round_.drafted) for round_ in rounds) == 3
    text = "".join(token.text for round_ in rounds for token in round_.tokens)
    (first,) = client.programs

    done = client.ask(chat(5))
    assert isinstance(done, p.Done), done
    assert any(isinstance(event, p.Loading) for event in client.heard)
    rounds = [event.round for event in client.heard if isinstance(event, p.RoundDone)]
    assert max(len(round_.drafted) for round_ in rounds) == 5
    assert not first.is_running()

    done = client.ask(chat(5, enabled=False))
    assert isinstance(done, p.Done), done
    assert done.stats.drafted == 0
    rounds = [event.round for event in client.heard if isinstance(event, p.RoundDone)]
    assert "".join(token.text for round_ in rounds for token in round_.tokens)[:20] == text[:20]
    lengths = [
        options[options.index("--spec-draft-n-max") + 1] if "-md" in options else None
        for options in started(tmp_path)
    ]
    assert lengths == ["3", "5", None]

    assert isinstance(client.ask(p.Unload()), p.Unloaded)
    assert client.programs == []


@pytest.mark.real
def test_a_program_that_dies_in_mid_reply_ends_the_engine_and_not_what_was_written(
    start: Callable[[str], Client], real_files: tuple[Path, Path]
) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    assert isinstance(client.ask(load(real_files)), p.Loaded)
    client.begin(chat(max_tokens=600))
    client.until(lambda: sum(isinstance(event, p.RoundDone) for event in client.heard) >= 3)

    client.programs[0].kill()

    client.until(lambda: isinstance(client.heard[-1], p.Error | p.Done))
    assert isinstance(client.heard[-1], p.Error), client.heard[-1]
    client.until(lambda: isinstance(client.news[-1], Died))
    died = client.news[-1]
    assert isinstance(died, Died)
    assert died.log_tail[-1] == "llama-server ended by itself (signal 9)"

    client.link.start()
    assert isinstance(client.ask(load(real_files)), p.Loaded)


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv: the system ends nothing")
def test_the_program_ends_with_an_engine_that_is_killed(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path]
) -> None:
    client = start("hang")
    client.begin(load(tiny_files))
    client.until(lambda: any(isinstance(event, p.Loading) for event in client.heard))
    (program,) = client.programs
    assert client.link._running is not None
    client.link._running.process.send_signal(signal.SIGKILL)
    assert psutil.wait_procs([program], timeout=20.0)[1] == []


def test_a_program_that_crashes_says_why_the_load_failed(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path]
) -> None:
    client = start("crash")
    for _ in range(2):
        failed = client.ask(load(tiny_files))
        assert isinstance(failed, p.Error)
        assert failed.code == "load"
        assert failed.message == (
            "llama-server ended while it loaded the models (exit status 3): "
            "error: failed to load the model: out of memory"
        )
    assert "out of memory" in "\n".join(client.link.log_tail())


@pytest.mark.parametrize("kind", ["hang", "deaf"])
def test_a_load_that_hangs_shows_its_stage_and_can_be_cancelled(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path], kind: str
) -> None:
    client = start(kind)
    request_id = client.begin(load(tiny_files))

    def stages() -> list[str]:
        return [event.stage for event in client.heard if isinstance(event, p.Loading)]

    client.until(lambda: "draft" in stages())
    assert stages() == sorted(stages(), reverse=True)
    (program,) = client.programs
    client.link.send(p.Cancel(id=request_id))
    client.until(lambda: isinstance(client.heard[-1], p.Error))
    error = client.heard[-1]
    assert isinstance(error, p.Error)
    assert error.code == "cancelled"
    assert not program.is_running()


def test_a_program_that_answers_garbage_fails_the_load(
    start: Callable[[str], Client], tiny_files: tuple[Path, Path]
) -> None:
    client = start("garbage")
    failed = client.ask(load(tiny_files))
    assert isinstance(failed, p.Error)
    assert failed.code == "load"
    assert client.programs == []


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "eaglechat", "engine", "--llama-server", str(tmp_path / "nothing")],
        cwd=ROOT, input="", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"there is no program {tmp_path / 'nothing'} (engine.llama_server)" in done.stderr


def test_the_engine_says_hello_before_a_model_is_loaded(start: Callable[[str], Client]) -> None:
    client = start("hang")
    client.until(lambda: isinstance(client.news[-1], Ready) if client.news else False)
    refused = client.ask(chat())
    assert isinstance(refused, p.Error)
    assert refused.code == "no_pair"
