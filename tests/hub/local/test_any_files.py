"""Files made by chance: each is listed or told in a sentence, whatever is in it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eaglechat.gguf.header import parse_beginning, parse_header
from tests import ggufs
from tests.hub.local.hostile import DRAFT, TARGET, folder_of, go_through


@pytest.fixture(scope="module")
def whole_files(tiny_files: tuple[Path, Path]) -> list[bytes]:
    return [*(path.read_bytes() for path in tiny_files), TARGET, DRAFT]


BYTES = st.sampled_from([0, 1, 2, 4, 8, 9, 10, 31, 127, 128, 255]) | st.integers(0, 255)
MUTATION = st.tuples(st.integers(0, 1 << 14), BYTES)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.integers(0, 3),
    mutations=st.lists(MUTATION, min_size=1, max_size=8),
    cut=st.none() | st.integers(1, 1 << 14),
)
def test_damaged_files_go_through_everything(
    whole_files: list[bytes], which: int, mutations: list[tuple[int, int]], cut: int | None
) -> None:
    data = bytearray(whole_files[which])
    header_end = parse_header(bytes(data), Path("x.gguf"), len(data)).data_start
    for at, byte in mutations:
        data[4 + at % (header_end - 4)] = byte
    with folder_of({"x.gguf": bytes(data[:cut]), "t.gguf": TARGET, "d.gguf": DRAFT}) as folder:
        go_through(folder)


SIZES = st.sampled_from([0, 1, 3, 8, 33, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
WORDS = st.sampled_from(["", "eagle3", "llama", "8", "\x1b[2J", "\u2028", "x" * 300, b"\xff\xfe"])
WHOLE = st.integers(-(2**63), 2**63 - 1)
VALUE = st.one_of(
    SIZES.map(lambda n: struct.pack("<IQ", 10, n)),
    WHOLE.map(lambda n: struct.pack("<Iq", 11, n)),
    st.floats().map(lambda x: struct.pack("<Id", 12, x)),
    st.booleans().map(lambda b: struct.pack("<I?", 7, b)),
    WORDS.map(lambda word: struct.pack("<I", 8) + ggufs.packed(word)),
    st.lists(WORDS, min_size=1, max_size=4).map(ggufs.value),
    st.lists(WHOLE, max_size=8).map(lambda ns: struct.pack(f"<IIQ{len(ns)}q", 9, 11, len(ns), *ns)),
    st.builds(lambda kind, n: struct.pack("<IIQ", 9, kind, n), st.integers(0, 14), SIZES),
    st.integers(0, 2**32 - 1).map(lambda kind: struct.pack("<I", kind)),
)
KEYS = [
    f"{arch}.{key}"
    for arch in ("llama", "eagle3")
    for key in (
        "block_count", "embedding_length", "context_length", "attention.head_count",
        "attention.head_count_kv", "attention.key_length", "attention.key_length_swa",
        "attention.sliding_window_pattern", "attention.shared_kv_layers", "feed_forward_length",
        "full_attention_interval", "nextn_predict_layers", "target_layers", "target_hidden_size",
    )
] + [
    "general.architecture", "general.name", "general.file_type", "general.alignment",
    "tokenizer.ggml.tokens", "general.base_model.count",
]  # fmt: skip
TENSORS = st.builds(
    lambda name, count, shape, kind, offset: ggufs.tensor(
        name, shape, kind=kind, offset=offset, n_dimensions=count
    ),
    st.sampled_from(["d2t", "output.weight", "token_embd.weight", "x\n"]),
    st.none() | st.integers(0, 400),
    st.lists(SIZES, max_size=5),
    st.sampled_from([0, 27, 12, 99]),
    SIZES,
)
NAMES = st.sampled_from(
    ["x.gguf", "x-00001-of-00001.gguf", "x-00001-of-00000.gguf", "x-00007-of-99999.gguf", "X.GGUF"]
)


@settings(max_examples=80)
@given(
    architecture=st.sampled_from(["llama", "eagle3", "gemma4", ""]),
    fields=st.dictionaries(st.sampled_from(KEYS), VALUE, max_size=10),
    tables=st.lists(TENSORS, max_size=4),
    name=NAMES,
    tail=st.integers(0, 300),
)
def test_headers_of_anything_go_through_everything(
    architecture: str, fields: dict[str, bytes], tables: list[bytes], name: str, tail: int
) -> None:
    everything = {"general.architecture": architecture, **fields}
    data = ggufs.header(everything, tables) + bytes(tail)
    parse_beginning(data, Path("x.gguf"), len(data))
    with folder_of({name: data, "t.gguf": TARGET, "d.gguf": DRAFT}) as folder:
        go_through(folder)


@settings(max_examples=50)
@given(data=st.binary(max_size=400))
def test_bytes_that_call_themselves_a_gguf_go_through_everything(data: bytes) -> None:
    with folder_of({"x.gguf": b"GGUF\3\0\0\0" + data, "t.gguf": TARGET}) as folder:
        go_through(folder)
