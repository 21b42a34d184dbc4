"""Which files of MTP heads fit which target, by their headers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from eaglechat.gguf.header import GGUFHeader, read_header
from eaglechat.gguf.pairing import check_pair, kind_of, kinds, pairings, why_no_heads
from eaglechat.gguf.preflight import PreflightError
from tests import tiny_kinds
from tests.tiny_kinds import mtp


def header(path: Path, **figures: int) -> GGUFHeader:
    """The header of a file, with some numbers changed in the file."""
    reader = GGUFReader(path, "r+")
    for name, field in reader.fields.items():
        key = name.partition(".")[2].replace(".", "__")
        if key in figures:
            field.parts[field.data[0]][0] = figures.pop(key)
    assert not figures
    return read_header(path)


def refusal(target: Path, draft: Path | None) -> str:
    with pytest.raises(PreflightError) as error:
        check_pair(target, draft)
    message = str(error.value)
    assert not message.endswith(".")
    return message.replace(f"{target.parent}/", "")


@pytest.fixture
def hy_v3(tmp_path: Path) -> Path:
    return tiny_kinds.write_hy_v3(tmp_path / "target.gguf")


@pytest.fixture
def gemma4(tmp_path: Path) -> Path:
    return tiny_kinds.write_gemma4(tmp_path / "target.gguf")


# --- heads in the target ---


def test_a_file_says_why_it_has_no_heads(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    assert why_no_heads(read_header(tiny_kinds.write_hy_v3(path))) is None
    assert why_no_heads(read_header(tiny_kinds.write_llama(path))) == "its file has no MTP heads"
    stripped = "its MTP heads were stripped, but its header still declares 1"
    for write in (tiny_kinds.write_hy_v3, tiny_kinds.write_qwen35):
        assert why_no_heads(read_header(write(path, strip=True))) == stripped
    fewer = header(tiny_kinds.write_hy_v3(path), nextn_predict_layers=2)
    assert why_no_heads(fewer) == "its file declares 2 MTP heads and has 1"


def test_heads_for_which_llama_cpp_has_no_graph_do_not_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file = mtp.ModelFile
    monkeypatch.setattr(
        mtp, "ModelFile", lambda path, _architecture, **more: open_file(path, "exaone4", **more)
    )
    other = read_header(tiny_kinds.write_hy_v3(tmp_path / "model.gguf"))
    assert why_no_heads(other) == "llama.cpp cannot run the MTP heads of exaone4 models"
    assert pairings(other, None) == ()


# --- sidecars ---


@pytest.mark.parametrize("write", [tiny_kinds.write_hy_v3, tiny_kinds.write_qwen35])
def test_a_sidecar_is_told_by_the_blocks_that_it_lacks(tmp_path: Path, write: Any) -> None:
    target, sidecar = tmp_path / "target.gguf", tmp_path / "sidecar.gguf"
    for options in ({}, {"strip": True}):
        assert kind_of(read_header(write(target, **options))) != "mtp"
    assert kind_of(read_header(write(sidecar, mtp_only=True))) == "mtp"
    for path in (target, write(target)):
        headers = check_pair(path, sidecar)
        (found,) = pairings(*headers)
        assert (found.kind, found.file) == ("mtp", headers[1])


def test_a_file_of_heads_alone_is_no_target(tmp_path: Path, hy_v3: Path) -> None:
    """llama.cpp would end the process."""
    sidecar = tiny_kinds.write_hy_v3(tmp_path / "sidecar.gguf", mtp_only=True)
    assistant = tiny_kinds.write_gemma4_assistant(tmp_path / "assistant.gguf")
    for path in (sidecar, assistant):
        for draft, hint in ((None, "give it as the draft"), (hy_v3, "swapped?")):
            message = refusal(path, draft)
            assert f"{path.name} has the MTP heads of a model alone" in message
            assert hint in message


def test_a_sidecar_of_another_model_is_refused_with_both_values(
    tmp_path: Path, hy_v3: Path, gemma4: Path
) -> None:
    path = tmp_path / "sidecar.gguf"
    tiny_kinds.write_qwen35(path, mtp_only=True)
    tiny_kinds.write_hy_v3(hy_v3)
    assert "has the MTP heads of a qwen35 model, target.gguf is a hy_v3 model" in refusal(
        hy_v3, path
    )
    for figures, values in (
        ({"embedding_length": 128}, "hidden size 128, target.gguf has 96"),
        ({"block_count": 5}, "4 layers, target.gguf has 3"),
    ):
        header(tiny_kinds.write_hy_v3(path, mtp_only=True), **figures)
        assert values in refusal(hy_v3, path)
    header(tiny_kinds.write_hy_v3(path, mtp_only=True), nextn_predict_layers=2)
    assert "cannot draft: its file declares 2 MTP heads and has 1" in refusal(hy_v3, path)


def test_a_sidecar_for_another_vocabulary_is_refused(
    tmp_path: Path, hy_v3: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar = read_header(tiny_kinds.write_hy_v3(tmp_path / "sidecar.gguf", mtp_only=True))
    assert "vocabulary of 32 tokens, target.gguf has 66" in refused_with(
        monkeypatch, hy_v3, sidecar, n_vocab=32
    )


def refused_with(
    monkeypatch: pytest.MonkeyPatch, target: Path, draft: GGUFHeader, *, n_vocab: int
) -> str:
    """What is said if the draft's vocabulary has another size."""
    sizes = {target: read_header(target).n_vocab, draft.path: n_vocab}
    monkeypatch.setattr(GGUFHeader, "n_vocab", property(lambda own: sizes[own.path]))
    return refusal(target, draft.path)


@pytest.mark.parametrize("has_heads", [True, False])
def test_a_whole_model_is_no_sidecar(tmp_path: Path, hy_v3: Path, *, has_heads: bool) -> None:
    """It drafts as a model, with or without heads of its own."""
    whole = tiny_kinds.write_hy_v3(tmp_path / "whole.gguf", strip=not has_heads)
    assert kinds(*check_pair(hy_v3, whole)) == ("model", "mtp")


# --- Gemma 4's assistant ---


def test_an_assistant_is_for_gemma4(tmp_path: Path, gemma4: Path) -> None:
    assistant = tiny_kinds.write_gemma4_assistant(tmp_path / "assistant.gguf")
    headers = check_pair(gemma4, assistant)
    (found,) = pairings(*headers)
    assert (found.kind, found.file) == ("mtp", headers[1])
    tiny_kinds.write_hy_v3(gemma4)
    assert "has the MTP heads of a gemma4 model, target.gguf is a hy_v3 model" in refusal(
        gemma4, assistant
    )


@pytest.mark.parametrize(
    ("figures", "values"),
    [
        ({"embedding_length_out": 64}, "hidden size 64, target.gguf has 96"),
        (
            {"attention__head_count_kv": 1},
            "keys of 1 heads 32 wide in the sliding layers of its target, target.gguf has 3 heads",
        ),
        ({"attention__key_length": 64}, "64 wide in the full layers of its target"),
        ({"attention__key_length_swa": 64}, "64 wide in the sliding layers of its target"),
    ],
)
def test_an_assistant_of_another_model_is_refused(
    tmp_path: Path, gemma4: Path, figures: dict[str, int], values: str
) -> None:
    path = tiny_kinds.write_gemma4_assistant(tmp_path / "assistant.gguf")
    header(path, **figures)
    assert values in refusal(gemma4, path)


def test_an_assistant_for_another_vocabulary_is_refused(
    tmp_path: Path, gemma4: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assistant = read_header(tiny_kinds.write_gemma4_assistant(tmp_path / "assistant.gguf"))
    assert "vocabulary of 32 tokens, target.gguf has 66" in refused_with(
        monkeypatch, gemma4, assistant, n_vocab=32
    )
