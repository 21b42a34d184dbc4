from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from eaglechat.gguf.header import (
    GGUFError,
    GGUFTruncatedError,
    parse_as_read,
    parse_beginning,
    parse_header,
    read_header,
)
from eaglechat.gguf.shards import shard_paths
from tests import ggufs, tiny


def test_a_header_says_what_the_model_is(tiny_files: tuple[Path, Path]) -> None:
    target, draft = (read_header(path) for path in tiny_files)

    assert (target.architecture, target.name, target.quantization) == ("llama", "Tiny", "F32")
    assert (target.n_embd, target.n_layers, target.n_vocab) == (32, 4, 32)
    assert target.n_ctx_train == tiny.N_CTX
    assert target.size_bytes == tiny_files[0].stat().st_size
    assert draft.numbers("eagle3.target_layers") == tiny.TARGET_LAYERS
    shapes = {tensor.name: (tensor.shape, tensor.type) for tensor in draft.tensors}
    assert shapes["fc.weight"] == ((96, 32), "F32")
    assert shapes["d2t"] == ((len(tiny.DRAFT_VOCABULARY),), "I64")


@pytest.mark.real
def test_the_built_in_pair_is_read_as_what_it_is(real_files: tuple[Path, Path]) -> None:
    target, draft = (read_header(path) for path in real_files)

    assert (target.architecture, target.quantization) == ("llama", "Q4_1")
    assert (target.n_embd, target.n_layers, target.n_vocab) == (576, 30, 49152)
    assert draft.architecture == "eagle3"
    assert draft.numbers("eagle3.target_layers") == (2, 15, 27)


def test_what_is_no_gguf_is_named(tmp_path: Path) -> None:
    text = tmp_path / "text.gguf"
    text.write_text("Once upon a time")
    empty = tmp_path / "empty.gguf"
    empty.touch()

    with pytest.raises(GGUFError, match="is not a GGUF file: it begins with “Once”"):
        read_header(text)
    for first, what in (
        (b"version https://git-lfs.github.com/spec/v1\n", "`git lfs pull`"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"tjgg\3\0\0\0", "before GGUF"),
        (b'\x40\0\0\0\0\0\0\0{"__metadata__":{}}', "safetensors"),
        (b"PK\3\4", "PyTorch"),
        (b"\x1f\x8b\x08", "unpack it"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9; this program reads 2 and 3"),
    ):
        text.write_bytes(first + bytes(64))
        with pytest.raises(GGUFError, match=what):
            read_header(text)
    with pytest.raises(GGUFError, match="is empty"):
        read_header(empty)
    with pytest.raises(GGUFError, match="is a directory"):
        read_header(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_header(tmp_path / "missing.gguf")


def test_a_cut_anywhere_is_found(tiny_files: tuple[Path, Path], tmp_path: Path) -> None:
    data = tiny_files[0].read_bytes()
    data_start = read_header(tiny_files[0]).data_start
    path = tmp_path / "cut.gguf"

    for length in (*range(5, data_start, 37), data_start, len(data) // 2, len(data) - 33):
        path.write_bytes(data[:length])
        with pytest.raises(GGUFTruncatedError, match="is cut short") as error:
            read_header(path)
        assert f"{length:,}" in str(error.value)
    # Behind the header, what it promises is known.
    assert f"promises {len(data):,} bytes, the file has {len(data) - 33:,}" in str(error.value)


@pytest.mark.parametrize("first", [32, 100, 1000])
def test_a_header_is_read_on_until_it_is_whole_and_not_to_the_end_of_the_file(
    tiny_files: tuple[Path, Path], first: int
) -> None:
    path, data = tiny_files[0], tiny_files[0].read_bytes()
    whole, pieces = read_header(path), list[bytes]()

    def read(start: int, count: int) -> bytes:
        assert start == sum(map(len, pieces))
        pieces.append(data[start : start + count])
        return pieces[-1]

    assert parse_as_read(read, path, len(data), first) == whole
    assert sum(map(len, pieces)) <= max(first, 4 * whole.data_start)


@pytest.mark.parametrize(
    "value",
    [
        struct.pack("<IIQ", 9, 8, 2**40),  # an array of strings that never ends
        struct.pack("<IIQ", 9, 8, 65) + struct.pack("<Q", 2**63) * 65,  # strings past the end
        struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) * 3000,  # arrays in arrays
        struct.pack("<IQ", 8, 2**63),  # a string past the end
        struct.pack("<IQ", 99, 0),  # a type nobody knows
        struct.pack("<IQ", 8, 3) + b"abc",  # an alignment that is a text
        struct.pack("<II", 4, 0),  # an alignment of nothing
    ],
    ids=[
        "endless array", "strings past the end", "nested arrays", "string past the end",
        "unknown type", "text for a number", "no alignment",
    ],
)  # fmt: skip
def test_a_header_made_to_break_readers_is_refused(tmp_path: Path, value: bytes) -> None:
    path = tmp_path / "hostile.gguf"
    key = b"general.alignment"
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key + value
    path.write_bytes(content)

    with pytest.raises(GGUFError):
        read_header(path)


def test_a_split_model_needs_all_its_files_whole(
    tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    names = [f"model-{part:05d}-of-00003.gguf" for part in (1, 2, 3)]
    first, second, third = (tmp_path / name for name in names)
    shutil.copy(tiny_files[0], first)
    shutil.copy(tiny_files[0], second)
    assert [path.name for path in shard_paths(first)] == names[:2]
    assert shard_paths(tiny_files[0]) == [tiny_files[0]]

    with pytest.raises(GGUFError, match=f"in 3 files; missing: {names[2]}"):
        read_header(first)

    shutil.copy(tiny_files[0], third)
    assert [path.name for path in shard_paths(second)] == names
    assert read_header(first).size_bytes == 3 * tiny_files[0].stat().st_size

    with pytest.raises(GGUFError, match=f"not the first .* give {names[0]}"):
        read_header(second)

    third.write_bytes(tiny_files[0].read_bytes()[:-4096])
    with pytest.raises(GGUFTruncatedError, match=f"{names[2]} is cut short"):
        read_header(first)


def test_the_beginning_of_a_header_tells_a_models_shape(real_files: tuple[Path, Path]) -> None:
    for path in real_files:
        data, size = path.read_bytes(), path.stat().st_size
        whole = parse_header(data, path, size)
        start, _ = whole.spans["tokenizer.ggml.tokens"]
        beginning = parse_beginning(data[: start + 64], path, size)
        assert beginning is not None
        for figure in ("architecture", "n_layers", "n_embd", "n_vocab", "n_ctx_train"):
            assert getattr(beginning, figure) == getattr(whole, figure)
        assert parse_beginning(data[:start], path, size) is None
    assert parse_beginning(b"not a GGUF at all", Path("x.gguf"), 17) is None


def test_a_name_of_megabytes_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(ggufs.gguf({"general.architecture": "llama", "general.name": "n" * (1 << 20)}))
    assert read_header(path).name == "n" * 200


def test_many_lists_of_texts_are_refused_together(tmp_path: Path) -> None:
    """Each of them is short enough; reading all of them took half a minute."""
    texts = ggufs.value([""] * 512)
    fields = {f"list.{number}": texts for number in range(4200)}
    path = tmp_path / "m.gguf"
    path.write_bytes(ggufs.gguf(fields))
    with pytest.raises(GGUFError, match="claims a list of 512 texts, more than any model"):
        read_header(path)
