"""A target and its EAGLE-3 draft of any size with random weights: for the cost of a round.

Nothing sensible comes out of it, and hardly a drafted token is accepted. Weights are written in
pieces, so that an 8B pair takes a few megabytes of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

_BLOCK = 32
_PIECE = 1 << 22
"""Weights made at a time."""
_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'A' }}{% endif %}"
)


@dataclass(frozen=True)
class Shape:
    """A transformer's sizes. `n_draft_vocab` is the draft's own vocabulary."""

    name: str
    architecture: str
    n_embd: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_size: int
    n_ff: int
    n_vocab: int
    n_draft_vocab: int
    rope_base: float

    @property
    def target_layers(self) -> tuple[int, int, int]:
        """Early, middle and late, as EAGLE-3 drafts are trained."""
        return (2, self.n_layers // 2, self.n_layers - 3)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("llama-3.1-8b", "llama", 4096, 32, 32, 8, 128, 14336, 128256, 32000, 5e5),
        Shape("qwen3-8b", "qwen3", 4096, 36, 32, 8, 128, 12288, 151936, 32000, 1e6),
        Shape("small", "llama", 128, 8, 4, 2, 32, 256, 1024, 512, 1e4),
    )
}
QUANTIZATIONS = {"q4_0": GGMLQuantizationType.Q4_0, "q8_0": GGMLQuantizationType.Q8_0}
_FILE_TYPES = {"q4_0": 2, "q8_0": 7}


def write_pair(folder: Path, shape: Shape, quantization: str) -> tuple[Path, Path]:
    """Write both files, or take those of an earlier run; their paths."""
    target = folder / f"random-{shape.name}-{quantization}.gguf"
    draft = folder / f"random-{shape.name}-{quantization}-eagle3.gguf"
    folder.mkdir(parents=True, exist_ok=True)
    for path, writer in ((target, _target), (draft, _draft)):
        if not path.is_file():
            part = path.with_suffix(".part")
            writer(part, shape, quantization)
            part.replace(path)
    return target, draft


def pair_bytes(shape: Shape, quantization: str) -> int:
    """About what both files take on disk."""
    kv = shape.n_kv_heads * shape.head_size
    attention = shape.n_embd * (2 * shape.n_heads * shape.head_size + 2 * kv)
    layer = attention + 3 * shape.n_embd * shape.n_ff
    vocabularies = shape.n_embd * (2 * shape.n_vocab + shape.n_draft_vocab)
    weights = (shape.n_layers + 2) * layer + vocabularies
    return int(weights * (0.57 if quantization == "q4_0" else 1.07))


def _target(path: Path, shape: Shape, quantization: str) -> None:
    file = _File(path, shape.architecture, shape, quantization, n_layers=shape.n_layers)
    file.weights("token_embd.weight", shape.n_vocab, shape.n_embd)
    file.weights("output.weight", shape.n_vocab, shape.n_embd)
    file.ones("output_norm.weight", shape.n_embd)
    for layer in range(shape.n_layers):
        file.block(f"blk.{layer}", n_input=shape.n_embd)
    file.write()


def _draft(path: Path, shape: Shape, quantization: str) -> None:
    """Like published drafts of 8B targets: the target's embeddings, an output head of its own."""
    file = _File(path, "eagle3", shape, quantization, n_layers=1)
    file.writer.add_array("eagle3.target_layers", list(shape.target_layers))
    file.writer.add_uint32("eagle3.target_hidden_size", shape.n_embd)
    file.weights("output.weight", shape.n_draft_vocab, shape.n_embd)
    file.d2t(shape.n_draft_vocab, shape.n_vocab)
    file.weights("fc.weight", shape.n_embd, 3 * shape.n_embd)
    file.ones("output_norm.weight", shape.n_embd)
    file.ones("blk.0.attn_norm_2.weight", shape.n_embd)
    file.block("blk.0", n_input=2 * shape.n_embd)
    file.write()


class _File:
    """Collects what a GGUF will hold, then writes it."""

    def __init__(
        self, path: Path, architecture: str, shape: Shape, quantization: str, *, n_layers: int
    ) -> None:
        self.writer = GGUFWriter(path, architecture)
        self._shape = shape
        self._type = QUANTIZATIONS[quantization]
        self._random = np.random.default_rng(5)
        self._tensors: list[tuple[str, int, int]] = []
        self._plain: dict[str, np.ndarray] = {}
        self._header(architecture, n_layers, _FILE_TYPES[quantization])

    def _header(self, architecture: str, n_layers: int, file_type: int) -> None:
        writer, shape = self.writer, self._shape
        writer.add_name(f"Random {shape.name}")
        writer.add_file_type(file_type)
        for key, value in {
            "block_count": n_layers,
            "context_length": 8192,
            "embedding_length": shape.n_embd,
            "feed_forward_length": shape.n_ff,
            "attention.head_count": shape.n_heads,
            "attention.head_count_kv": shape.n_kv_heads,
            "attention.key_length": shape.head_size,
            "attention.value_length": shape.head_size,
            "rope.dimension_count": shape.head_size,
            "vocab_size": shape.n_vocab,
        }.items():
            writer.add_uint32(f"{architecture}.{key}", value)
        writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
        writer.add_float32(f"{architecture}.rope.freq_base", shape.rope_base)
        # Bytes as GPT-2 spells them; the rest are words that no text contains.
        bytes_ = [
            chr(b if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174 else 0) for b in range(256)
        ]
        shifted = iter(range(256, 512))
        tokens = [letter if letter != "\0" else chr(next(shifted)) for letter in bytes_]
        tokens += [f"<{index}>" for index in range(shape.n_vocab - 258)] + ["<s>", "</s>"]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(tokens)
        writer.add_token_types([1] * (shape.n_vocab - 2) + [3, 3])
        writer.add_token_merges(["t h"])
        writer.add_bos_token_id(shape.n_vocab - 2)
        writer.add_eos_token_id(shape.n_vocab - 1)
        writer.add_chat_template(_TEMPLATE)

    def weights(self, name: str, n_rows: int, n_columns: int) -> None:
        """A random matrix, made when it is written."""
        bytes_per_row = n_columns // _BLOCK * _block_bytes(self._type)
        self.writer.add_tensor_info(
            name, (n_rows, bytes_per_row), np.dtype(np.uint8), n_rows * bytes_per_row, self._type
        )
        self._tensors.append((name, n_rows, n_columns))

    def ones(self, name: str, size: int) -> None:
        self._add(name, np.ones(size, dtype=np.float32))

    def d2t(self, n_draft_vocab: int, n_vocab: int) -> None:
        """The draft's tokens, evenly out of the target's; never the one that ends a reply."""
        ids = np.linspace(0, n_vocab - 3, n_draft_vocab).astype(np.int64)
        self._add("d2t", ids)

    def block(self, name: str, *, n_input: int) -> None:
        shape = self._shape
        heads, kv = shape.n_heads * shape.head_size, shape.n_kv_heads * shape.head_size
        self.ones(f"{name}.attn_norm.weight", shape.n_embd)
        self.ones(f"{name}.ffn_norm.weight", shape.n_embd)
        if shape.architecture == "qwen3" and n_input == shape.n_embd:
            self.ones(f"{name}.attn_q_norm.weight", shape.head_size)
            self.ones(f"{name}.attn_k_norm.weight", shape.head_size)
        self.weights(f"{name}.attn_q.weight", heads, n_input)
        self.weights(f"{name}.attn_k.weight", kv, n_input)
        self.weights(f"{name}.attn_v.weight", kv, n_input)
        self.weights(f"{name}.attn_output.weight", shape.n_embd, heads)
        self.weights(f"{name}.ffn_gate.weight", shape.n_ff, shape.n_embd)
        self.weights(f"{name}.ffn_up.weight", shape.n_ff, shape.n_embd)
        self.weights(f"{name}.ffn_down.weight", shape.n_embd, shape.n_ff)

    def write(self) -> None:
        writer = self.writer
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        assert writer.fout is not None
        (file,) = writer.fout
        writer.write_padding(file, file.tell())
        for name, n_rows, n_columns in self._tensors:
            if name in self._plain:
                self._plain[name].tofile(file)
            else:
                self._write_weights(file, n_rows, n_columns)
            writer.write_padding(file, file.tell())
        writer.close()

    def _add(self, name: str, values: np.ndarray) -> None:
        self.writer.add_tensor_info(name, values.shape, values.dtype, values.nbytes)
        self._tensors.append((name, 0, 0))
        self._plain[name] = values

    def _write_weights(self, file: BinaryIO, n_rows: int, n_columns: int) -> None:
        """Blocks of a half-precision scale and random integers, so that outputs stay near 1."""
        spread = 4.6 if self._type is GGMLQuantizationType.Q4_0 else 73.9
        scale = np.array([1.0 / (spread * np.sqrt(n_columns))], dtype=np.float16).view(np.uint8)
        left = n_rows * n_columns // _BLOCK
        while left:
            count = min(left, _PIECE // _BLOCK)
            blocks = self._random.integers(
                0, 256, size=(count, _block_bytes(self._type)), dtype=np.uint8
            )
            blocks[:, :2] = scale
            blocks.tofile(file)
            left -= count


def _block_bytes(type_: GGMLQuantizationType) -> int:
    """A scale of two bytes, and 32 weights."""
    return 2 + (_BLOCK // 2 if type_ is GGMLQuantizationType.Q4_0 else _BLOCK)
