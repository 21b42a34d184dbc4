"""`eaglechat prompt`: what a model would see, and what its reply falls into."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eaglechat.cli import main
from tests import tiny
from tests.engine.templates.dialects import FOLDER
from tests.hub import ollama_store

SWITCHED = str(FOLDER / "switched.jinja")


@pytest.fixture
def conversation(tmp_path: Path) -> str:
    file = tmp_path / "messages.json"
    file.write_text(
        json.dumps(
            [
                {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},
                {"role": "assistant", "content": "4", "reasoning_content": "Two and two."},
                {"role": "user", "content": "Sure?"},
            ]
        )
    )
    return str(file)


def test_the_prompt_of_a_greeting_is_printed(
    tiny_files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prompt", "--target", str(tiny_files[0])]) == 0
    assert capsys.readouterr().out == "hi x\n"


def test_a_model_has_its_name_and_what_is_none_is_one_sentence(
    tiny_files: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("EAGLECHAT_HOME", str(tmp_path / "eaglechat"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    ollama_store.put(tmp_path, "tiny/1b", tiny_files[0].read_bytes())
    assert main(["prompt", "--target", "tiny:1b"]) == 0
    assert capsys.readouterr().out == "hi x\n"
    (tmp_path / "page.gguf").write_text("<html>")
    for file, why in (("page.gguf", "is not a GGUF file"), ("gone.gguf", "does not exist")):
        assert main(["prompt", "--target", str(tmp_path / file)]) == 1
        said = capsys.readouterr().err
        assert (why in said, said.count("\n")) == (True, 1)


def test_a_template_takes_the_place_of_the_model_s_own(
    tiny_files: tuple[Path, Path], conversation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = str(FOLDER / "budget.jinja")
    words = ["--target", str(tiny_files[0]), "--template", budget, "--messages", conversation]

    assert main(["prompt", *words, "--system", "Be brief."]) == 0

    assert capsys.readouterr().out == (
        "<seed:bos>system\nBe brief.<seed:eos><seed:bos>user\n2 + 2?<seed:eos>"
        "<seed:bos>assistant\n<seed:think>Two and two.</seed:think>\n4<seed:eos>"
        "<seed:bos>user\nSure?<seed:eos><seed:bos>assistant\n\n"
    )


@pytest.mark.parametrize(
    ("template", "control", "prompt"),
    [
        (None, (), "2 + 2?4\nSure?\n"),
        ("", (), "2 + 2?4\nSure?\n"),
        (" \n", ("<|im_end|>", "<turn>"), "2 + 2?4\nSure?\n"),
        (
            None,
            ("<|im_start|>", "<|im_end|>"),
            "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n"
            "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n\n",
        ),
    ],
    ids=["no template", "an empty one", "a blank one", "the markers of ChatML"],
)
def test_a_base_model_goes_on_with_the_text_and_that_is_said_once(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    conversation: str,
    *,
    template: str | None,
    control: tuple[str, ...],
    prompt: str,
) -> None:
    base = str(tiny.write_model(tmp_path / "base.gguf", template, control))
    said = "the target's file has no chat template, so it is probably a base model"

    assert main(["prompt", "--target", base, "--messages", conversation]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count(said)) == (prompt, 1)
    assert main(["run", "--target", base, "--max-tokens", "2", "--threads", "1", "Paris is"]) == 0
    assert capsys.readouterr().err.count(said) == 1


def test_a_reply_falls_into_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reply = tmp_path / "reply.txt"
    reply.write_text("<think>\nR\n</think>\n\nA")
    # No model is needed where there is a template.
    monkeypatch.setattr("eaglechat.hub.local.pairs.BUILTIN_TARGET_PACKAGE", "no_such_package")

    assert main(["prompt", "--template", SWITCHED, "--reply", str(reply), "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {
        "prompt": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
        "reasoning": "R\n",
        "answer": "A",
    }


def test_thinking_is_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prompt", "--template", SWITCHED, "--no-thinking"]) == 0
    assert capsys.readouterr().out.endswith("assistant\n<think>\n\n</think>\n\n\n")


def test_a_role_counts_as_for_a_reply(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    roles = home / "eaglechat" / "config" / "roles"
    roles.mkdir(parents=True)
    (roles / "pirate.toml").write_text('system_prompt = "Arr."')

    assert main(["prompt", "--template", SWITCHED, "--role", "pirate"]) == 0
    assert "system\nArr." in capsys.readouterr().out
    assert main(["prompt", "--template", SWITCHED, "--role", "captain"]) == 1
    assert "there is no role 'captain'" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["no JSON", "[]", '[{"content": "a"}]', '{"role": "user"}'])
def test_a_file_that_is_no_conversation_is_named(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "messages.json"
    file.write_text(text)

    assert main(["prompt", "--template", SWITCHED, "--messages", str(file)]) == 1
    assert f"{file} is not a list of messages: " in capsys.readouterr().err
