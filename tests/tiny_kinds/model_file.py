"""What tiny models of all kinds have in common, as it is written into a GGUF."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from gguf import GGUFWriter

from tests import tiny
from tests.tiny_kinds.cycle import N_EMBD, SHARED, TOKENS, embeddings, output_head

N_FF = 64


class ModelFile:
    """A GGUF that is written tensor by tensor; `close` puts it on disk.

    `mix` scales what attention and FFN add to the state. Zero leaves each token's embedding as it
    is; more than zero adds random values that depend on the tokens before.
    """

    def __init__(
        self,
        path: Path,
        architecture: str,
        *,
        blocks: int,
        n_embd: int = N_EMBD,
        n_heads: int = 3,
        head_dim: int = 32,
        mix: float = 0.0,
        seed: int = 7,
        more: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`more` are whole numbers of the header, by key."""
        self._path = path
        self.writer = GGUFWriter(path, architecture)
        self.random = np.random.default_rng(seed)
        self._n_embd, self._mix = n_embd, mix
        self._n_heads, self._head_dim = n_heads, head_dim
        shape = {
            "block_count": blocks,
            "embedding_length": n_embd,
            "feed_forward_length": N_FF,
            "attention.head_count": n_heads,
            "attention.head_count_kv": n_heads,
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            "rope.dimension_count": head_dim,
            "vocab_size": len(TOKENS),
        }
        tiny.write_shape(self.writer, {**shape, **more})
        # The merge is of two characters that are no tokens.
        tiny.write_vocabulary(self.writer, tiny.TEMPLATE, TOKENS, merge="Ã ©")
        self.writer.add_mask_token_id(TOKENS.index("<mask>"))

    def key(self, name: str) -> str:
        return f"{self.writer.arch}.{name}"

    def tensor(self, name: str, values: np.ndarray) -> None:
        tiny.write_tensor(self.writer, name, values)

    def norms(self, *names: str, size: int | None = None, value: float = 1.0) -> None:
        """Weights of norms, `size` values that are all the same."""
        for name in names:
            self.tensor(f"{name}.weight", np.full(size or self._n_embd, value))

    def noise(self, name: str, rows: int, columns: int, scale: float = 1.0) -> None:
        """A random matrix that leaves the size of what it is given."""
        values = self.random.standard_normal((rows, columns))
        self.tensor(f"{name}.weight", values * scale / np.sqrt(columns))

    def noise_of_state(self, name: str, rows: int) -> None:
        """A random matrix that reads the state, but not what all tokens share: that would drown
        the rest."""
        values = self.random.standard_normal((rows, self._n_embd)) / np.sqrt(self._n_embd)
        values[:, SHARED] = 0
        self.tensor(f"{name}.weight", values)

    def ends(self, wrong: Collection[int] = ()) -> None:
        """Embeddings and output of a target; after the tokens of `wrong`, another token follows."""
        self.tensor("token_embd.weight", embeddings())
        self.tensor("output.weight", output_head(wrong))
        self.norms("output_norm")

    def attention(
        self, block: str, *, gated: bool = False, has_kv: bool = True, has_norms: bool = True
    ) -> None:
        """Without keys and values it reads those of another model; gated, its query has a gate."""
        width = self._n_heads * self._head_dim
        self.noise_of_state(f"{block}.attn_q", width * 2 if gated else width)
        read = ["k", "v"] if has_kv else []
        for part in read:
            self.noise_of_state(f"{block}.attn_{part}", width)
        self.noise(f"{block}.attn_output", self._n_embd, width, self._mix)
        if has_norms:
            normed = ["q", "k"] if has_kv else ["q"]
            names = [f"{block}.attn_{part}_norm" for part in normed]
            self.norms(*names, size=self._head_dim, value=1.5)

    def ffn(self, block: str) -> None:
        self.noise_of_state(f"{block}.ffn_gate", N_FF)
        self.noise_of_state(f"{block}.ffn_up", N_FF)
        self.noise(f"{block}.ffn_down", self._n_embd, N_FF, self._mix)

    def close(self) -> Path:
        return tiny.close(self.writer, self._path)
