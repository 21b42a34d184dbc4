"""What drafts for which target, by headers alone: what does not fit is refused before llama.cpp
sees the files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest

from eaglechat.gguf.header import Array, GGUFHeader, read_header
from eaglechat.gguf.pairing import (
    Block,
    block_of,
    kind_of,
    kinds,
    pairings,
    why_no_heads,
    why_unfit,
)
from eaglechat.wire.drafters import DrafterKind
from tests import tiny_kinds

WRITERS: dict[str, Callable[..., Any]] = {
    "llama": tiny_kinds.write_llama,
    "eagle3": tiny_kinds.write_eagle3,
    "dflash": tiny_kinds.write_dflash,
    "dspark": partial(tiny_kinds.write_dflash, variant="dspark"),
    "dspark-bonus": partial(tiny_kinds.write_dflash, variant="dspark-bonus"),
    "dflash2": partial(tiny_kinds.write_dflash, variant="dflash2"),
    "hy_v3": tiny_kinds.write_hy_v3,
    "stripped hy_v3": partial(tiny_kinds.write_hy_v3, strip=True),
    "heads of hy_v3": partial(tiny_kinds.write_hy_v3, mtp_only=True),
    "qwen35": tiny_kinds.write_qwen35,
    "stripped qwen35": partial(tiny_kinds.write_qwen35, strip=True),
    "heads of qwen35": partial(tiny_kinds.write_qwen35, mtp_only=True),
    "gemma4": tiny_kinds.write_gemma4,
    "assistant": tiny_kinds.write_gemma4_assistant,
}
Header = Callable[..., GGUFHeader]


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Header:
    """The header of a file with other fields; None takes a field away."""
    folder = tmp_path_factory.mktemp("pairing")

    @cache
    def written(name: str) -> GGUFHeader:
        return read_header(WRITERS[name](folder / f"{name}.gguf"))

    def changed(name: str, changes: dict[str, Any] | None = None) -> GGUFHeader:
        one = written(name)
        fields = {**one.fields, **(changes or {})}
        left = {key: value for key, value in fields.items() if value is not None}
        return replace(one, fields=left)

    return changed


def numbers(*values: int) -> Array:
    return Array(len(values), values, is_text=False)


def texts(count: int) -> dict[str, Any]:
    """A vocabulary of another size than the 66 tokens of these files."""
    return {"tokenizer.ggml.tokens": Array(count, None, is_text=True)}


# --- what a file is ---


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama", None),
        ("hy_v3", None),
        ("stripped hy_v3", None),
        ("qwen35", None),
        ("stripped qwen35", None),
        ("eagle3", "eagle3"),
        ("dflash", "dflash"),
        ("dspark", "dspark"),
        ("dspark-bonus", "dspark"),
        ("dflash2", "dflash2"),
        ("heads of hy_v3", "mtp"),
        ("heads of qwen35", "mtp"),
        ("assistant", "mtp"),
    ],
)
def test_a_drafter_is_told_by_its_header_and_is_no_target(
    header: Header, name: str, kind: DrafterKind | None
) -> None:
    """llama.cpp would end the process."""
    one, target = header(name), header("llama")
    assert kind_of(one) == kind
    alone, swapped = why_unfit(one, None), why_unfit(one, target)
    if kind is None:
        assert alone is None
        return
    assert alone is not None
    what = "has the MTP heads of a model alone" if kind == "mtp" else "is a draft (architecture "
    assert f"{name}.gguf {what}" in alone
    assert alone.endswith("; give it as the draft, with its own target")
    assert f"are target and draft swapped? (the draft given is {target.path})" in str(swapped)


@pytest.mark.parametrize(
    ("name", "changes", "block", "longest"),
    [
        ("dflash", {}, Block("dflash", 8, first=1), 7),
        ("dspark", {}, Block("dspark", 8, first=0, has_confidence=True), 8),
        ("dspark-bonus", {}, Block("dspark", 8, first=1, has_confidence=True), 7),
        ("dflash2", {}, Block("dflash2", 8, first=1), 7),
        # Only DSpark drafts with the row of the last token.
        (
            "dflash",
            {"dflash.attention.causal": True, "dflash.sample_from_anchor": True},
            Block("dflash", 8, first=1, is_causal=True),
            7,
        ),
        ("dflash", {"dflash.block_size": 64}, Block("dflash", 64, first=1), 16),
    ],
)
def test_a_block_is_filled_in_as_its_header_says(
    header: Header, name: str, changes: dict[str, Any], block: Block, longest: int
) -> None:
    found = block_of(header(name, changes))
    assert (found, found.longest) == (block, longest)


def test_dspark_may_lack_a_confidence_head(header: Header) -> None:
    dspark = header("dspark")
    tensors = tuple(one for one in dspark.tensors if one.name != "conf_proj.weight")
    unused = header("dspark", {"dflash.has_confidence_head": False})
    for draft, has_confidence in (
        (dspark, True),
        (replace(dspark, tensors=tensors), False),
        (unused, False),
    ):
        assert block_of(draft).has_confidence is has_confidence


STRIPPED = "its MTP heads were stripped, but its header still declares 1"


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("hy_v3", {}, None),
        ("llama", {}, "its file has no MTP heads"),
        ("stripped hy_v3", {}, STRIPPED),
        ("stripped qwen35", {}, STRIPPED),
        (
            "hy_v3",
            {"hy_v3.nextn_predict_layers": 2},
            "its file declares 2 MTP heads and has 1",
        ),
        (
            "hy_v3",
            {"general.architecture": "deepseek4"},
            "llama.cpp cannot run the MTP heads of deepseek4 models",
        ),
    ],
)
def test_heads_are_run_if_they_are_as_declared_and_llama_cpp_has_a_graph_of_them(
    header: Header, name: str, changes: dict[str, Any], why: str | None
) -> None:
    target = header(name, changes)
    assert why_no_heads(target) == why
    assert kinds(target, None) == (("mtp",) if why is None else ())


# --- pairs ---


@pytest.mark.parametrize(
    ("target", "of_target", "draft", "of_draft", "found"),
    [
        ("llama", {}, "eagle3", {}, ("eagle3",)),
        ("llama", {}, "dflash", {"dflash.target_layers": numbers(0)}, ("dflash",)),
        ("llama", {}, "dflash", {"dflash.target_layers": numbers(0, 1, 2, 3, 3)}, ("dflash",)),
        ("qwen35", {}, "dflash", {}, ("dflash", "mtp")),
        # The state after the last layer is read where the target has it.
        (
            "llama",
            {"general.architecture": "gpt-oss", "gpt-oss.block_count": 4,
             "gpt-oss.embedding_length": 96},
            "dflash",
            {"dflash.target_layers": numbers(2, 4)},
            ("dflash",),
        ),
        # A sidecar stands in for the heads of its target's own file.
        ("hy_v3", {}, "heads of hy_v3", {}, ("mtp",)),
        ("stripped hy_v3", {}, "heads of hy_v3", {}, ("mtp",)),
        ("qwen35", {}, "heads of qwen35", {}, ("mtp",)),
        ("stripped qwen35", {}, "heads of qwen35", {}, ("mtp",)),
        ("gemma4", {}, "assistant", {}, ("mtp",)),
        # A whole model drafts as a model, with or without heads of its own.
        ("hy_v3", {}, "hy_v3", {}, ("model", "mtp")),
        ("hy_v3", {}, "stripped hy_v3", {}, ("model", "mtp")),
    ],
)  # fmt: skip
def test_a_pair_that_fits_has_these_drafters(
    header: Header,
    *,
    target: str,
    of_target: dict[str, Any],
    draft: str,
    of_draft: dict[str, Any],
    found: tuple[DrafterKind, ...],
) -> None:
    headers = header(target, of_target), header(draft, of_draft)
    assert why_unfit(*headers) is None
    assert kinds(*headers) == found
    first, *_ = pairings(*headers)
    assert first.file is headers[1]


EXPORTS_NOTHING = "has the architecture {}, whose llama.cpp graph does not export layer inputs"
NO_LAYERS = "does not give the target layers"
REFUSED: list[tuple[str, dict[str, Any], str, dict[str, Any], str]] = [
    ("llama", {}, "eagle3", {"eagle3.target_hidden_size": 64},
     "for a target with hidden size 64, llama.gguf has 96"),
    ("llama", {}, "eagle3", {"eagle3.target_layers": numbers(1, 2)},
     "names 2 extract layers, EAGLE-3 needs 3"),
    ("llama", {}, "eagle3", {"eagle3.target_layers": numbers()}, "names 0 extract layers"),
    ("llama", {}, "eagle3", {"eagle3.target_layers": 3}, "does not give its extract layers"),
    ("llama", {}, "eagle3", {"eagle3.target_layers": numbers(1, 2, 4)},
     "the state after the last layer (4) of its target, llama.gguf (llama) offers the inputs of "
     "layers 0 to 3"),
    ("llama", {}, "eagle3", {"eagle3.target_layers": numbers(-1, 2, 3)},
     "reads the input of layer -1"),
    ("llama", {"llama.block_count": 3}, "eagle3", {}, "the last layer (3) of its target"),
    ("llama", {}, "eagle3", {"eagle3.block_count": 2},
     "has 2 layers, an EAGLE-3 draft has 1"),
    ("llama", {}, "eagle3", {"eagle3.embedding_length": 64},
     "hidden size 64 and no embeddings or output head of its own"),
    ("llama", {}, "eagle3", texts(70), "a vocabulary of 70 tokens, llama.gguf has 66"),
    ("llama", {"general.architecture": "gemma3"}, "eagle3", {}, EXPORTS_NOTHING.format("gemma3")),

    ("llama", {"general.architecture": "gemma3"}, "dflash", {}, EXPORTS_NOTHING.format("gemma3")),
    ("hy_v3", {}, "dflash", {}, EXPORTS_NOTHING.format("hy_v3")),
    ("llama", {"llama.embedding_length": 64}, "dflash", {},
     "target with hidden size 96, llama.gguf has 64"),
    ("llama", texts(70), "dflash", {}, "vocabulary of 66 tokens, llama.gguf has 70"),
    ("llama", {"llama.block_count": 3}, "dflash", {}, "the last layer (3) of its target"),
    # There llama.cpp would export the state behind the output norm.
    ("qwen35", {}, "dflash", {"dflash.target_layers": numbers(2, 3, 4)},
     "after the last layer (4) of its target, qwen35.gguf (qwen35) offers the inputs of layers 0 "
     "to 3"),
    ("llama", {}, "dflash", {"dflash.target_layers": numbers(-1, 2)},
     "reads the input of layer -1"),
    ("llama", {}, "dflash", {"dflash.target_layers": numbers()}, NO_LAYERS),
    ("llama", {}, "dflash", {"dflash.target_layers": 3}, NO_LAYERS),
    ("llama", {}, "dflash", {"dflash.target_layers": None}, NO_LAYERS),
    ("llama", {}, "dflash", {"dflash.block_size": None},
     "(dflash.block_size) None, in which it cannot draft"),
    ("llama", {}, "dflash", {"dflash.block_size": 1},
     "(dflash.block_size) 1, in which it cannot draft"),
    ("llama", {}, "dflash", {"tokenizer.ggml.mask_token_id": None}, "has no mask token"),
    ("llama", {}, "dflash", {"tokenizer.ggml.mask_token_id": 66}, "has no mask token"),
    ("llama", {}, "dflash", {"dflash.attention.value_length": 32},
     "keys 64 wide and values 32 wide, llama.cpp's graph of it needs the same width"),

    ("hy_v3", {}, "heads of qwen35", {},
     "has the MTP heads of a qwen35 model, hy_v3.gguf is a hy_v3 model"),
    ("hy_v3", {}, "heads of hy_v3", {"hy_v3.embedding_length": 128},
     "hidden size 128, hy_v3.gguf has 96"),
    ("hy_v3", {}, "heads of hy_v3", {"hy_v3.block_count": 5}, "4 layers, hy_v3.gguf has 3"),
    ("hy_v3", {}, "heads of hy_v3", {"hy_v3.nextn_predict_layers": 2},
     "cannot draft: its file declares 2 MTP heads and has 1"),
    ("hy_v3", {}, "heads of hy_v3", texts(32), "vocabulary of 32 tokens, hy_v3.gguf has 66"),

    ("hy_v3", {}, "assistant", {},
     "has the MTP heads of a gemma4 model, hy_v3.gguf is a hy_v3 model"),
    ("gemma4", {}, "assistant", texts(32), "vocabulary of 32 tokens, gemma4.gguf has 66"),
    ("gemma4", {}, "assistant", {"gemma4-assistant.embedding_length_out": 64},
     "hidden size 64, gemma4.gguf has 96"),
    ("gemma4", {}, "assistant", {"gemma4-assistant.attention.head_count_kv": 1},
     "keys of 1 heads 32 wide in the sliding layers of its target, gemma4.gguf has 3 heads 32"),
    ("gemma4", {}, "assistant", {"gemma4-assistant.attention.key_length": 64},
     "64 wide in the full layers of its target"),
    ("gemma4", {}, "assistant", {"gemma4-assistant.attention.key_length_swa": 64},
     "64 wide in the sliding layers of its target"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "of_target", "draft", "of_draft", "why"), REFUSED)
def test_a_pair_that_llama_cpp_would_die_of_is_refused_with_both_values(
    header: Header,
    *,
    target: str,
    of_target: dict[str, Any],
    draft: str,
    of_draft: dict[str, Any],
    why: str,
) -> None:
    message = why_unfit(header(target, of_target), header(draft, of_draft))
    assert message is not None
    assert why in message
    assert "\n" not in message
    assert not message.endswith(".")
