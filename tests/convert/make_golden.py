"""Writes golden.json and pytorch_model.bin: what llama.cpp's own converter and torch make of the
checkpoints in checkpoints.py. Run by hand in an environment with torch and transformers:

    python make_golden.py LLAMA_CPP_SOURCES
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

LLAMA_CPP = Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP), str(LLAMA_CPP / "gguf-py"), str(Path(__file__).parents[2])]

import gguf  # noqa: E402
import torch  # noqa: E402
from conversion.base import ModelBase  # noqa: E402
from conversion.llama import LlamaModel  # noqa: E402

from tests.convert.checkpoints import (  # noqa: E402
    HIDDEN,
    N_LAYERS,
    VOCAB,
    Variant,
    fields,
    stored_bytes,
    tensors,
    variants,
)

HERE = Path(__file__).parent
TYPES = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "bf16": gguf.LlamaFileType.MOSTLY_BF16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}


class Converter(LlamaModel):
    """Upstream's class, without the tokenizer: the target has none to load here."""

    model_arch = gguf.MODEL_ARCH.LLAMA

    def set_vocab(self) -> None:
        pass


def convert(checkpoint: Path, target: Path, kind: str, out: Path) -> None:
    hparams = ModelBase.load_hparams(checkpoint, False)
    with torch.inference_mode():
        Converter(checkpoint, TYPES[kind], out, hparams=hparams, target_model_dir=target).write()


def save_bin(path: Path, variant: Variant) -> None:
    types = {"F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "BOOL": torch.bool}
    saved = {
        name: torch.frombuffer(bytearray(stored_bytes(dtype, values)), dtype=types[dtype]).reshape(
            values.shape
        )
        for name, (dtype, values) in variant.tensors.items()
    }
    torch.save(saved, path)


def main() -> None:
    golden = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        target = work / "target"
        target.mkdir()
        facts = {"hidden_size": HIDDEN, "num_hidden_layers": N_LAYERS, "vocab_size": VOCAB}
        (target / "config.json").write_text(json.dumps(facts))
        for variant_name, variant in variants().items():
            checkpoint = variant.save(work / variant_name)
            for kind in TYPES:
                out = work / f"{variant_name}-{kind}.gguf"
                convert(checkpoint, target, kind, out)
                golden[f"{variant_name}-{kind}"] = {"fields": fields(out), "tensors": tensors(out)}
    (HERE / "golden.json").write_text(
        "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in golden.items()) + "\n}\n"
    )
    save_bin(HERE / "pytorch_model.bin", variants()["yuhuili"])


if __name__ == "__main__":
    main()
