"""pull, models and remove as a user runs them."""

from __future__ import annotations

import argparse
import errno
import io
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from eaglechat.chat.recorder import ChatRecorder
from eaglechat.chat.saved_chat import new_chat
from eaglechat.chat.store import ChatStore
from eaglechat.cli.hub import remove
from eaglechat.cli.hub.pull import show_install
from eaglechat.cli.progress import Progress
from eaglechat.hub.downloads.client import RemoteFile
from eaglechat.hub.downloads.queue import Downloads, FileSnapshot, Install
from eaglechat.hub.local.cache import RepoCache
from eaglechat.hub.local.pairs import Pair
from tests import ggufs
from tests.cli.redrawn import Terminal
from tests.hub import ollama_store
from tests.hub.commands import Commands
from tests.hub.fakehub import FakeHub, sha256
from tests.waiting import PATIENCE_S, until

TARGET, DRAFT = ggufs.target(), ggufs.draft()
CATALOGUE = """
[[pair]]
name = "tiny"
target = { repo = "org/tiny-GGUF", quantization = "Q4_K_M" }
draft = { repo = "org/tiny-GGUF", file = "eagle3-tiny-Q8_0.gguf" }
licence = "mit"

[[pair]]
name = "tiny-other"
target = { repo = "org/tiny-GGUF", quantization = "Q4_K_M" }
draft = { repo = "lab/draft", file = "d.gguf" }
"""
OTHERS = """
[[pair]]
name = "tiny-open"
target = { repo = "org/tiny-GGUF" }

[[pair]]
name = "tiny-own"
target = { path = "~/own/o.gguf" }
draft = { repo = "lab/draft", file = "d.gguf" }
"""


@pytest.fixture
def commands(fake: FakeHub, tmp_path: Path) -> Commands:
    fake.add("org/tiny-GGUF", {"tiny-Q4_K_M.gguf": TARGET, "eagle3-tiny-Q8_0.gguf": DRAFT})
    fake.add("lab/draft", {"d.gguf": DRAFT + b"\0"})
    config = tmp_path / "eaglechat" / "config"
    config.mkdir(parents=True)
    (config / "catalogue.toml").write_text(CATALOGUE)
    return Commands(tmp_path, fake.endpoint)


def listed(commands: Commands) -> tuple[dict[str, str], dict[str, str]]:
    document = json.loads(commands.run("models", "--json").stdout)
    models = {model["name"]: model["kind"] for model in document["models"]}
    pairs = {pair["name"]: pair["state"] for pair in document["pairs"]}
    return models, {name: pairs[name] for name in ("tiny", "tiny-other")}


@pytest.fixture
def others(commands: Commands) -> None:
    (commands.home / "eaglechat" / "config" / "catalogue.toml").write_text(OTHERS)


def state_of(commands: Commands, pair: str) -> str:
    pairs = json.loads(commands.run("models", "--json").stdout)["pairs"]
    return next(one["state"] for one in pairs if one["name"] == pair)


def test_a_model_is_pulled_with_plain_lines_off_a_terminal(commands: Commands) -> None:
    result = commands.run("pull", "org/tiny-GGUF")
    assert result.returncode == 0
    path = Path(result.stdout.strip())
    assert path.read_bytes() == TARGET
    assert path.is_relative_to(commands.cache)
    done, drafts = result.stderr.splitlines()[-2:]
    assert done.startswith("tiny-Q4_K_M.gguf: 100%  done, ")
    assert "No draft model, n-grams only: its file has no MTP heads." in drafts
    assert drafts.endswith("`eaglechat drafts org/tiny-GGUF/tiny-Q4_K_M.gguf` looks for one.")
    assert "\x1b" not in result.stderr


def test_offline_what_is_here_is_named_and_the_rest_says_why(
    commands: Commands, fake: FakeHub
) -> None:
    result = commands.run("pull", "org/tiny-GGUF")
    fake.seen.clear()
    assert commands.run("pull", "org/tiny-GGUF", offline=True).stdout == result.stdout
    missing = commands.run("pull", "lab/draft", offline=True)
    assert missing.returncode == 1
    assert "HF_HUB_OFFLINE forbids asking the Hub" in missing.stderr
    assert fake.seen == []


def test_a_pair_is_pulled_listed_and_removed(commands: Commands, fake: FakeHub) -> None:
    assert listed(commands) == ({}, {"tiny": "available", "tiny-other": "available"})
    result = commands.run("pull", "tiny")
    assert result.returncode == 0, result.stderr
    target, draft = map(Path, result.stdout.splitlines())
    assert (target.read_bytes(), draft.read_bytes()) == (TARGET, DRAFT)
    assert listed(commands) == (
        {
            "org/tiny-GGUF/tiny-Q4_K_M.gguf": "target",
            "org/tiny-GGUF/eagle3-tiny-Q8_0.gguf": "draft",
        },
        {"tiny": "installed", "tiny-other": "partly"},
    )
    fake.seen.clear()
    offline = commands.run("pull", "tiny", offline=True)
    assert offline.stdout == result.stdout
    assert fake.seen == []
    unasked = commands.run("remove", "tiny")
    assert unasked.returncode == 2
    assert "nothing was deleted" in unasked.stderr
    assert listed(commands)[1]["tiny"] == "installed"
    removed = commands.run("remove", "tiny", "--yes")
    assert removed.returncode == 0
    assert "freed" in removed.stdout
    assert listed(commands)[0] == {}


def test_what_another_program_has_is_not_downloaded_again(
    commands: Commands, fake: FakeHub
) -> None:
    blob = ollama_store.put(commands.home / ".ollama" / "models", "tiny/q4", TARGET)
    draft = commands.home / ".lmstudio" / "models" / "org" / "tiny-GGUF" / "eagle3-tiny-Q8_0.gguf"
    draft.parent.mkdir(parents=True)
    draft.write_bytes(DRAFT)
    assert listed(commands)[1] == {"tiny": "partly", "tiny-other": "available"}
    result = commands.run("pull", "tiny")
    assert result.stdout.splitlines() == [str(blob), str(draft)]
    assert fake.requests("storage") == []
    assert listed(commands)[1] == {"tiny": "installed", "tiny-other": "partly"}
    assert commands.run("pull", "tiny", offline=True).stdout == result.stdout
    of_draft = ("pull", "org/tiny-GGUF/eagle3-tiny-Q8_0.gguf")
    assert commands.run(*of_draft, offline=True).stdout == f"{draft}\n"
    assert commands.run("pull", "org/tiny-GGUF").stdout == f"{blob}\n"

    refused = commands.run("remove", "tiny:q4", "--yes")
    assert (refused.returncode, "`ollama rm tiny:q4` removes it" in refused.stderr) == (1, True)
    removed = commands.run("remove", "tiny", "--yes")
    assert "tiny:q4 is kept: it is Ollama's" in removed.stderr
    assert (blob.exists(), draft.exists()) == (True, False)


@pytest.mark.usefixtures("others")
def test_a_pair_without_a_file_stays_installed_where_ollama_has_it(commands: Commands) -> None:
    blob = ollama_store.put(commands.home / ".ollama" / "models", "tiny/q4", TARGET)
    pulled = commands.run("pull", "tiny-open")
    assert (pulled.returncode, pulled.stdout) == (0, f"{blob}\n")
    assert state_of(commands, "tiny-open") == "installed"
    assert commands.run("pull", "tiny-open", offline=True).stdout == pulled.stdout
    assert not list(commands.cache.rglob("*.gguf"))


@pytest.mark.usefixtures("others")
def test_a_target_by_a_path_in_the_home_is_found(commands: Commands) -> None:
    own = commands.home / "own" / "o.gguf"
    assert "has gone: ~/own/o.gguf" in commands.run("pull", "tiny-own").stderr
    own.parent.mkdir()
    own.write_bytes(TARGET)
    assert commands.run("pull", "tiny-own").stdout.splitlines()[0] == str(own)
    assert state_of(commands, "tiny-own") == "installed"


def test_what_cannot_be_remembered_is_said_before_anything_is_fetched(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(entry: object) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", "catalogue.toml")

    monkeypatch.setattr("eaglechat.hub.catalogue.remember", refuse)
    monkeypatch.setattr(Downloads, "install", lambda *_: pytest.fail("begun"))
    refused = commands.run("pull", "tiny")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)


def test_a_half_file_of_another_program_is_downloaded_whole(
    commands: Commands, fake: FakeHub
) -> None:
    half = commands.home / ".cache" / "llama.cpp" / "org_tiny-GGUF_tiny-Q4_K_M.gguf"
    half.parent.mkdir(parents=True)
    half.write_bytes(TARGET[:-4])
    path = Path(commands.run("pull", "org/tiny-GGUF").stdout.strip())
    assert path.read_bytes() == TARGET
    assert path.is_relative_to(commands.cache)


def test_a_newer_version_is_told_on_request(commands: Commands, fake: FakeHub) -> None:
    commands.run("pull", "org/tiny-GGUF")
    assert "Newer on the Hub" not in commands.run("models", "--newer").stdout
    fake.repos["org/tiny-GGUF"].files["tiny-Q4_K_M.gguf"] = TARGET + b"\0"
    pull = "`eaglechat pull org/tiny-GGUF/tiny-Q4_K_M.gguf` downloads it."
    assert f"Newer on the Hub; {pull}" in commands.run("models", "--newer").stdout
    assert "HF_HUB_OFFLINE" in commands.run("models", "--newer", offline=True).stderr
    commands.run("pull", "org/tiny-GGUF/tiny-Q4_K_M.gguf")
    assert "Newer on the Hub" not in commands.run("models", "--newer").stdout


def test_what_else_needs_a_model_is_told_before_it_is_deleted(commands: Commands) -> None:
    target, draft = map(Path, commands.run("pull", "tiny").stdout.splitlines())
    state = commands.home / "eaglechat" / "state"
    recent = [{"name": "mine", "target": str(target)}, {"name": "no", "target": str(draft)}]
    (state / "recent-pairs.json").write_text(json.dumps(recent))
    store = ChatStore(commands.home / "eaglechat" / "data" / "chats.sqlite3")
    for file in (target, Path("/else.gguf")):
        new = new_chat(Pair("tiny", file, None, "files"))
        new.title = "a chat"
        ChatRecorder(store, new).left(())
    told = commands.run("remove", "org/tiny-GGUF/tiny-Q4_K_M.gguf").stdout
    assert "Pairs that need it: tiny, mine.\n" in told
    assert "1 chat with it can then only be read.\n" in told
    assert target.exists()


def test_removing_a_pair_keeps_what_another_one_needs(commands: Commands) -> None:
    for name in ("tiny", "tiny-other"):
        assert commands.run("pull", name).returncode == 0
    result = commands.run("remove", "tiny-other", "--yes")
    assert "another installed pair uses it" in result.stderr
    again = commands.run("remove", "tiny-other", "--yes")
    assert again.returncode == 1
    assert "another installed pair uses it" in again.stderr
    assert "not on this machine" not in again.stderr
    assert listed(commands)[1] == {"tiny": "installed", "tiny-other": "partly"}


def test_the_end_of_input_is_no_agreement_to_delete(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EAGLECHAT_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    draft = tmp_path / "data" / "drafts" / "mine.gguf"
    draft.parent.mkdir(parents=True)
    draft.write_bytes(DRAFT)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert remove.run(argparse.Namespace(name="mine", yes=False)) == 0
    assert "Nothing was deleted." in capsys.readouterr().out
    assert draft.exists()


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (("pull", "org/none"), 1, "org/none is not on the Hub"),
        (("pull", "org/tiny-GGUF:Q2_K"), 2, "has no Q2_K; it has"),
        (("pull", "tinny"), 2, "names no model"),
        (("pull", "qwen3-4"), 2, "; did you mean qwen3-4b?"),
        (("pull", "smollm2-135m"), 2, "is built in: there is nothing to download"),
        (("pull", "./m.gguf"), 2, "nothing to download"),
        (("remove", "nothing"), 1, "is not on this machine"),
        (("remove", "~nobody-of-this-name/m.gguf"), 1, "is not on this machine"),
        (("remove", __file__), 1, "is no model by this name"),
        (("remove", "smollm2-135m"), 1, "is built in"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_status(
    commands: Commands, words: tuple[str, ...], status: int, reason: str
) -> None:
    result = commands.run(*words)
    assert result.returncode == status
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_why_a_download_failed_is_said_once(commands: Commands, fake: FakeHub) -> None:
    fake.fail(status=404)
    result = commands.run("pull", "org/tiny-GGUF")
    assert result.returncode == 1
    assert result.stderr.count("is not where the Hub says it is") == 1


def test_a_full_disk_is_said_before_anything_is_fetched(
    commands: Commands, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eaglechat.hub.downloads.install.free_bytes", lambda folder: 10)
    result = commands.run("pull", "tiny")
    assert result.returncode == 1
    assert "more are needed" in result.stderr
    assert fake.requests("storage") == []


def test_an_interrupt_keeps_what_came_and_says_so(commands: Commands, fake: FakeHub) -> None:
    fake.fail(stall_after=100)
    process = commands.start("pull", "org/tiny-GGUF")
    parts = commands.cache.glob
    until(
        lambda: [part for part in parts("models--*/blobs/*.part") if part.stat().st_size == 100],
        "the bytes before the stall",
    )
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "what was downloaded stays" in err
    assert "Traceback" not in err
    assert commands.run("pull", "org/tiny-GGUF").returncode == 0
    assert "bytes=100-" in [seen.range for seen in fake.requests("storage")]


def test_two_processes_share_one_download(commands: Commands, fake: FakeHub) -> None:
    def until_both_have_asked(*_: object) -> None:
        until(lambda: len(fake.requests("hub", "HEAD")) >= 2, "a question of both")

    fake.pace = until_both_have_asked
    first, second = (commands.start("pull", "org/tiny-GGUF") for _ in range(2))
    outputs = [process.communicate(timeout=PATIENCE_S)[0] for process in (first, second)]
    assert outputs[0] == outputs[1]
    assert Path(outputs[0].strip()).read_bytes() == TARGET
    of_target = sha256(TARGET)
    heads = fake.requests("hub", "HEAD")
    assert len([seen for seen in heads if seen.path.endswith("/tiny-Q4_K_M.gguf")]) == 2
    assert len([seen for seen in fake.requests("storage") if of_target in seen.path]) == 1


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def a_file(done: int, path: str = "sub/model.gguf") -> FileSnapshot:
    return FileSnapshot(
        remote=RemoteFile("user/model", path, "0" * 40, 2000, None),
        state="downloading",
        bytes_done=done,
        speed=500.0,
        note="",
        path=None,
    )


def together(*files: FileSnapshot) -> Install:
    return Install("m", files)


def test_a_terminal_gets_bars_redrawn_in_place(terminal: Terminal) -> None:
    progress = Progress(terminal)
    for done in (500, 1000):
        show_install(progress, together(a_file(done, "a/model.gguf"), a_file(done, "b/model.gguf")))
    progress.close()
    first, second, total = terminal.frames()[-1]
    assert first == second
    assert re.fullmatch(r"model\.gguf ━+╺?━+  50% 1 kB of 2 kB  500 B/s  0:02 left", first)
    assert re.fullmatch(r"total +━+╺?━+  50% 2 kB of 4 kB  1 kB/s  0:02 left", total)


def test_what_a_program_reads_is_not_drawn_over(terminal: Terminal, capsys: Any) -> None:
    progress = Progress(terminal)
    progress.show_bytes("converting", 50, 100)
    print("/a/path")
    progress.show_bytes("converting", 100, 100)
    progress.close()
    assert capsys.readouterr().out == "/a/path\n"
    assert terminal.frames()[-1][0].endswith("100% 100 B of 100 B")


@pytest.mark.parametrize("variable", ["dumb", "unknown"])
def test_a_terminal_that_cannot_redraw_gets_lines(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("TERM", variable)
    progress = Progress(terminal)
    progress.show_bytes("converting", 55, 100)
    progress.close()
    assert terminal.getvalue() == "converting: 50%  55 B of 100 B\n"


def test_a_stopped_download_is_not_loaded(commands: Commands) -> None:
    partial = RepoCache(commands.cache, "org/half").partial(sha256(TARGET))
    partial.parent.mkdir(parents=True)
    partial.write_bytes(TARGET)
    RepoCache(commands.cache, "org/half").write_record(
        sha256(TARGET), "half.gguf", "main", 2 * len(TARGET)
    )
    result = commands.run("run", "--target", "org/half", "hi", offline=True)
    assert result.returncode == 1
    assert "org/half is not complete. Its download stopped at 50%" in result.stderr
