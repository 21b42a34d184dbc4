"""What drafts, in words."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from eaglechat.gguf.header import GGUFHeader, read_header
from eaglechat.tui.texts import drafting
from eaglechat.tui.texts.wording import DRAFTERS, drafter
from eaglechat.wire.protocol import DrafterKind
from eaglechat.wire.records import NGRAM
from tests import ggufs
from tests.one_of_each import write_one_of_each

ROOT = Path(__file__).parents[3]
HEAD = ("blk.6.nextn.eh_proj.weight", (8, 8))
BLOCK = ("blk.0.attn_norm.weight", (8,))


def test_every_kind_has_a_name_which_the_docs_have_too() -> None:
    assert set(DRAFTERS) == {*get_args(DrafterKind), NGRAM}
    page = (ROOT / "docs" / "hub.md").read_text(encoding="utf-8")
    for name in DRAFTERS.values():
        assert name in page
    assert (drafter(None), drafter("of a server")) == ("draft", "of a server")


def test_a_pair_is_made_of_its_files_and_what_drafts_in_them(tmp_path: Path) -> None:
    folder = write_one_of_each(tmp_path / "own")

    def header(name: str) -> GGUFHeader:
        return read_header(folder / f"{name}.gguf")

    assert drafting.made_of(header("heads"), None) == "hy_v3 F32 1.0 MB with MTP heads"
    assert drafting.made_of(header("unreadable"), None) == "gemma3 F32 2 kB, no draft"
    pair = drafting.made_of(header("plain"), header("dspark"))
    assert pair == "llama F32 943 kB + DSpark F32 1.0 MB"
    # A sidecar stands for the heads in the target.
    pair = drafting.made_of(header("heads"), header("sidecar"))
    assert pair == "hy_v3 F32 1.0 MB + MTP heads F32 377 kB"


def test_a_pair_has_the_draft_and_the_heads(tmp_path: Path) -> None:
    for name, data in (
        ("t", target("qwen35", tensors=(BLOCK, HEAD), heads=1)),
        ("d", ggufs.draft()),
    ):
        (tmp_path / name).write_bytes(data)
    text = drafting.made_of(read_header(tmp_path / "t"), read_header(tmp_path / "d"))
    assert text == "qwen35 F32 1 kB with MTP heads + EAGLE-3 F32 2 kB"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            ("qwen3", (), 0),
            "Only n-grams draft: its file has no MTP heads. A draft that was made for it would "
            "help.",
        ),
        (
            ("qwen35", (), 0),
            "Only n-grams draft: its file has no MTP heads. A version of this model with MTP "
            "heads, if there is one, or a draft that was made for it would help.",
        ),
        (
            ("qwen35", (), 1),
            "Only n-grams draft: its MTP heads were stripped, but its header still declares 1. A "
            "version of this model with its MTP heads or a draft that was made for it would help.",
        ),
        (
            ("deepseek4", (HEAD,), 1),
            "Only n-grams draft: llama.cpp cannot run the MTP heads of deepseek4 models. A draft "
            "that was made for it would help.",
        ),
        (
            ("exaone4", (HEAD,), 1),
            "Only n-grams draft: llama.cpp cannot run the MTP heads of exaone4 models, and no "
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
    assert drafting.why_none(read_header(file)) == said


def target(architecture: str, *, tensors: ggufs.Tensors, heads: int) -> bytes:
    declared = {f"{architecture}.nextn_predict_layers": heads}
    return ggufs.target(architecture, n_layers=6 + heads, tensors=tensors, **declared)
