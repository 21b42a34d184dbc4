"""The flags of the settings: made from the model, on top of the file."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from eaglechat.cli import COMMANDS, main, options, pairs
from eaglechat.cli.status import CommandError
from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.hub.local.pairs import Pair
from eaglechat.settings.description import describe
from eaglechat.settings.model import Settings
from eaglechat.wire.protocol import AUTO
from tests import ggufs
from tests.hub import ollama_store


@pytest.fixture
def config(home: Path) -> Path:
    path = home / "eaglechat" / "config" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def test_a_model_here_is_a_pair_by_its_name(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setenv("HOME", str(tmp_path))
    blob = ollama_store.put(tmp_path / "ollama", "qwen3/8b", ggufs.target())
    own = tmp_path / "own" / "draft.gguf"
    own.parent.mkdir()
    own.write_bytes(ggufs.draft())
    config.write_text(f"[library]\nfolders = ['{own.parent}']\n")
    made = argparse.ArgumentParser()
    options.add_pair_options(made)
    known = PairLibrary(tmp_path / "state")

    def chosen(*words: str) -> tuple[str, Path, Path | None]:
        pair = pairs.chosen_pair(made.parse_args(words), known)
        assert pair is not None
        return pair.name, pair.target, pair.draft

    assert chosen("--pair", "qwen3:8b") == ("qwen3:8b", blob, None)
    for draft in ("draft", str(own)):
        named = ("--target", "qwen3:8b", "--draft", draft)
        assert chosen(*named) == ("qwen3:8b + draft", blob, own)
    # A folder by that name in the current one is no model.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3:8b").mkdir()
    for same in (
        "qwen3:8b", "QWEN3:8B", "library/qwen3:8b", "registry.ollama.ai/library/qwen3:8b",
        "https://ollama.com/library/qwen3:8b",
    ):  # fmt: skip
        assert chosen("--target", same)[1] == chosen("--pair", same)[1] == blob
    # What was loaded from a blob that `ollama pull` replaced is found again by its name.
    known.remember(Pair("qwen3:8b", tmp_path / "gone", None, "files"))
    assert chosen("--pair", "qwen3:8b")[1] == blob


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("qwen3:9b", "there is no model named 'qwen3:9b'.*; did you mean qwen3:8b?"),
        ("registry.ollama.ai/library/gone:1b", "`ollama pull gone:1b` downloads it"),
        ("user/repo:Q4_K_M", "`eaglechat pull user/repo:Q4_K_M` downloads it"),
        ("https://huggingface.co/user/repo", "`eaglechat pull user/repo` downloads it"),
        ("https://example.com/model", "is not on the Hugging Face Hub"),
    ],
)
def test_a_name_of_no_model_here_says_where_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, why: str
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    ollama_store.put(tmp_path / "ollama", "qwen3/8b", ggufs.target())
    made = argparse.ArgumentParser()
    options.add_pair_options(made)
    given = made.parse_args(["--target", named])
    with pytest.raises(CommandError, match=why):
        pairs.chosen_pair(given, PairLibrary(tmp_path / "state"))


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(
    ("prompt", "is_name"), [("qwen3:8b", True), ("Qwen3:8B", True), ("2:1", False), ("a b", False)]
)
def test_a_prompt_that_is_a_models_name_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    prompt: str,
    is_name: bool,
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    ollama_store.put(tmp_path / "ollama", "qwen3/8b", ggufs.target())
    pairs.say_if_named(prompt)
    assert (f"`eaglechat run --target {prompt} PROMPT`" in capsys.readouterr().err) == is_name


def parser(*tables: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    options.add_setting_options(made, *(tables or Settings.__struct_fields__))
    return made


def parsed(*flags: str) -> tuple[Settings, list[object]]:
    merged, problems = options.load_settings(parser().parse_args(flags))
    return merged, list(problems)


def test_flags_override_the_file_and_leave_the_rest(config: Path) -> None:
    config.write_text(
        "[generation]\ntemperature = 0.3\ntop_k = 7\n[speculation]\nn_draft_max = 8\np_min = 0.5\n"
    )
    flags = "--temperature 0 --n-draft-max 0 --no-speculation --seed 5 --ctx 512 --threads 1"

    merged, problems = parsed(*flags.split())

    assert problems == []
    assert (merged.generation.temperature, merged.generation.top_k) == (0.0, 7)
    assert merged.generation.seed == 5
    assert (merged.speculation.n_draft_max, merged.speculation.p_min) == (0, 0.5)
    assert not merged.speculation.enabled
    assert (merged.engine.n_ctx, merged.engine.n_threads) == (512, 1)


@pytest.mark.parametrize(
    "flags",
    [
        "--n-draft-max -1", "--n-draft-max 99", "--n-draft-max three", "--p-min 2",
        "--temperature nan", "--seed -2", "--seed 4294967295", "--max-tokens -1", "--threads -1",
        "--ctx 99999999999", "--gpu-layers -2", "--split-mode rows", "--main-gpu -1",
        "--tensor-split x", "--flash-attention maybe", "--split-mode tensor", "--top-k -1",
        "--engine-command ssh",
    ],
)  # fmt: skip
def test_a_flag_out_of_range_is_wrong_usage(flags: str, capsys: pytest.CaptureFixture[str]) -> None:

    with pytest.raises(SystemExit) as exit_:
        parser().parse_args(flags.split())

    assert exit_.value.code == 2
    flag, value = flags.split()
    assert re.search(rf"{flag}.*{re.escape(value)}", capsys.readouterr().err)


def test_flags_and_file_say_how_gpus_are_used(config: Path) -> None:
    config.write_text("[engine]\nmain_gpu = 1\ntensor_split = [3, 1]\nflash_attention = 'on'\n")
    flags = "--split-mode none --tensor-split 0,2.5 --gpu-layers 7"

    merged, problems = parsed(*flags.split())

    assert problems == []
    load = merged.to_load_options()
    assert (load.n_gpu_layers, load.split_mode, load.main_gpu) == (7, "none", 1)
    assert (load.tensor_split, load.flash_attention) == ((0.0, 2.5), "on")


def test_every_setting_can_be_given_for_one_start(config: Path) -> None:
    assigned, _ = parsed(
        "-o", "generation.top_k=5", "-o", "interface.show_panel=off",
        "-o", 'library.folders=["/a b"]', "-o", "speculation.n_draft_max=auto",
    )  # fmt: skip
    assert assigned.generation.top_k == 5
    assert assigned.interface.show_panel is False
    assert assigned.library.folders == ("/a b",)
    flagged, _ = parsed("--top-k", "6", "--n-batch", "64", "--n-min", "1", "--theme", "mine",
                        "--draft-kv-type", "q8_0", "--engine-command", '["x"]')  # fmt: skip
    assert (flagged.generation.top_k, flagged.engine.n_batch) == (6, 64)
    assert (flagged.speculation.n_min, flagged.engine.draft_kv_type) == (1, "q8_0")
    assert (flagged.engine.command, flagged.interface.theme) == (("x",), "mine")


def test_of_a_setting_given_twice_the_last_one_counts(config: Path) -> None:
    given = ("-o", "generation.top_k=5", "--top-k", "6", "-o", "generation.top_k=7")
    assert parsed(*given)[0].generation.top_k == 7
    assert parsed(*given[:4])[0].generation.top_k == 6


def test_the_defaults_that_mean_by_itself_can_be_asked_for_again(config: Path) -> None:
    config.write_text("[engine]\nn_threads = 3\n[generation]\nseed = 4\nmax_tokens = 5\n")
    merged, _ = parsed("--threads", "0", "--seed", "-1", "--max-tokens", "0")
    assert merged.to_load_options() == Settings().to_load_options()
    assert merged.generation == Settings().generation


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("generation.temperature=9", "generation.temperature 9 must be between 0 and 5"),
        ("generation.tempreature=1", "did you mean generation.temperature?"),
        ("temp=1", "temp is not a setting; did you mean generation.temperature?"),
        ("engine.zzzz=1", "engine.zzzz is not a setting; [engine] has n_ctx, n_batch"),
        ("zzzz=1", "the tables are generation, speculation"),
        ("generation.temperature", "has no value: write table.key=value"),
        ("interface.theme=x", "interface.theme does not apply to this command"),
    ],
)
def test_a_wrong_assignment_is_wrong_usage(
    given: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        parser("generation", "engine").parse_args(["-o", given])
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert "argument -o: " in error
    assert reason in error


def test_the_help_explains_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for doc in describe():
        assert doc.flag in shown


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("rnu hi", "there is no command 'rnu'; did you mean run? (eaglechat --help)"),
        ("model.gguf", "there is no command 'model.gguf'; --pair and --target name a model"),
        ("--pear x", "there is no --pear; did you mean --pair? (eaglechat --help)"),
        ("--pair x run hi", "options of run go after it: eaglechat run ... (eaglechat --help)"),
        ("--json run hi", "options of run go after it: eaglechat run ... (eaglechat --help)"),
        ("run --temprature=1 x", "there is no --temprature=1; did you mean --temperature?"),
        ("run --zzz hi", "there is no --zzz (eaglechat run --help)"),
        ("run hello there", "'there' is one argument too many; quote what has spaces in it"),
        ("run", "the following arguments are required: PROMPT (eaglechat run --help)"),
        ("run --top 21 x", "argument --top: 21 must be between 0 and 20"),
        ("run --target= x", "argument --target: it is empty; name a model or its file"),
        ("models --temperature 1", "there is no --temperature"),
        ("train --target t -o d --budget 0.5", "argument --budget: '0.5' is neither a time"),
    ],
)
def test_one_line_says_what_is_wrong(
    arguments: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments.split())
    said = capsys.readouterr()
    assert (end.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith(f"eaglechat: {complaint}")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_usage_has_what_must_be_given_and_80_columns_hold_it(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: eaglechat {command}".rstrip() + " ")
    assert lines.index("") <= 2
    assert max(map(len, lines)) <= 80


def test_a_file_that_cannot_be_opened_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(b"\xff")
    for arguments, said in (
        (["bench", "--prompts", "/no/such"], "eaglechat: /no/such: No such file or directory\n"),
        (["bench", "--prompts", str(odd)], f"eaglechat: {odd} is not text in UTF-8\n"),
    ):
        assert main(arguments) == 1
        assert capsys.readouterr().err == said


def test_a_draft_length_is_a_number_or_auto() -> None:
    draft_length = options.value_of("speculation", "n_draft_max")
    assert draft_length("auto") == AUTO
    assert draft_length("16") == 16
    with pytest.raises(argparse.ArgumentTypeError, match="between 0 and 16"):
        draft_length("17")
