"""An EAGLE-3 draft for `write_llama` and `write_qwen35`.

One block. Half of its attention heads look at their own position, and move the state there one step
on in the cycle; the others look anywhere, and add what `mix` lets them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.tiny_kinds.cycle import (
    N_EMBD,
    NORMED,
    SHARED,
    N,
    forward,
    output_head,
    wrong_tokens,
)
from tests.tiny_kinds.model_file import ModelFile

_HEADS, _HEAD_DIM = 6, 32
_LAYERS = [1, 2, 3]
"""Those of the target whose inputs it reads."""
_ROPE_BASE = 4.0
"""Turns keys by so much a position that those of others do not fit."""


def write_eagle3(
    path: Path,
    *,
    mix: float = 0.0,
    wrong: float = 0.0,
    token_weight: float = 0.0,
) -> Path:
    """`wrong` is the share of tokens after which it is wrong. `token_weight` is how much it takes
    from the token that a row is paired with: with 0 it goes by the target's layers alone. Its own
    vocabulary is the regular tokens; embeddings are the target's."""
    file = ModelFile(path, "eagle3", blocks=1, n_heads=_HEADS, head_dim=_HEAD_DIM, mix=mix)
    file.writer.add_array(file.key("target_layers"), _LAYERS)
    file.writer.add_uint32(file.key("target_hidden_size"), N_EMBD)
    file.writer.add_float32(file.key("rope.freq_base"), _ROPE_BASE)
    file.tensor("output.weight", output_head(wrong_tokens(wrong))[:N])
    file.writer.add_tensor("d2t", np.arange(N, dtype=np.int64))
    file.tensor("fc.weight", np.hstack([np.eye(N_EMBD) / len(_LAYERS)] * len(_LAYERS)))
    file.norms("output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm")
    own = _HEADS * _HEAD_DIM // 2
    # A row reads [token, state], both normed.
    query = np.zeros((2 * own, 2 * N_EMBD))
    query[:own, N_EMBD + SHARED] = 1
    value = np.zeros_like(query)
    by_state = ((1 - token_weight) * forward() - np.eye(N_EMBD)) / NORMED
    value[:own] = np.hstack([token_weight * np.eye(N_EMBD) / NORMED, by_state])
    output = np.zeros((N_EMBD, 2 * own))
    output[:, :own] = np.eye(N_EMBD)
    for part, matrix in (("q", query), ("k", query.copy()), ("v", value)):
        # Queries and keys that make a head look at a few positions and not at all alike.
        scale = 1.0 if part == "v" else 4.0
        noise = file.random.standard_normal(matrix[own:].shape)
        matrix[own:] = scale * noise / np.sqrt(2 * N_EMBD)
        matrix[own:, [SHARED, N_EMBD + SHARED]] = 0
        file.tensor(f"blk.0.attn_{part}.weight", matrix)
    output[:, own:] = mix * file.random.standard_normal((N_EMBD, own)) / np.sqrt(own)
    file.tensor("blk.0.attn_output.weight", output)
    file.ffn("blk.0")
    return file.close()
