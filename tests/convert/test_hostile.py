"""A checkpoint from anywhere: whatever its configuration and header say, it fits or is refused."""

from __future__ import annotations

import json
import os
import struct
import tempfile
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eaglechat.gguf.header import GGUFHeader, read_header
from eaglechat.hub.convert import ConversionError, convert
from eaglechat.hub.convert.checkpoint import read_bin, read_safetensors
from eaglechat.hub.convert.config import parse_config
from eaglechat.hub.convert.draft import check_config, examine
from tests.convert.checkpoints import draft, write_target

WHOLE = draft(embeddings=True, norm_before_fc=True, head_dim=16)
WHOLE.put("input_norm.weight", 3 * 32)
NAMES = [*WHOLE.tensors, "midlayer.self_attn.q_proj.bias", "x"]
KEYS = [
    *WHOLE.config, "rope_scaling", "rope_parameters", "eagle_config", "transformer_layer_config",
    "partial_rotary_factor", "sliding_window", "layer_types", "use_sliding_window",
    "eagle_aux_hidden_state_layer_ids", "target_hidden_size",
]  # fmt: skip
ATOMS = st.one_of(
    st.none(), st.booleans(), st.floats(), st.sampled_from([-1, 0, 1, 2, 3, 5, 32, 2**31, 2**70]),
    st.sampled_from(["", "llama3", "yarn", "linear", "silu", "sliding_attention"]),
)  # fmt: skip
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["rope_type", "factor", *KEYS]), inner, max_size=4)
    ),
    max_leaves=6,
)
SHAPES = st.lists(st.sampled_from([0, 1, 3, 16, 32, 64, 96, 320, 2**40]), max_size=3)
DTYPES = st.sampled_from(["BF16", "F32", "I64", "I32", "F8_E4M3", "?"])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> GGUFHeader:
    return read_header(write_target(tmp_path_factory.mktemp("target") / "target.gguf"))


def weights_file(folder: Path, content: bytes, size: int) -> Path:
    """A weights file of `size` bytes, as far as a file system has room, that begins with these."""
    path = folder / "model.safetensors"
    path.write_bytes(content)
    os.truncate(path, min(size, 1 << 40))
    return path


def header(changes: dict[str, tuple[str, list[int]]], taken: set[str]) -> tuple[bytes, int]:
    """A safetensors header with some tensors changed and some taken away, and the file's size."""
    sizes = {"BF16": 2, "F32": 4, "I64": 8, "I32": 4, "BOOL": 1}
    entries: dict[str, Any] = {}
    end = 0
    given = {name: (dtype, list(values.shape)) for name, (dtype, values) in WHOLE.tensors.items()}
    for name, (dtype, shape) in (given | changes).items():
        if name in taken:
            continue
        size = sizes.get(dtype, 1)
        for extent in shape:
            size *= extent
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text, end + 8 + len(text)


@settings(max_examples=100)
@given(
    config=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
    changes=st.dictionaries(st.sampled_from(NAMES), st.tuples(DTYPES, SHAPES), max_size=3),
    taken=st.sets(st.sampled_from(NAMES), max_size=2),
)
def test_any_checkpoint_is_judged(
    target: GGUFHeader,
    config: dict[str, Any],
    changes: dict[str, tuple[str, list[int]]],
    taken: set[str],
) -> None:
    beginning, size = header(changes, taken)
    with tempfile.TemporaryDirectory() as folder, suppress(ConversionError):
        parsed = parse_config(json.dumps(WHOLE.config | config).encode(), "config.json")
        check_config(parsed, target)
        stored = read_safetensors(weights_file(Path(folder), beginning, size))
        judged = examine({one.name: one for one in stored}, parsed, target)
        assert judged.head_dim > 0
        assert len(judged.target_layers) == 3


@settings(max_examples=100)
@given(
    data=st.binary(max_size=200) | st.text(max_size=40).map(str.encode),
    size=st.integers(0, 1 << 12),
)
@example(data=b"\xff\xff\xff\x02", size=1 << 40)
@example(data=b'{"a":' + b"[" * 1100, size=0)
@example(data=b"[" * 100_000, size=0)
def test_any_bytes_are_a_header_or_refused(data: bytes, size: int) -> None:
    for beginning in (data, struct.pack("<Q", len(data)) + data):
        with tempfile.TemporaryDirectory() as folder, suppress(ConversionError):
            read_safetensors(weights_file(Path(folder), beginning, size))
        with suppress(ConversionError):
            parse_config(beginning, "config.json")


def torch_file(path: Path, pickled: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", pickled)
    return path


@settings(max_examples=200)
@given(st.binary(max_size=60))
@example(b"\x80\x02]r" + struct.pack("<I", 30_000_000) + b".")
@example(b"\x80\x02]p30000000\n.")
@example(b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".")
@example(b"\x80\x02\x8b" + struct.pack("<i", 2**30) + b".")
def test_a_pickle_takes_no_memory_that_it_does_not_bring(pickled: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = torch_file(Path(folder, "pytorch_model.bin"), pickled)
        tracemalloc.start()
        try:
            with suppress(ConversionError):
                read_bin(path)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 4 << 20


@pytest.mark.parametrize("deep", [5_000, 2_000_000])
@pytest.mark.parametrize(
    "pickled", [b"\x80\x02})%bK\x01s.", b"\x80\x02}U\x01a)%bs.", b"\x80\x02)%b."]
)
def test_tuples_in_tuples_are_refused(deep: int, pickled: bytes, tmp_path: Path) -> None:
    path = torch_file(tmp_path / "pytorch_model.bin", pickled % (b"\x85" * deep))
    with pytest.raises(ConversionError):
        read_bin(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("original_max_position_embeddings", 5e9), ("beta_fast", 1e300), ("beta_slow", -1e300)],
)
def test_a_number_that_no_gguf_has_room_for_is_refused(
    tmp_path: Path, target: GGUFHeader, key: str, value: float
) -> None:
    checkpoint = draft(embeddings=True)
    checkpoint.config["rope_scaling"] = {
        "rope_type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 2048,
        key: value,
    }
    folder = checkpoint.save(tmp_path / "draft")
    with pytest.raises(ConversionError):
        convert(folder, target.path, tmp_path / "out.gguf", "f16")
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system here")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "pytorch_model.bin", ""])
def test_a_pipe_in_a_checkpoint_is_refused_and_waited_for_by_nobody(
    tmp_path: Path, target: GGUFHeader, name: str
) -> None:
    folder = draft(embeddings=True).save(tmp_path / "draft")
    pipe = folder / name if name else tmp_path / "pipe"
    # Without the weights, the pipe is all there is to take for them.
    (folder / ("config.json" if name == "config.json" else "model.safetensors")).unlink()
    os.mkfifo(pipe)
    with pytest.raises(ConversionError):
        convert(folder if name else pipe, target.path, tmp_path / "o.gguf", "f16")
