"""What headers of block drafters say, and which pairs are refused before llama.cpp sees them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eaglechat.gguf import pairing
from eaglechat.gguf.header import Array, GGUFHeader, read_header
from eaglechat.gguf.pairing import Block, why_unfit
from tests import tiny_kinds


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> tuple[GGUFHeader, GGUFHeader]:
    folder = tmp_path_factory.mktemp("dflash")
    return (
        read_header(tiny_kinds.write_llama(folder / "target.gguf")),
        read_header(tiny_kinds.write_dflash(folder / "draft.gguf")),
    )


def changed(header: GGUFHeader, **values: Any) -> GGUFHeader:
    """The header with other fields; `__` is a dot, None takes a field away."""
    fields = dict(header.fields)
    for name, value in values.items():
        key = name.replace("__", ".")
        fields.pop(key, None)
        if value is not None:
            fields[key] = value
    return replace(header, fields=fields)


def numbers(*values: int) -> Array:
    return Array(len(values), values, is_text=False)


@pytest.mark.parametrize(
    ("variant", "block", "longest"),
    [
        ("dflash", Block("dflash", 8, first=1), 7),
        ("dspark", Block("dspark", 8, first=0, has_confidence=True), 8),
        ("dspark-bonus", Block("dspark", 8, first=1, has_confidence=True), 7),
        ("dflash2", Block("dflash2", 8, first=1), 7),
    ],
)
def test_a_variant_is_told_by_its_tensors(
    tmp_path: Path, variant: tiny_kinds.Variant, block: Block, longest: int
) -> None:
    header = read_header(tiny_kinds.write_dflash(tmp_path / "draft.gguf", variant=variant))
    assert pairing.kind_of(header) == block.variant
    assert pairing.block_of(header) == block
    assert pairing.block_of(header).longest == longest


def test_the_rest_of_a_block_is_metadata(headers: tuple[GGUFHeader, GGUFHeader]) -> None:
    _, draft = headers
    causal = changed(draft, dflash__attention__causal=True, dflash__sample_from_anchor=True)
    # Only DSpark drafts with the row of the last token.
    assert pairing.block_of(causal) == Block("dflash", 8, first=1, is_causal=True)
    assert pairing.block_of(changed(draft, dflash__block_size=64)).longest == 16


def test_dspark_may_lack_a_confidence_head(tmp_path: Path) -> None:
    header = read_header(tiny_kinds.write_dflash(tmp_path / "draft.gguf", variant="dspark"))
    tensors = tuple(one for one in header.tensors if one.name != "conf_proj.weight")
    assert not pairing.block_of(replace(header, tensors=tensors)).has_confidence


@pytest.mark.parametrize("layers", [(1, 2, 3), (0,), (0, 1, 2, 3, 3)])
def test_a_pair_that_fits_passes(
    headers: tuple[GGUFHeader, GGUFHeader], layers: tuple[int, ...]
) -> None:
    target, draft = headers
    assert why_unfit(target, changed(draft, dflash__target_layers=numbers(*layers))) is None


@pytest.mark.parametrize(
    ("of_target", "of_draft", "refusal"),
    [
        (
            {"general__architecture": "gemma3"},
            {},
            "has the architecture gemma3, whose llama.cpp graph does not export layer inputs",
        ),
        ({"llama__embedding_length": 64}, {}, "target with hidden size 96, target.gguf has 64"),
        (
            {"tokenizer__ggml__tokens": Array(70, None, is_text=True)},
            {},
            "vocabulary of 66 tokens, target.gguf has 70",
        ),
        (
            {"llama__block_count": 3},
            {},
            "the last layer (3) of its target, target.gguf (llama) offers the inputs of layers 0",
        ),
        ({}, {"dflash__target_layers": numbers(-1, 2)}, "reads the input of layer -1"),
        ({}, {"dflash__target_layers": numbers()}, "does not give the target layers"),
        ({}, {"dflash__target_layers": 3}, "does not give the target layers"),
        ({}, {"dflash__target_layers": None}, "does not give the target layers"),
        ({}, {"dflash__block_size": None}, "(dflash.block_size) None, in which it cannot draft"),
        ({}, {"dflash__block_size": 1}, "(dflash.block_size) 1, in which it cannot draft"),
        ({}, {"tokenizer__ggml__mask_token_id": None}, "has no mask token"),
        ({}, {"tokenizer__ggml__mask_token_id": 66}, "has no mask token"),
        (
            {},
            {"dflash__attention__value_length": 32},
            "keys 64 wide and values 32 wide, llama.cpp's graph of it needs the same width",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_one_sentence(
    headers: tuple[GGUFHeader, GGUFHeader],
    of_target: dict[str, Any],
    of_draft: dict[str, Any],
    refusal: str,
) -> None:
    target, draft = headers
    message = why_unfit(changed(target, **of_target), changed(draft, **of_draft))
    assert message is not None
    assert refusal in message
    assert "\n" not in message
    assert not message.endswith(".")


def test_the_state_after_the_last_layer_is_read_where_the_target_has_it(
    headers: tuple[GGUFHeader, GGUFHeader],
) -> None:
    target, draft = headers
    shape = {
        key.replace("llama.", "gpt-oss."): value
        for key, value in target.fields.items()
        if key.startswith("llama.")
    }
    gpt_oss = changed(target, general__architecture="gpt-oss", **shape)
    assert why_unfit(gpt_oss, changed(draft, dflash__target_layers=numbers(2, 4))) is None
