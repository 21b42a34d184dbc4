"""A checkpoint is judged on the Hub as the converter judges it here."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eaglechat.gguf.header import GGUFHeader, read_header
from eaglechat.hub.convert import ConversionError, convert
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.find_drafts import checkpoint_files
from eaglechat.hub.downloads.remote_checkpoint import judge_checkpoint
from eaglechat.hub.errors import HubError
from tests.convert import checkpoints
from tests.hub.fakehub import FakeHub, Shelf

HIDDEN, VOCAB = checkpoints.HIDDEN, checkpoints.VOCAB
BIN = Path(checkpoints.__file__).with_name("pytorch_model.bin")
# SpecForge's norm_output would be measured, which takes a second.
WHOLE = checkpoints.draft(
    embeddings=True,
    eagle_aux_hidden_state_layer_ids=[2, 6, 9],
    architectures=["Eagle3LlamaForCausalLM"],
)
CONFIG = {
    "hidden_size": [HIDDEN, 64],
    "num_attention_heads": [2, 4, 3],
    "num_key_value_heads": [1, 2, 3],
    "vocab_size": [VOCAB, VOCAB + 1],
    "num_hidden_layers": [1, 2],
    "partial_rotary_factor": [1, 0.5, 0.1, 2],
    "sliding_window": [None, 64, 1 << 20],
    "use_sliding_window": [False, True],
    "layer_types": [["full_attention"], ["sliding_attention"]],
    "rope_scaling": [checkpoints.LLAMA3_SCALING, checkpoints.YARN_SCALING, {"type": "longrope"}],
    "eagle_aux_hidden_state_layer_ids": [[1, 5, 8], [2, 6, 11], [2, 6, 12], [2, 6], None],
    "norm_before_fc": [False, True],
    "norm_output": [False, True],
    "hidden_act": ["silu", "gelu"],
    "target_hidden_size": [HIDDEN, 64],
}
CHANGES = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in CONFIG.items()})
EXTRA = ["input_norm.weight", "midlayer.self_attn.q_proj.bias", "layers.1.x", "rotary_emb.inv_freq"]
SHAPES = st.lists(st.sampled_from([1, 16, HIDDEN, 64, 96, VOCAB]), min_size=1, max_size=2)
TENSORS = st.dictionaries(
    st.sampled_from([*WHOLE.tensors, *EXTRA]),
    st.none() | st.tuples(SHAPES, st.sampled_from(["BF16", "F32", "I64"])),
    max_size=2,
)
TOKENS = st.none() | st.lists(st.integers(-3, VOCAB + 3), min_size=64, max_size=64)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> GGUFHeader:
    return read_header(checkpoints.write_target(tmp_path_factory.mktemp("target") / "t.gguf"))


def judged_and_converted(folder: Path, target: GGUFHeader) -> tuple[str | None, str | None]:
    """Why a checkpoint is refused before its download, and why after it."""
    shelf = Shelf(folder)
    problem = judge_checkpoint(shelf, shelf.listing(), target).problem
    with tempfile.TemporaryDirectory() as out:
        try:
            convert(folder, target.path, Path(out) / "d.gguf", "f32")
        except ConversionError as error:
            return problem, str(error)
    return problem, None


@settings(max_examples=50, deadline=None)
@given(config=CHANGES, tensors=TENSORS, tokens=TOKENS, cut=st.none() | st.integers(0, 60_000))
@example(config={}, tensors={}, tokens=None, cut=None)
@example(config={}, tensors={}, tokens=[0] * 64, cut=None)
@example(config={}, tensors={}, tokens=list(range(64, 128)), cut=None)
def test_what_shows_as_fitting_converts_and_nothing_else(
    target: GGUFHeader,
    config: dict[str, Any],
    tensors: dict[str, tuple[list[int], str] | None],
    tokens: list[int] | None,
    cut: int | None,
) -> None:
    variant = checkpoints.Variant(WHOLE.config | config, dict(WHOLE.tensors))
    if tokens is not None:
        offsets = np.array(tokens) - np.arange(64)
        variant.tensors["d2t"] = ("I64", offsets)
    for name, changed in tensors.items():
        if changed is None:
            variant.tensors.pop(name, None)
        else:
            variant.put(name, *changed[0], dtype=changed[1])
    with tempfile.TemporaryDirectory() as folder:
        weights = variant.save(Path(folder)) / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:cut])
        judged, refused = judged_and_converted(Path(folder), target)
    assert (judged is None) == (refused is None), (judged, refused)


@settings(max_examples=30, deadline=None)
@given(at=st.integers(0, BIN.stat().st_size - 1), byte=st.integers(0, 255), cut=st.booleans())
def test_a_file_of_torch_save_is_judged_as_well(
    target: GGUFHeader, at: int, byte: int, cut: bool
) -> None:
    data = bytearray(BIN.read_bytes())
    data[at] = byte
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.variants()["yuhuili"].save(Path(folder))
        (Path(folder) / "model.safetensors").unlink()
        (Path(folder) / "pytorch_model.bin").write_bytes(data[:at] if cut else data)
        judged, refused = judged_and_converted(Path(folder), target)
    # A weight that became NaN or infinite is told by itself alone.
    assert (judged is None) == (refused is None) or "NaN or infinity" in (refused or "")


@pytest.mark.parametrize("name", checkpoints.variants())
def test_every_dialect_that_converts_is_judged_as_fitting(
    target: GGUFHeader, name: str, tmp_path: Path
) -> None:
    shelf = Shelf(checkpoints.variants()[name].save(tmp_path / "draft"))
    assert judge_checkpoint(shelf, shelf.listing(), target).problem is None


def test_what_is_judged_is_what_is_downloaded(
    target: GGUFHeader, hub: Hub, fake: FakeHub, tmp_path: Path
) -> None:
    folder = checkpoints.draft().save(tmp_path / "draft")
    weights = (folder / "model.safetensors").read_bytes()
    config = (folder / "config.json").read_bytes()
    # The download takes safetensors alone, which the converter would not find under this name.
    files = {"config.json": config, "draft.safetensors": weights, "pytorch_model.bin": b"PK"}
    fake.add("lab/draft", files)
    listing = hub.repo("lab/draft")
    names = checkpoint_files(listing)
    assert names == ("config.json", "draft.safetensors")
    problem = judge_checkpoint(hub, [listing.file(name) for name in names], target).problem
    assert "holds no weights" in (problem or "")


def test_a_connection_that_breaks_is_no_damaged_checkpoint(
    target: GGUFHeader, hub: Hub, fake: FakeHub, tmp_path: Path
) -> None:
    folder = checkpoints.variants()["yuhuili"].save(tmp_path / "draft")
    config = (folder / "config.json").read_bytes()
    fake.add("lab/draft", {"config.json": config, "pytorch_model.bin": BIN.read_bytes()})
    listing = hub.repo("lab/draft")
    fake.fail(status=500, server="storage", times=99)
    with pytest.raises(HubError, match="HTTP 500"):
        judge_checkpoint(hub, listing.files, target)
