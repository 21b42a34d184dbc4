"""Makes the files of docs/benchmarks.md: the built-in target in BF16, a draft of random weights.

    python -m tests.bench_files FOLDER

The random draft is the built-in one with every weight replaced: it costs the same and is never
right, so an automatic draft length has to find out that it must not draft.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader

from eaglechat.engine.llama import backend
from eaglechat.engine.llama.bindings import api
from eaglechat.hub.local.pairs import builtin_pair

_BF16 = 32
"""general.file_type of a GGUF whose matrices are bfloat16."""
_Q8_0_BLOCK, _SCALE = 34, np.float16(0.0005)


def write_bf16_target(source: Path, out: Path) -> Path:
    """Expand a target. Its weights stay those of its quantisation; only the kernels change."""
    params = api.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = _BF16, True
    if api.llama_model_quantize(str(source).encode(), str(out).encode(), params) != 0:
        raise SystemExit(f"llama.cpp could not write {out}; its log says why")
    return out


def write_random_draft(source: Path, out: Path) -> Path:
    """A copy of a Q8_0 draft with other matrices."""
    shutil.copyfile(source, out)
    random = np.random.default_rng(1)
    for tensor in GGUFReader(out, "r+").tensors:
        if tensor.tensor_type is GGMLQuantizationType.Q8_0:
            blocks = tensor.data.reshape(-1, _Q8_0_BLOCK)
            blocks[:, :2] = np.array([_SCALE]).view(np.uint8)
            blocks[:, 2:] = random.integers(0, 256, (len(blocks), _Q8_0_BLOCK - 2), np.uint8)
    return out


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pair = builtin_pair()
    assert pair.draft is not None
    backend.start_backend(backend.LOG_ERRORS)
    print(write_bf16_target(pair.target, folder / "target-bf16.gguf"))
    print(write_random_draft(pair.draft, folder / "random-draft.gguf"))


if __name__ == "__main__":
    main()
