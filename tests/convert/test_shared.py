"""Embeddings that a draft copied from its target are left out; those it trained are kept."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType

from eaglechat.engine.llama.quantise import quantise
from eaglechat.gguf.header import read_header
from eaglechat.gguf.pairing import check_pair
from eaglechat.hub.convert import ConversionError, convert
from eaglechat.hub.convert.checkpoint import read_safetensors
from eaglechat.hub.convert.target import are_copied, read_rows
from tests.convert.checkpoints import VOCAB, draft, save_safetensors

WIDTH = 256
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0")
BY_LLAMA_CPP = {
    "Q3_K": LlamaFileType.MOSTLY_Q3_K_M,
    "Q4_K": LlamaFileType.MOSTLY_Q4_K_M,
    "Q6_K": LlamaFileType.MOSTLY_Q6_K,
}


def embeddings(trained: float = 0.0) -> np.ndarray:
    """[VOCAB, WIDTH] in BF16's steps; `trained` is how far they moved, by their spread."""
    random = np.random.default_rng(5)
    spread = 0.02 * random.lognormal(0, 0.3, (VOCAB, 1))
    values = spread * random.standard_normal((VOCAB, WIDTH))
    values += trained * spread * random.standard_normal((VOCAB, WIDTH))
    return ((values.astype("<f4").view("<u4") >> 16) << 16).view("<f4")


def target_of(path: Path, kind: str, values: np.ndarray) -> Path:
    """A target's GGUF with these embeddings stored as `kind`."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(12)
    writer.add_embedding_length(WIDTH)
    writer.add_context_length(4096)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([f"tok{i}" for i in range(VOCAB)])
    writer.add_token_types([1] * VOCAB)
    writer.add_token_merges(["a b"])
    packed = gguf.quants.quantize(values, Type[kind])
    writer.add_tensor("token_embd.weight", packed, raw_dtype=Type[kind])
    writer.add_tensor("output.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Targets with the same embeddings, stored as each type."""
    folder = tmp_path_factory.mktemp("targets")
    made = {kind: target_of(folder / f"{kind}.gguf", kind, embeddings()) for kind in TYPES}
    for kind, file_type in BY_LLAMA_CPP.items():
        made[kind] = folder / f"{kind}.gguf"
        quantise(made["F32"], made[kind], file_type, lambda _done, _total: None)
    return made


def stored(folder: Path, values: np.ndarray, dtype: str = "BF16"):
    save_safetensors(folder / "model.safetensors", {"embed_tokens.weight": (dtype, values)})
    (tensor,) = read_safetensors(folder / "model.safetensors")
    return tensor


@pytest.mark.parametrize("kind", [*TYPES, *BY_LLAMA_CPP])
def test_a_copy_is_known_whatever_the_target_is_stored_as(
    targets: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    target = read_header(targets[kind])
    kinds = {tensor.name: tensor.type for tensor in target.tensors}
    assert kinds["token_embd.weight"] == kind
    assert are_copied(stored(tmp_path, embeddings()), target)
    assert are_copied(stored(tmp_path, embeddings(), "F32"), target)
    assert not are_copied(stored(tmp_path, embeddings(trained=0.05)), target)


@pytest.mark.parametrize(
    "values", [np.zeros((VOCAB, WIDTH), np.float32), embeddings()[:, ::-1], embeddings()[::-1]]
)
def test_other_embeddings_are_no_copy(
    targets: dict[str, Path], values: np.ndarray, tmp_path: Path
) -> None:
    for kind in ("BF16", "Q4_K"):
        assert not are_copied(stored(tmp_path, values), read_header(targets[kind]))


def test_a_draft_leaves_out_what_it_copied_and_says_so(
    targets: dict[str, Path], tmp_path: Path
) -> None:
    for name, trained, kept in (("copied", 0.0, False), ("trained", 0.05, True)):
        variant = draft(hidden=WIDTH)
        variant.tensors["embed_tokens.weight"] = ("BF16", embeddings(trained))
        checkpoint = variant.save(tmp_path / name)
        report = convert(checkpoint, targets["Q4_K"], tmp_path / f"{name}.gguf")
        _, header = check_pair(targets["Q4_K"], report.path)
        assert header is not None
        assert ("token_embd.weight" in {tensor.name for tensor in header.tensors}) is kept
        said = "its embeddings are its target's and were left out (164 kB in F16)"
        assert (said in report.notes) is not kept


@pytest.mark.parametrize("kind", [*TYPES, *BY_LLAMA_CPP])
def test_rows_are_read_in_any_order(targets: dict[str, Path], kind: str) -> None:
    header = read_header(targets[kind])
    tensor = next(t for t in header.tensors if t.name == "token_embd.weight")
    whole = read_rows(header.path, header.data_start, tensor)
    assert whole.shape == (VOCAB, WIDTH)
    rows = np.array([0, 1, 2, 9, 7, 7, VOCAB - 1])
    some = read_rows(header.path, header.data_start, tensor, rows)
    np.testing.assert_array_equal(some, whole[rows])
    error = np.linalg.norm(whole - embeddings()) / np.linalg.norm(embeddings())
    assert error < {"Q3_K": 0.2, "Q4_K": 0.1, "Q4_0": 0.1, "Q4_1": 0.1}.get(kind, 0.05)


def test_a_file_cut_short_is_said(targets: dict[str, Path], tmp_path: Path) -> None:
    header = read_header(targets["F16"])
    tensor = next(t for t in header.tensors if t.name == "token_embd.weight")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(targets["F16"].read_bytes()[: header.data_start + 1000])
    with pytest.raises(ConversionError, match=r"cut short inside token_embd\.weight"):
        read_rows(cut, header.data_start, tensor)
