from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eaglechat.gguf.header import read_header
from eaglechat.gguf.pairing import check_pair, kinds
from eaglechat.gguf.preflight import PreflightError
from tests import ggufs, tiny


def refusal(target: Path, draft: Path | None) -> str:
    """What the user is told; one sentence, without the paths' folders."""
    with pytest.raises(PreflightError) as error:
        check_pair(target, draft)
    message = str(error.value)
    assert message
    assert "\n" not in message
    assert not message.endswith(".")
    return message.replace(f"{target.parent}/", "")


def test_a_pair_that_fits_passes_with_both_headers(tiny_files: tuple[Path, Path]) -> None:
    target, draft = check_pair(*tiny_files)

    assert draft is not None
    assert (target.path, draft.path) == tiny_files
    assert check_pair(tiny_files[0], None)[1] is None


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


@pytest.mark.parametrize("stray", [-1, len(tiny.TOKENS)])
def test_a_draft_token_that_stands_for_none_of_the_target_is_refused(
    tiny_files: tuple[Path, Path], tmp_path: Path, stray: int
) -> None:
    draft = Path(shutil.copy(tiny_files[1], tmp_path))
    header = read_header(draft)
    d2t = next(tensor for tensor in header.tensors if tensor.name == "d2t")
    with draft.open("r+b") as file:
        file.seek(header.data_start + d2t.offset + 8)
        file.write(struct.pack("<q", stray))

    why = f"names token {stray}, its vocabulary has {len(tiny.TOKENS)}"
    assert why in refusal(tiny_files[0], draft)
