"""Files: broken ones are named, hostile ones are not opened, the result appears whole or not."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest

from eaglechat.hub.convert import ConversionError, convert
from tests.convert.checkpoints import Variant, draft, save_safetensors, variants, write_target

TORCH_BIN = Path(__file__).parent / "pytorch_model.bin"
"""The `yuhuili` checkpoint as torch 2.13's own torch.save wrote it."""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target.gguf")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return draft().save(tmp_path / "draft")


def bin_checkpoint(directory: Path) -> Path:
    checkpoint = variants()["yuhuili"].save(directory)
    (checkpoint / "model.safetensors").unlink()
    shutil.copy(TORCH_BIN, checkpoint / "pytorch_model.bin")
    return checkpoint


def data(path: Path) -> dict[str, bytes]:
    return {tensor.name: tensor.data.tobytes() for tensor in gguf.GGUFReader(path).tensors}


def test_a_file_of_torch_save_gives_what_safetensors_give(target: Path, tmp_path: Path) -> None:
    from_bin = bin_checkpoint(tmp_path / "bin")
    from_safetensors = variants()["yuhuili"].save(tmp_path / "safetensors")
    first = convert(from_bin, target, tmp_path / "bin.gguf", "f16").path
    second = convert(from_safetensors, target, tmp_path / "safetensors.gguf", "f16").path
    assert data(first) == data(second)


class Command:
    """Pickles as a call of os.system, the usual attack."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.witness}",)


def test_a_pickle_that_asks_for_a_program_is_refused_and_runs_nothing(
    target: Path, tmp_path: Path
) -> None:
    witness = tmp_path / "witness"
    checkpoint = bin_checkpoint(tmp_path / "bin")
    replace_pickle(checkpoint, pickle.dumps({"fc.weight": Command(witness)}, protocol=2))
    with pytest.raises(ConversionError, match=r"asks for \w+\.system, which is not a tensor"):
        convert(checkpoint, target, tmp_path / "draft.gguf")
    assert not witness.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"fc.weight": [1, 2]}, "holds a list under 'fc.weight' where a tensor is expected"),
        (OrderedDict(epoch=3), "holds a int under 'epoch' where a tensor is expected"),
        ([1], "holds a list, not named tensors"),
        ({(1, 2): 3}, "names a tensor with a tuple, not with text"),
    ],
)
def test_a_pickle_of_other_things_is_refused(
    content: object, reason: str, target: Path, tmp_path: Path
) -> None:
    checkpoint = bin_checkpoint(tmp_path / "bin")
    replace_pickle(checkpoint, pickle.dumps(content, protocol=2))
    with pytest.raises(ConversionError, match=reason):
        convert(checkpoint, target, tmp_path / "draft.gguf")


def replace_pickle(checkpoint: Path, content: bytes) -> None:
    path = checkpoint / "pytorch_model.bin"
    packed = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w") as new:
        for entry in old.infolist():
            is_pickle = entry.filename.endswith("data.pkl")
            new.writestr(entry.filename, content if is_pickle else old.read(entry))
    path.write_bytes(packed.getvalue())


def test_damaged_bins_are_refused_or_read_but_never_crash(target: Path, tmp_path: Path) -> None:
    checkpoint = bin_checkpoint(tmp_path / "bin")
    path = checkpoint / "pytorch_model.bin"
    whole = path.read_bytes()
    refused = 0
    # The pickle is at the beginning, the list of the zip's entries at the end.
    for place in (*range(60, 2000, 45), *range(len(whole) - 1500, len(whole), 45)):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            convert(checkpoint, target, tmp_path / "draft.gguf")
        except ConversionError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_a_truncated_bin_is_named(kept: float, target: Path, tmp_path: Path) -> None:
    checkpoint = bin_checkpoint(tmp_path / "bin")
    cut(checkpoint / "pytorch_model.bin", kept)
    with pytest.raises(ConversionError, match=r"pytorch_model.bin is cut short; download it again"):
        convert(checkpoint, target, tmp_path / "draft.gguf")


@pytest.mark.parametrize("kept", [0.0001, 0.01, 0.5, 0.999])
def test_truncated_safetensors_are_named(
    kept: float, checkpoint: Path, target: Path, tmp_path: Path
) -> None:
    cut(checkpoint / "model.safetensors", kept)
    with pytest.raises(ConversionError, match=r"model.safetensors is (cut short|not a safetens)"):
        convert(checkpoint, target, tmp_path / "draft.gguf")


def cut(path: Path, kept: float) -> None:
    os.truncate(path, int(path.stat().st_size * kept))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "git lfs pull"),
        (b"\x09\0\0\0\0\0\0\0{not json", "not a safetensors file, or is damaged"),
        (b"<!doctype html><html>", "not a safetensors file"),
        (b'\x4a\0\0\0\0\0\0\0{"fc.weight":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}}'.ljust(
            120), "fc.weight spans 4 bytes, its shape needs 16"),
    ],
)  # fmt: skip
def test_files_that_are_no_safetensors(
    content: bytes, reason: str, checkpoint: Path, target: Path, tmp_path: Path
) -> None:
    (checkpoint / "model.safetensors").write_bytes(content)
    with pytest.raises(ConversionError, match=reason):
        convert(checkpoint, target, tmp_path / "draft.gguf")


def test_shards_are_one_checkpoint(checkpoint: Path, target: Path, tmp_path: Path) -> None:
    whole = convert(checkpoint, target, tmp_path / "whole.gguf", "bf16").path
    sharded = tmp_path / "sharded"
    split(draft(), sharded)
    assert data(convert(sharded, target, tmp_path / "shards.gguf", "bf16").path) == data(whole)
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ConversionError, match=r"not whole: it lacks "):
        convert(sharded, target, tmp_path / "shards.gguf", "bf16")


def split(variant: Variant, directory: Path) -> None:
    variant.save(directory)
    (directory / "model.safetensors").unlink()
    names = list(variant.tensors)
    for number, part in enumerate((names[:5], names[5:]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_safetensors(directory / file, {name: variant.tensors[name] for name in part})


def test_a_directory_without_weights_or_config(
    checkpoint: Path, target: Path, tmp_path: Path
) -> None:
    (checkpoint / "config.json").unlink()
    with pytest.raises(ConversionError, match=r"has no config.json"):
        convert(checkpoint, target, tmp_path / "draft.gguf")
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(ConversionError, match="holds no weights"):
        convert(checkpoint, target, tmp_path / "draft.gguf")
    with pytest.raises(ConversionError, match="does not exist"):
        convert(tmp_path / "nowhere", target, tmp_path / "draft.gguf")


def test_the_weights_file_itself_may_be_named(
    checkpoint: Path, target: Path, tmp_path: Path
) -> None:
    weights = checkpoint / "model.safetensors"
    named = convert(weights, target, tmp_path / "a.gguf").path
    assert data(named) == data(convert(checkpoint, target, tmp_path / "b.gguf").path)


class StopError(Exception):
    pass


def test_progress_reaches_the_end_and_can_stop_the_conversion(
    checkpoint: Path, target: Path, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    out = tmp_path / "out" / "draft.gguf"
    out.parent.mkdir()
    convert(checkpoint, target, out, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[0][0] == 0
    assert seen[-1][0] == seen[-1][1] > 0
    before = out.read_bytes()

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise StopError

    with pytest.raises(StopError):
        convert(checkpoint, target, out, "f32", stop)
    assert [path.name for path in out.parent.iterdir()] == ["draft.gguf"]
    assert out.read_bytes() == before


def test_what_a_killed_conversion_left_is_overwritten(
    checkpoint: Path, target: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out" / "draft.gguf"
    out.parent.mkdir()
    out.with_name("draft.gguf.part").write_bytes(b"half" * 100_000)
    convert(checkpoint, target, out)
    assert [path.name for path in out.parent.iterdir()] == ["draft.gguf"]


def test_two_conversions_to_one_file_do_not_mix(
    checkpoint: Path, target: Path, tmp_path: Path
) -> None:
    out = tmp_path / "draft.gguf"
    refusals = []

    def second(_done: int, _total: int) -> None:
        if not refusals:
            with pytest.raises(ConversionError, match="another conversion is writing") as refusal:
                convert(checkpoint, target, out)
            refusals.append(refusal)

    convert(checkpoint, target, out, progress=second)
    assert refusals
    assert "fc.weight" in data(out)


def test_only_an_earlier_draft_is_replaced(checkpoint: Path, target: Path, tmp_path: Path) -> None:
    convert(checkpoint, target, tmp_path / "draft.gguf", "f16")
    convert(checkpoint, target, tmp_path / "draft.gguf", "f32")
    before = target.read_bytes()
    with pytest.raises(ConversionError, match="exists and is not an EAGLE-3 draft"):
        convert(checkpoint, target, target)
    assert target.read_bytes() == before
    with pytest.raises(ConversionError, match="is a directory"):
        convert(checkpoint, target, tmp_path)
    with pytest.raises(ConversionError, match="does not exist"):
        convert(checkpoint, target, tmp_path / "nowhere" / "draft.gguf")


def test_a_full_disk_is_noticed_before_writing(
    checkpoint: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(ConversionError, match=r"MB on the disk of .* short"):
        convert(checkpoint, target, tmp_path / "draft.gguf")
    assert not list(tmp_path.glob("draft.gguf*"))


def test_the_hubs_cache_does_not_name_the_draft_by_a_commit(target: Path, tmp_path: Path) -> None:
    cache = tmp_path / "models--AngelSlim--Qwen3-1.7B_eagle3" / "snapshots" / ("94441b48" * 5)
    path = convert(draft().save(cache), target, tmp_path / "draft.gguf").path
    header = gguf.GGUFReader(path)
    assert header.fields["general.name"].contents() == "Qwen3 1.7B_eagle3"
    assert header.fields["general.organization"].contents() == "AngelSlim"
    assert "94441" not in str([field.contents() for field in header.fields.values()])


@pytest.mark.parametrize(
    "card", ["license: [unclosed", "tags: [1, 2]", "license: 7\nlanguage: {a: b}", "- a\n- list"]
)
def test_a_model_card_nobody_can_read_is_no_obstacle(
    card: str, checkpoint: Path, target: Path, tmp_path: Path
) -> None:
    (checkpoint / "README.md").write_text(f"---\n{card}\n---\n")
    path = convert(checkpoint, target, tmp_path / "draft.gguf").path
    assert gguf.GGUFReader(path).fields["general.name"].contents()


def test_the_model_card_is_carried_over(checkpoint: Path, target: Path, tmp_path: Path) -> None:
    card = "license: mit\nbase_model: Qwen/Qwen3-1.7B\nlanguage: [en]"
    (checkpoint / "README.md").write_text(f"---\n{card}\n---\n")
    fields = gguf.GGUFReader(convert(checkpoint, target, tmp_path / "draft.gguf").path).fields
    assert fields["general.license"].contents() == "mit"
    assert fields["general.base_model.0.organization"].contents() == "Qwen"
    assert fields["general.languages"].contents() == ["en"]


def test_stored_numbers_survive(checkpoint: Path, target: Path, tmp_path: Path) -> None:
    path = convert(checkpoint, target, tmp_path / "draft.gguf", "f32").path
    (fc,) = (t for t in gguf.GGUFReader(path).tensors if t.name == "fc.weight")
    assert np.array_equal(fc.data, draft().tensors["fc.weight"][1])
