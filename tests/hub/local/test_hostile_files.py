"""Files from anywhere: whatever their bytes and names, they are listed or told in a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from eaglechat.gguf import header as header_module
from eaglechat.gguf.header import (
    GGUFError,
    GGUFTruncatedError,
    parse_beginning,
    parse_header,
    read_header,
)
from eaglechat.gguf.preflight import PreflightError, check_pair
from eaglechat.hub.local.library import Kind, scan
from tests import ggufs
from tests.ggufs import header, tensor
from tests.hub.local.hostile import (
    TARGET,
    folder_of,
    go_through,
    judge,
)

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
        assert model.kind is Kind.BROKEN
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
        ("x-00001-of-00000.gguf", "is named as file 1 of 0, which no split model has"),
        ("x-00000-of-00002.gguf", "is named as file 0 of 2"),
        ("x-00003-of-00002.gguf", "is named as file 3 of 2"),
        ("x-00001-of-99999.gguf", "x-00004-of-99999.gguf and 99,995 more"),
        ("x-00002-of-00003.gguf", "not the first of a model in 3 files; give x-00001-of-00003"),
    ],
)
def test_impossible_names_of_split_models_are_told_in_a_sentence(name: str, says: str) -> None:
    with folder_of({name: TARGET}) as folder:
        (model,) = go_through(folder)
        assert model.kind is Kind.BROKEN
        assert says in (model.problem or "")


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
    assert (checkpoint.kind, checkpoint.size_bytes) == (Kind.CHECKPOINT, 23)


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
        "eaglechat.gguf.preflight.read_header",
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
