from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from eaglechat import settings
from eaglechat.cli import options
from eaglechat.settings import Settings


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EAGLECHAT_HOME", str(tmp_path))
    path = tmp_path / "config" / "config.toml"
    path.parent.mkdir()
    return path


def test_without_a_file_everything_is_default(config: Path) -> None:
    assert settings.load(config) == (Settings(), [])


def test_a_bad_value_is_named_and_costs_only_itself(config: Path) -> None:
    config.write_text(
        '[generation]\ntemperature = "hot"\ntop_k = 7\nseed = 1\n'
        "[speculation]\nn_draft_max = 99\np_min = 0.25\nn_drafts = 2\n"
        "[interface]\ntoken_colours = 1\n"
    )

    loaded, problems = settings.load(config)

    assert {problem.key for problem in problems} == {
        "generation.temperature",
        "speculation.n_draft_max",
        "speculation.n_drafts",
        "interface.token_colours",
    }
    assert all(str(config) in str(problem) and problem.key in str(problem) for problem in problems)
    by_key = {problem.key: str(problem) for problem in problems}
    assert "'hot'" in by_key["generation.temperature"]
    assert "99" in by_key["speculation.n_draft_max"]
    assert "16" in by_key["speculation.n_draft_max"]
    assert (loaded.generation.temperature, loaded.speculation.n_draft_max) == (0.7, "auto")
    assert (loaded.generation.top_k, loaded.generation.seed) == (7, 1)
    assert loaded.speculation.p_min == 0.25
    assert loaded.interface.token_colours is True


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("generation = 3", "generation"),
        ("[generations]\ntop_k = 1", "generations"),
        ("[generation]\ntop_k = true", "generation.top_k"),
        ("[generation]\ntop_k = 1.5", "generation.top_k"),
        ("[generation]\ntemperature = nan", "generation.temperature"),
        ("[generation]\ntemperature = inf", "generation.temperature"),
        ("[engine]\nn_batch = 16", "engine.n_batch"),
        ("[engine]\nn_ctx = 99999999999", "engine.n_ctx"),
        ("[engine]\nn_gpu_layers = 99999999999", "engine.n_gpu_layers"),
        ("[engine]\ncommand = 'ssh'", "engine.command"),
        ("[engine]\nsplit_mode = 'rows'", "engine.split_mode"),
        ("[engine]\nflash_attention = true", "engine.flash_attention"),
        ("[engine]\ntensor_split = [1, -1]", "engine.tensor_split"),
    ],
)
def test_a_value_of_the_wrong_kind_or_size_is_refused(config: Path, value: str, key: str) -> None:
    config.write_text(value)

    loaded, problems = settings.load(config)

    assert [problem.key for problem in problems] == [key]
    assert loaded == Settings()


def test_the_split_that_llama_cpp_cannot_draft_with_is_refused_with_the_reason(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("[engine]\nsplit_mode = 'tensor'")
    _, (problem,) = settings.load(config)
    assert "'tensor' is not one of none, layer, row" in str(problem)
    assert "assertion when a draft reads the target's layers" in str(problem)

    parser = argparse.ArgumentParser()
    options.add_load_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--split-mode", "tensor"])
    assert "assertion when a draft reads the target's layers" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"[generation", b"\xff\xfe", b'a = "\n'])
def test_a_file_that_is_no_toml_is_named(config: Path, content: bytes) -> None:
    config.write_bytes(content)

    loaded, (problem,) = settings.load(config)

    assert loaded == Settings()
    assert str(problem).startswith(f"{config}: cannot be read")


def test_every_setting_is_described_with_a_default_in_its_range() -> None:
    documented = {doc.name: doc for doc in settings.describe()}

    present = {
        f"{table}.{key}"
        for table, values in settings.msgspec.to_builtins(Settings()).items()
        for key in values
    }
    assert documented.keys() == present
    for doc in documented.values():
        assert doc.description.endswith("."), doc.name
        if doc.minimum is not None and doc.default != "auto":
            assert doc.default >= doc.minimum, doc.name
        if doc.maximum is not None and doc.default != "auto":
            assert doc.default <= doc.maximum, doc.name
    draft_length = documented["speculation.n_draft_max"]
    assert (draft_length.type, draft_length.minimum, draft_length.maximum) == (
        'int or "auto"',
        0,
        16,
    )


def test_flags_override_the_file_and_leave_the_rest(config: Path) -> None:
    config.write_text(
        "[generation]\ntemperature = 0.3\ntop_k = 7\n[speculation]\nn_draft_max = 8\np_min = 0.5\n"
    )
    parser = argparse.ArgumentParser()
    options.add_setting_options(parser)
    flags = "--temperature 0 --n-draft-max 0 --no-speculation --seed 5 --ctx 512 --threads 1"

    merged, problems = options.load_settings(parser.parse_args(flags.split()))

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
        "--temperature nan", "--seed -1", "--seed 4294967295", "--max-tokens 0", "--threads 0",
        "--ctx 99999999999", "--gpu-layers -2", "--split-mode rows", "--main-gpu -1",
        "--tensor-split x", "--flash-attention maybe",
    ],
)  # fmt: skip
def test_a_flag_out_of_range_is_wrong_usage(flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    options.add_setting_options(parser)

    with pytest.raises(SystemExit) as exit_:
        parser.parse_args(flags.split())

    assert exit_.value.code == 2
    flag, value = flags.split()
    assert re.search(rf"{flag}.*{re.escape(value)}", capsys.readouterr().err)


def test_flags_and_file_say_how_gpus_are_used(config: Path) -> None:
    config.write_text("[engine]\nmain_gpu = 1\ntensor_split = [3, 1]\nflash_attention = 'on'\n")
    parser = argparse.ArgumentParser()
    options.add_load_options(parser)
    flags = "--split-mode none --tensor-split 0,2.5 --gpu-layers 7"

    merged, problems = options.load_settings(parser.parse_args(flags.split()))

    assert problems == []
    load = merged.to_load_options()
    assert (load.n_gpu_layers, load.split_mode, load.main_gpu) == (7, "none", 1)
    assert (load.tensor_split, load.flash_attention) == ((0.0, 2.5), "on")


def test_the_engine_gets_what_the_settings_say() -> None:
    defaults = Settings()

    assert defaults.to_sampling().seed is None
    assert defaults.to_load_options().n_threads is None
    assert defaults.with_n_draft_max(5).to_speculation().n_draft_max == 5
