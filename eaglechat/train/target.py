"""What training takes from the target's GGUF: a layer's shape, embeddings, output head."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eaglechat.engine.llama.bindings import Floats
from eaglechat.gguf.header import GGUFHeader, read_shards
from eaglechat.gguf.memory import memory_need
from eaglechat.gguf.preflight import EXTRACT_LAYERS, deepest_readable_layer
from eaglechat.hub.convert.target import read_rows
from eaglechat.train.rope import DEFAULT_BASE, Rope, plain_rope
from eaglechat.train.settings import TrainingError

_CHUNK_ROWS = 8192
_SAMPLED_BYTES = 4096
_CHATS_SHARE = 0.75
"""The share of the free memory for chats. The rest is for their features and other programs."""
_MOST_CHATS = 64
_FEWEST_CHATS = 4

EMBEDDINGS = "token_embd.weight"
HEAD = "output.weight"


@dataclass(frozen=True)
class DraftShape:
    """The dimensions of a draft; by default those of a layer of its target."""

    n_embd: int
    n_features: int
    """Three times the target's n_embd."""
    n_heads: int
    n_kv_heads: int
    head_dim: int
    feed_forward: int
    rms_eps: float
    rope: Rope
    n_ctx: int
    norm_before_fc: bool = False
    """Whether a norm with weights precedes `fc`."""
    fc_norm: bool = False
    """Whether each layer's features are divided by their root mean square before `fc`."""
    norm_before_residual: bool = False
    """Whether attention is added to the normed state instead of the state."""
    norm_output: bool = False
    """Whether the next step reads the state after the output norm."""


def shape_of(target: GGUFHeader) -> DraftShape:
    """The default dimensions of a draft. Raises TrainingError if a draft cannot have them."""
    n_heads = target.number("{arch}.attention.head_count") or max(target.n_embd // 64, 1)
    # Hybrid targets list a number per layer; a draft has one layer of the usual kind.
    n_kv_heads = target.number("{arch}.attention.head_count_kv") or n_heads
    head_dim = target.number("{arch}.attention.key_length") or target.n_embd // n_heads
    if n_heads % n_kv_heads or head_dim % 2:
        raise TrainingError(
            f"the target {target.path.name} has {n_heads} heads of size {head_dim} over "
            f"{n_kv_heads} key-value heads, which an EAGLE-3 draft cannot copy"
        )
    feed_forward = target.number("{arch}.feed_forward_length")
    return DraftShape(
        n_embd=target.n_embd,
        n_features=EXTRACT_LAYERS * target.n_embd,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        feed_forward=feed_forward or -(-8 * target.n_embd // 3 // 256) * 256,
        rms_eps=float(target.get("{arch}.attention.layer_norm_rms_epsilon") or 1e-5),
        rope=plain_rope(float(target.get("{arch}.rope.freq_base") or DEFAULT_BASE), head_dim),
        n_ctx=target.n_ctx_train,
    )


def fingerprint(target: GGUFHeader) -> str:
    """Tells a target from all others, also from another fine-tune of the same model: a digest of
    its headers and of the first bytes of each tensor. Raises GGUFError, OSError."""
    digest = hashlib.blake2b(digest_size=8)
    for header in read_shards(target.path):
        with header.path.open("rb") as file:
            digest.update(file.read(header.data_start))
            for tensor in header.tensors:
                file.seek(header.data_start + tensor.offset)
                digest.update(file.read(_SAMPLED_BYTES))
    return digest.hexdigest()


def default_layers(target: GGUFHeader) -> tuple[int, int, int]:
    """The usual choice: an early, a middle and a late layer input."""
    n_layers, last = target.n_layers, deepest_readable_layer(target)
    if n_layers < 2 * EXTRACT_LAYERS:
        return last // 3, 2 * last // 3, last
    return 2, n_layers // 2, n_layers - 3


def check_layers(layers: tuple[int, ...], target: GGUFHeader) -> None:
    """Raises TrainingError for layers whose inputs the target does not offer."""
    last = deepest_readable_layer(target)
    if len(layers) != EXTRACT_LAYERS or not all(0 <= layer <= last for layer in layers):
        raise TrainingError(
            f"a draft reads three layers of its target, {target.path.name} offers 0 to {last}; "
            f"asked for {', '.join(map(str, layers))}"
        )


def chats_side_by_side(target: GGUFHeader, longest: int, free: int) -> int:
    """How many chats of `longest` tokens fit, with the target, into three quarters of the `free`
    bytes; at least 4 and at most 64."""
    one = memory_need(target, None, longest)
    spare = int(_CHATS_SHARE * free) - (one.total - one.target_kv)
    return min(max(spare // max(one.target_kv, 1), _FEWEST_CHATS), _MOST_CHATS)


def soft_cap(target: GGUFHeader) -> float | None:
    """The cap of a target whose logits are cap * tanh(logit / cap); else None."""
    value = target.get("{arch}.final_logit_softcapping")
    return float(value) if value else None


class VocabularyMatrices:
    """Reads and dequantises rows of a model's embeddings and output head.

    Reading raises ConversionError, OSError.
    """

    def __init__(self, model: GGUFHeader) -> None:
        """Raises TrainingError if the file has no embeddings."""
        self._places = {
            tensor.name: (header.path, header.data_start, tensor)
            for header in read_shards(model.path)
            for tensor in header.tensors
            if tensor.name in (EMBEDDINGS, HEAD)
        }
        if EMBEDDINGS not in self._places:
            raise TrainingError(f"{model.path.name} holds no token embeddings")

    def embeddings(self) -> Iterator[Floats]:
        """All rows [n_vocab, n_embd], 8,192 at a time."""
        _, _, tensor = self._places[EMBEDDINGS]
        for first in range(0, tensor.shape[1], _CHUNK_ROWS):
            last = min(first + _CHUNK_ROWS, tensor.shape[1])
            yield self._rows(EMBEDDINGS, np.arange(first, last))

    def head(self, tokens: npt.NDArray[np.int64]) -> Floats:
        """The output head's rows for these tokens. A model without a head uses its embeddings."""
        return self._rows(HEAD if HEAD in self._places else EMBEDDINGS, tokens)

    def _rows(self, name: str, rows: npt.NDArray[np.int64]) -> Floats:
        path, data_start, tensor = self._places[name]
        return read_rows(path, data_start, tensor, rows)
