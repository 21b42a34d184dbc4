"""What drafts, in words."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from eaglechat.gguf.header import read_header
from eaglechat.wire.drafters import DrafterKind
from eaglechat.wire.records import NGRAM
from eaglechat.words import drafting
from eaglechat.words.wording import NAMES, drafter
from tests import ggufs

ROOT = Path(__file__).parents[2]
HEAD = ("blk.6.nextn.eh_proj.weight", (8, 8))
BLOCK = ("blk.0.attn_norm.weight", (8,))


def test_every_kind_has_a_name_which_the_docs_have_too() -> None:
    assert set(NAMES) == {*get_args(DrafterKind), NGRAM}
    page = (ROOT / "docs" / "hub.md").read_text(encoding="utf-8")
    for name in NAMES.values():
        assert name in page
    assert (drafter(None), drafter("of a server")) == ("draft", "of a server")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            ("qwen3", (), 0),
            "its file has no MTP heads. A draft that was made for it would help.",
        ),
        (
            ("qwen35", (), 0),
            "its file has no MTP heads. A version of this model with MTP "
            "heads, if there is one, or a draft that was made for it would help.",
        ),
        (
            ("qwen35", (), 1),
            "its MTP heads were stripped, but its header still declares 1. A "
            "version of this model with its MTP heads or a draft that was made for it would help.",
        ),
        (
            ("deepseek4", (HEAD,), 1),
            "llama.cpp cannot run the MTP heads of deepseek4 models. A draft "
            "that was made for it would help.",
        ),
        (
            ("exaone4", (HEAD,), 1),
            "llama.cpp cannot run the MTP heads of exaone4 models, and no "
            "draft runs with exaone4 models.",
        ),
    ],
)
def test_why_nothing_drafts_and_what_would_help(
    tmp_path: Path, data: tuple[str, tuple[tuple[str, tuple[int, ...]], ...], int], said: str
) -> None:
    architecture, tensors, heads = data
    file = tmp_path / "m.gguf"
    file.write_bytes(target(architecture, tensors=(BLOCK, *tensors), heads=heads))
    assert drafting.why_none(read_header(file)) == f"No draft model, n-grams only: {said}"


def target(architecture: str, *, tensors: ggufs.Tensors, heads: int) -> bytes:
    declared = {f"{architecture}.nextn_predict_layers": heads}
    return ggufs.target(architecture, n_layers=6 + heads, tensors=tensors, **declared)
