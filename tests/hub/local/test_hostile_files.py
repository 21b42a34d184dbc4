"""Files from anywhere: whatever their bytes and names, they are listed or told in a sentence."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eaglechat.gguf import header as header_module
from eaglechat.gguf.header import (
    GGUFError,
    GGUFHeader,
    GGUFTruncatedError,
    parse_beginning,
    parse_header,
    read_header,
)
from eaglechat.gguf.memory import check_kv_type, memory_need
from eaglechat.gguf.pairing import check_pair
from eaglechat.gguf.preflight import PreflightError
from eaglechat.hub.local.library import scan
from eaglechat.hub.local.model import LocalModel, ModelKind
from eaglechat.hub.local.pairs import inspect, pair_of_files
from eaglechat.wire.errors import SettingsError
from tests import ggufs
from tests.ggufs import header, tensor

TARGET, DRAFT = ggufs.target(), ggufs.draft()


@contextmanager
def folder_of(files: dict[str, bytes]) -> Iterator[Path]:
    """A folder of its own for every example."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        yield Path(folder)


def go_through(folder: Path) -> list[LocalModel]:
    """What the menu, the library and a load do with the files of a folder."""
    models = scan([folder], folder / "no-cache")
    for model in models:
        assert model.problem is None or is_a_sentence(model.problem)
        assert model.name.isprintable()
        for draft in (None, *(other.path for other in models)):
            judge(model.path, draft)
        if model.header is not None:
            assert isinstance(model.header.quantization + model.header.name, str)
            count_memory(model.header, None)
    return models


def judge(target: Path, draft: Path | None) -> None:
    status = inspect(pair_of_files(target, draft))
    assert status.problem is None or is_a_sentence(status.problem)
    try:
        headers = check_pair(target, draft)
    except PreflightError:
        assert status.problem is not None
    else:
        assert status.problem is None
        count_memory(*headers)


def count_memory(target: GGUFHeader, draft: GGUFHeader | None) -> None:
    assert memory_need(target, draft, 4096).total >= 0
    with suppress(SettingsError):
        check_kv_type(target, "q8_0", "auto")


def is_a_sentence(text: str) -> bool:
    return 10 < len(text) < 1000 and text.isprintable()


Shape = tuple[int, ...]


BROKEN = {
    "300 dimensions": (header({}, [tensor("w", [2**63] * 300)]), "a tensor of 300 dimensions"),
    "20,000 dimensions": (header({}, [tensor("w", [2**63] * 20_000)]), "of 20,000 dimensions"),
    "4 billion dimensions": (
        header({}, [tensor("w", [], n_dimensions=2**32 - 1)]), "4,294,967,295 dimensions",
    ),
    "larger than any disk": (header({}, [tensor("w", [2**63] * 4)]), "larger than any disk"),
    "2^60 fields": (header({}, n_fields=2**60), "1,152,921,504,606,846,976 fields"),
    "2^60 tensors": (header({}, n_tensors=2**60), "1,152,921,504,606,846,976 tensors"),
    "layers as text": (ggufs.target(**{"qwen3.block_count": "30"}), "qwen3.block_count '30'"),
    "layers as a fraction": (ggufs.target(**{"qwen3.block_count": 6.5}), "block_count 6.5"),
    "4 billion layers": (ggufs.target(n_layers=2**32 - 1), "block_count 4294967295"),
    "width as a list": (ggufs.target(**{"qwen3.embedding_length": [8]}), "a list of 1"),
    "heads as texts": (
        ggufs.target(**{"qwen3.attention.head_count": ["2"] * 6}),
        "attention.head_count a list of 6 texts",
    ),
    "negative heads": (ggufs.target(**{"qwen3.attention.head_count": [-2] * 6}), "head_count -2"),
    "a number for an architecture": (ggufs.target(**{"general.architecture": 7}), "is none"),
    "a list for an architecture": (
        ggufs.target(**{"general.architecture": ["qwen3"]}),
        "a list of 1",
    ),
    "an architecture that clears screens": (ggufs.target("\x1b[2J\n"), "which is none"),
    "an endless architecture": (ggufs.target("x" * 100_000), "which is none"),
    "tokens that are numbers": (
        ggufs.gguf({"tokenizer.ggml.tokens": [1, 2]}, n_vocab=0),
        "not a list of texts",
    ),
    "an alignment that is a list": (ggufs.target(**{"general.alignment": [32]}), "a list of 1"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "says"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_header_is_told_in_a_sentence(data: bytes, says: str) -> None:
    with folder_of({"x.gguf": data}) as folder:
        (model,) = go_through(folder)
        assert model.kind is ModelKind.BROKEN
        assert says in (model.problem or "")
    with pytest.raises(GGUFError, match=r"x\.gguf"):
        parse_header(data, Path("x.gguf"), len(data))
    parse_beginning(data, Path("x.gguf"), len(data))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"eagle3.target_layers": ["1", "3", "4"]}, "as a list of 3 whole numbers"),
        ({"eagle3.target_layers": "1, 3, 4"}, "as a list of 3 whole numbers"),
        ({"eagle3.target_layers": [1] * 600}, "as a list of 3 whole numbers"),
        ({"eagle3.target_hidden_size": "8"}, "target_hidden_size '8'"),
    ],
)
def test_a_draft_whose_figures_are_of_another_type_is_refused(
    change: dict[str, Any], says: str
) -> None:
    with folder_of({"t.gguf": TARGET, "d.gguf": ggufs.draft(**change)}) as folder:
        go_through(folder)
        with pytest.raises(PreflightError) as error:
            check_pair(folder / "t.gguf", folder / "d.gguf")
        assert says in str(error.value)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((), "with 0 dimensions"),
        ((4, 4), "with 2 dimensions"),
        ((2**40,), "cut short"),
        ((33,), "d2t has 33 tokens, its vocabulary has 32"),
    ],
)
def test_a_vocabulary_map_of_a_shape_of_its_own_is_refused(shape: Shape, says: str) -> None:
    tensors = [tensor("d2t", shape, kind=27), tensor("output.weight", (8, 4))]
    data = ggufs.draft(tensors=tensors) + bytes(1000)
    with folder_of({"t.gguf": TARGET, "d.gguf": data}) as folder:
        go_through(folder)
        with pytest.raises(PreflightError) as error:
            check_pair(folder / "t.gguf", folder / "d.gguf")
        assert says in str(error.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("x-00001-of-99999.gguf", "x-00004-of-99999.gguf and 99,995 more"),
        ("x-00002-of-00003.gguf", "part of a model in 3 files; missing: x-00001-of-00003.gguf, "),
    ],
)
def test_impossible_names_of_split_models_are_told_in_a_sentence(name: str, says: str) -> None:
    with folder_of({name: TARGET}) as folder:
        (model,) = go_through(folder)
        assert model.kind is ModelKind.BROKEN
        assert says in (model.problem or "")


@pytest.mark.parametrize("which", ["00001-of-00000", "00000-of-00002", "00003-of-00002"])
def test_a_name_that_no_split_model_has_is_one_like_any_other(which: str) -> None:
    with folder_of({f"x-{which}.gguf": TARGET}) as folder:
        (model,) = go_through(folder)
        assert (model.name, model.problem) == (f"x-{which}", None)


def test_a_name_is_shown_without_what_moves_a_cursor(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "red\x1b[31m\n.gguf").write_bytes(b"hello")
    Path(os.fsdecode(os.fsencode(own) + b"/\xff.gguf")).write_bytes(b"hello")
    assert sorted(model.name for model in go_through(own)) == ["red�[31m�", "�"]


def test_paths_that_no_file_can_have_are_refused(tmp_path: Path) -> None:
    for name in ("a\0b.gguf", "\ud800.gguf"):
        with pytest.raises(PreflightError, match="cannot be the name of a file"):
            check_pair(tmp_path / name, None)
    assert scan(["a\0b", "\ud800", "~nobody-of-this-name/x"], tmp_path) == []


def test_links_that_lead_nowhere_or_in_a_circle_cost_nobody_else(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.gguf").symlink_to("a.gguf")
    (own / "b.gguf").symlink_to("nowhere.gguf")
    (own / "c.gguf").write_bytes(TARGET)
    os.mkfifo(own / "d.gguf")
    assert [model.name for model in go_through(own)] == ["c"]
    judge(own / "a.gguf", own / "b.gguf")
    judge(own / "d.gguf", None)

    snapshot = tmp_path / "cache" / "models--user--eagle" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"draft_vocab_size": 3}')
    (snapshot / "model.safetensors").symlink_to("gone")
    (checkpoint,) = scan([], tmp_path / "cache")
    assert (checkpoint.kind, checkpoint.size_bytes) == (ModelKind.CHECKPOINT, 23)


# --- cut short while they are read ---


@pytest.mark.parametrize("left", [0, 3, 20, 200, 700])
def test_a_file_cut_short_while_it_is_read_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(TARGET)
    cut_when_opened(monkeypatch, path, left)
    with pytest.raises(GGUFError, match=r"cut short|begins with"):
        read_header(path)


def test_a_draft_cut_short_before_its_vocabulary_map_is_read(
    tiny_files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = tiny_files[0], tmp_path / "d.gguf"
    draft.write_bytes(tiny_files[1].read_bytes())
    whole = read_header(draft)
    monkeypatch.setattr(
        "eaglechat.gguf.pairing.read_header",
        lambda path: whole if path == draft else read_header(path),
    )
    os.truncate(draft, whole.data_start + 8)
    with pytest.raises(PreflightError, match="was cut short while it was read"):
        check_pair(target, draft)
    draft.unlink()
    with pytest.raises(PreflightError, match="the draft cannot be read"):
        check_pair(target, draft)


def cut_when_opened(monkeypatch: pytest.MonkeyPatch, path: Path, left: int) -> None:
    whole_open: Callable[..., IO[Any]] = Path.open

    def open_and_cut(self: Path, *how: Any) -> IO[Any]:
        file = whole_open(self, *how)
        os.truncate(path, left)
        return file

    monkeypatch.setattr(header_module.Path, "open", open_and_cut)


def test_the_first_bytes_of_a_file_on_the_hub_go_through_the_same_parser() -> None:
    for end in range(0, len(TARGET) - 4096, 7):
        with pytest.raises(GGUFTruncatedError if end > 3 else GGUFError):
            parse_header(TARGET[:end], Path("x.gguf"), len(TARGET))


# --- made by chance ---


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
