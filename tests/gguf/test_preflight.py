from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from eaglechat.gguf.header import read_header
from eaglechat.gguf.pairing import check_pair, kinds
from eaglechat.gguf.preflight import PreflightError
from tests import ggufs, tiny

Files = tuple[Path, Path | None]


def refusal(target: Path, draft: Path | None) -> str:
    """What the user is told; one sentence, without the paths' folders."""
    with pytest.raises(PreflightError) as error:
        check_pair(target, draft)
    message = str(error.value)
    assert message
    assert "\n" not in message
    assert not message.endswith(".")
    return message.replace(f"{target.parent}/", "")


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Files]:
    """Writes a pair whose headers differ from a good one's as told."""

    def make(target: dict[str, Any] | None = None, draft: dict[str, Any] | None = None) -> Files:
        return (
            tiny.write_target(tmp_path / "target.gguf", **(target or {})),
            tiny.write_draft(tmp_path / "draft.gguf", **(draft or {})),
        )

    return make


def test_a_pair_that_fits_passes_with_both_headers(tiny_files: tuple[Path, Path]) -> None:
    target, draft = check_pair(*tiny_files)

    assert draft is not None
    assert (target.path, draft.path) == tiny_files
    assert check_pair(tiny_files[0], None)[1] is None


@pytest.mark.real
def test_the_built_in_pair_passes(real_files: tuple[Path, Path]) -> None:
    check_pair(*real_files)


def test_missing_files_are_named_by_their_role(tiny_files: tuple[Path, Path]) -> None:
    target, draft = tiny_files
    missing = target.with_name("missing.gguf")

    assert refusal(missing, draft) == "the target missing.gguf does not exist"
    assert refusal(target, missing) == "the draft missing.gguf does not exist"


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
def test_why_the_system_does_not_give_a_file_is_said_in_words(tmp_path: Path) -> None:
    circle = tmp_path / "circle.gguf"
    circle.symlink_to(circle)

    why = os.strerror(errno.ELOOP)
    assert refusal(circle, None) == f"the target circle.gguf cannot be read: {why}"


def test_files_that_are_no_models_are_named_by_their_role(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    text = tmp_path / "text.gguf"
    text.write_text("Once upon a time")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_files[0].read_bytes()[:50_000])
    nameless = tiny.write_target(tmp_path / "nameless.gguf", **{"general.architecture": ""})

    assert refusal(text, None).startswith("the target cannot be read: text.gguf is not a GGUF")
    assert "the draft cannot be read" in refusal(tiny_files[0], text)
    assert "cut.gguf is cut short" in refusal(cut, None)
    assert "50,000" in refusal(cut, None)
    assert "is a directory" in refusal(tmp_path, None)
    assert "does not name its architecture" in refusal(nameless, None)


def test_swapped_files_are_recognised(tiny_files: tuple[Path, Path]) -> None:
    target, draft = tiny_files

    message = refusal(draft, target)

    assert "the target draft.gguf is a draft (architecture eagle3)" in message
    assert "are target and draft swapped? (the draft given is" in message
    assert "give it as the draft" in refusal(draft, None)


def family(path: Path, tokens: Sequence[str], **changes: Any) -> Path:
    """The header of a model with these tokens."""
    of_tokenizer = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.tokens": list(tokens),
    }
    path.write_bytes(ggufs.target(n_vocab=0, **{**of_tokenizer, **changes}))
    return path


TEXTS = [f"token {id}" for id in range(300)]


@pytest.mark.parametrize(
    ("tokens", "changes", "why"),
    [
        (
            TEXTS,
            {"tokenizer.ggml.model": "llama"},
            "tokenizer is gpt2 here, llama there",
        ),
        (TEXTS, {"tokenizer.ggml.bos_token_id": 3}, "the BOS token is 1 here, 3 there"),
        (TEXTS, {"tokenizer.ggml.add_bos_token": False}, "the BOS token is 1 here, None there"),
        (TEXTS, {"tokenizer.ggml.add_eos_token": True}, "the EOS token is None here, 2 there"),
        (TEXTS[:171], {}, "300 tokens here, 171 there"),
        ([*TEXTS[:5], "other", *TEXTS[6:]], {}, "token 5 is 'token 5' here, 'other' there"),
        (TEXTS, {"qwen3.ssm.state_size": 16}, "is a recurrent or hybrid model"),
        (TEXTS, {"qwen3.shortconv.l_cache": 3}, "is a recurrent or hybrid model"),
    ],
)
def test_a_draft_model_has_the_vocabulary_of_its_target(
    tmp_path: Path, tokens: Sequence[str], changes: dict[str, Any], why: str
) -> None:
    target = family(tmp_path / "target.gguf", TEXTS)
    assert why in refusal(target, family(tmp_path / "draft.gguf", tokens, **changes))


@pytest.mark.parametrize("tokens", [TEXTS, TEXTS[:172], [*TEXTS, *"abc"], [*"abcde", *TEXTS[5:]]])
def test_any_model_of_the_family_may_draft(tmp_path: Path, tokens: Sequence[str]) -> None:
    target = family(tmp_path / "target.gguf", TEXTS)
    draft = family(tmp_path / "draft.gguf", tokens, **{"qwen3.block_count": 2})
    assert kinds(*check_pair(target, draft)) == ("model",)


@pytest.mark.parametrize(
    ("target", "draft", "both_values"),
    [
        ({}, {"target_hidden_size": 64}, ("hidden size 64", "target.gguf has 32")),
        ({}, {"layers": (1, 2)}, ("names 2 extract layers", "needs 3")),
        ({}, {"layers": ()}, ("names 0 extract layers", "needs 3")),
        ({}, {"layers": (1, 2, 4)}, ("after the last layer (4)", "layers 0 to 3")),
        ({}, {"layers": (-1, 2, 3)}, ("input of layer -1", "layers 0 to 3")),
        ({"block_count": 3}, {}, ("after the last layer (3)", "layers 0 to 2")),
        ({}, {"block_count": 2}, ("has 2 layers", "has 1")),
        ({}, {"embedding_length": 64}, ("hidden size 64", "32")),
        ({"general.architecture": "gemma3"}, {}, ("architecture gemma3", "layer inputs")),
        ({"general.architecture": "bert"}, {}, ("bert", "language model")),
    ],
)
def test_a_pair_that_llama_cpp_would_die_of_is_refused_with_both_values(
    made: Callable[..., Files],
    target: dict[str, Any],
    draft: dict[str, Any],
    both_values: tuple[str, ...],
) -> None:
    message = refusal(*made(target, draft))

    for value in both_values:
        assert value in message


@pytest.mark.parametrize("stray", [-1, len(tiny.TOKENS)])
def test_a_draft_token_that_stands_for_none_of_the_target_is_refused(
    made: Callable[..., Files], stray: int
) -> None:
    target, draft = made()
    assert draft is not None
    header = read_header(draft)
    d2t = next(tensor for tensor in header.tensors if tensor.name == "d2t")
    with draft.open("r+b") as file:
        file.seek(header.data_start + d2t.offset + 8)
        file.write(struct.pack("<q", stray))

    assert f"names token {stray}, its vocabulary has {len(tiny.TOKENS)}" in refusal(target, draft)


def test_a_draft_for_another_vocabulary_is_refused(
    made: Callable[..., Files], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, _ = made()
    monkeypatch.setattr(tiny, "TOKENS", [*tiny.TOKENS, "zz"])
    draft = tiny.write_draft(target.with_name("wide.gguf"))

    message = refusal(target, draft)

    assert "a vocabulary of 33 tokens, target.gguf has 32" in message


def test_the_state_after_the_last_layer_is_offered_by_some_architectures(
    made: Callable[..., Files],
) -> None:
    files = made({"general.architecture": "gpt-oss"}, {"layers": (1, 2, 4)})

    check_pair(*files)
