"""The converter never holds more than a few rows: 1 GB of checkpoint in well under 400 MB."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from math import prod
from pathlib import Path

import pytest

from tests.convert.checkpoints import write_target

HIDDEN, FEED_FORWARD, VOCAB, DRAFT_VOCAB = 4096, 22016, 128256, 32000
LIMIT_MB = 400

# Linux counts the memory of the process that forked a child in the child's ru_maxrss.
CONVERT_AND_MEASURE = """
import re, resource, sys
from pathlib import Path
from eaglechat.hub.convert import convert
convert(*map(Path, sys.argv[1:4]), sys.argv[4])
status = Path("/proc/self/status")
if status.exists():
    print(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1])
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def sparse_checkpoint(directory: Path) -> int:
    """A draft of the size of Llama-3.1-8B's, all zeros but d2t, taking no disk. Its bytes."""
    directory.mkdir()
    layer = "midlayer."
    shapes = {
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        f"{layer}input_layernorm.weight": (HIDDEN,),
        f"{layer}hidden_norm.weight": (HIDDEN,),
        f"{layer}post_attention_layernorm.weight": (HIDDEN,),
        f"{layer}self_attn.q_proj.weight": (HIDDEN, 2 * HIDDEN),
        f"{layer}self_attn.k_proj.weight": (1024, 2 * HIDDEN),
        f"{layer}self_attn.v_proj.weight": (1024, 2 * HIDDEN),
        f"{layer}self_attn.o_proj.weight": (HIDDEN, HIDDEN),
        f"{layer}mlp.gate_proj.weight": (FEED_FORWARD, HIDDEN),
        f"{layer}mlp.up_proj.weight": (FEED_FORWARD, HIDDEN),
        f"{layer}mlp.down_proj.weight": (HIDDEN, FEED_FORWARD),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (DRAFT_VOCAB, HIDDEN),
        "d2t": (DRAFT_VOCAB,),
    }
    header, end = {}, 0
    for name, shape in shapes.items():
        dtype, item_bytes = ("I64", 8) if name == "d2t" else ("BF16", 2)
        start, end = end, end + prod(shape) * item_bytes
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    weights = directory / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(weights, 8 + len(text) + end)
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": HIDDEN, "vocab_size": VOCAB,
        "num_attention_heads": 32, "num_key_value_heads": 8, "draft_vocab_size": DRAFT_VOCAB,
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(config))
    return weights.stat().st_size


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="measures with getrusage")
def test_a_gigabyte_converts_in_little_memory(tmp_path: Path) -> None:
    size = sparse_checkpoint(tmp_path / "draft")
    assert size > 10**9
    target = write_target(tmp_path / "target.gguf", n_layers=32, hidden=HIDDEN, vocab=VOCAB)
    out = tmp_path / "draft.gguf"
    command = [sys.executable, "-c", CONVERT_AND_MEASURE, str(tmp_path / "draft"), str(target)]
    try:
        done = subprocess.run(
            [*command, str(out), "q8_0"], capture_output=True, text=True, check=True
        )
        assert out.stat().st_size > size / 2
    finally:
        out.unlink(missing_ok=True)
    kilobytes = int(done.stdout) / (1024 if sys.platform == "darwin" else 1)
    assert kilobytes / 1024 < LIMIT_MB
