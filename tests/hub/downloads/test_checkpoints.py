"""A checkpoint is judged on the Hub, by its config.json, as the converter judges it here."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eaglechat.gguf.header import GGUFHeader, read_header
from eaglechat.hub.convert import ConversionError, convert
from eaglechat.hub.downloads.client import Hub
from eaglechat.hub.downloads.find_drafts import judge
from eaglechat.hub.errors import HubError
from tests.convert import checkpoints
from tests.hub.fakehub import FakeHub, Shelf

HIDDEN, VOCAB = checkpoints.HIDDEN, checkpoints.VOCAB
WHOLE = checkpoints.draft(
    embeddings=True,
    eagle_aux_hidden_state_layer_ids=[2, 6, 9],
    architectures=["Eagle3LlamaForCausalLM"],
)
CONFIG = {
    "architectures": [["LlamaForCausalLMEagle4"], ["DFlashDraftModel"], ["Eagle3Deepseek"]],
    "num_attention_heads": [2, 4, 3],
    "vocab_size": [VOCAB, VOCAB + 1],
    "num_hidden_layers": [1, 2],
    "partial_rotary_factor": [1, 0.5, 2],
    "sliding_window": [None, 64, 1 << 20],
    "rope_scaling": [checkpoints.LLAMA3_SCALING, checkpoints.YARN_SCALING, {"type": "longrope"}],
    "eagle_aux_hidden_state_layer_ids": [[1, 5, 8], [2, 6, 11], [2, 6, 12], [2, 6], None],
    "norm_output": [False, True],
    "hidden_act": ["silu", "gelu"],
    "enable_moe": [False, True],
    "use_rope": [False, True],
}
CHANGES = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in CONFIG.items()})


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> GGUFHeader:
    return read_header(checkpoints.write_target(tmp_path_factory.mktemp("target") / "t.gguf"))


@settings(max_examples=50, deadline=None)
@given(config=CHANGES)
def test_what_is_refused_before_its_download_does_not_convert(
    target: GGUFHeader, config: dict[str, Any]
) -> None:
    variant = checkpoints.Variant(WHOLE.config | config, WHOLE.tensors)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shelf = Shelf(variant.save(folder / "draft"))
        problem = judge(shelf, shelf.listing(), target).problem
        with pytest.raises(ConversionError) if problem else suppress(ConversionError):
            convert(folder / "draft", target.path, folder / "d.gguf", "f32")


@pytest.mark.parametrize("name", checkpoints.variants())
def test_every_dialect_that_converts_is_judged_as_fitting(
    target: GGUFHeader, name: str, tmp_path: Path
) -> None:
    shelf = Shelf(checkpoints.variants()[name].save(tmp_path / "draft"))
    assert judge(shelf, shelf.listing(), target).problem is None


def test_a_connection_that_breaks_is_no_damaged_checkpoint(
    target: GGUFHeader, hub: Hub, fake: FakeHub
) -> None:
    config = json.dumps(WHOLE.config).encode()
    fake.add("lab/draft", {"config.json": config, "pytorch_model.bin": b"PK"})
    listing = hub.repo("lab/draft")
    fake.fail(status=500, server="hub", times=99)
    with pytest.raises(HubError, match="HTTP 500"):
        judge(hub, listing.files, target)
