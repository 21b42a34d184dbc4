"""A Gemma 4 target and its assistant, a model of its own that reads the target's keys and values.

Both have a sliding layer and a full one. The norms after attention and FFN decide how much these
add, and so carry `mix`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.tiny_kinds.cycle import N_EMBD, NORMED, forward, output_head, wrong_tokens
from tests.tiny_kinds.model_file import ModelFile

_HEAD_DIM = 32
_IS_SLIDING = [True, False]
_ASSISTANT_N_EMBD = 128


def write_gemma4(path: Path, *, mix: float = 0.0) -> Path:
    """Two blocks. `mix` lets the history decide what follows: the more, the less of a draft is
    accepted."""
    more = {"embedding_length_per_layer_input": 0, "attention.shared_kv_layers": 0}
    file = _open(path, "gemma4", more=more)
    file.ends()
    for layer in range(len(_IS_SLIDING)):
        block = f"blk.{layer}"
        _write_norms(file, block, mix=mix * np.sqrt(N_EMBD))
        file.attention(block)
        file.ffn(block)
    return file.close()


def write_gemma4_assistant(
    path: Path,
    *,
    mix: float = 0.0,
    wrong: float = 0.0,
    token_weight: float = 0.0,
) -> Path:
    """Two blocks without keys and values; wider than the target, as the width of a state must not
    be taken for that of the target.

    `wrong` is the share of tokens after which it is wrong. `token_weight` is how much of its input
    it takes from the token: with 0 it goes by the state alone, with 1 by the token alone.
    """
    more = {
        "nextn_predict_layers": len(_IS_SLIDING),
        "embedding_length_out": N_EMBD,
        "attention.shared_kv_layers": len(_IS_SLIDING),
    }
    file = _open(
        path,
        "gemma4-assistant",
        n_embd=_ASSISTANT_N_EMBD,
        seed=11,
        more=more,
    )
    # Tied: its output is the bigram, and no token of its own is ever embedded.
    file.tensor("token_embd.weight", _widened(output_head(wrong_tokens(wrong))))
    file.norms("output_norm")
    # The target's embedding of the token comes times sqrt(n_embd), its state as it is normed.
    by_token = token_weight * np.eye(N_EMBD) / np.sqrt(N_EMBD)
    by_state = (1 - token_weight) * forward() / NORMED
    into = np.zeros((_ASSISTANT_N_EMBD, 2 * N_EMBD))
    into[:N_EMBD] = np.hstack([by_token, by_state])
    file.tensor("nextn.pre_projection.weight", into)
    # Back to what the target's own state of that token is.
    own_normed = np.sqrt(_ASSISTANT_N_EMBD / 2)
    file.tensor("nextn.post_projection.weight", _widened(np.eye(N_EMBD)) * NORMED / own_normed)
    for layer in range(len(_IS_SLIDING)):
        block = f"blk.{layer}"
        _write_norms(file, block, mix=mix)
        file.attention(block, has_kv=False)
        file.norms(f"{block}.layer_output_scale", size=1)
        file.ffn(block)
    return file.close()


def _open(
    path: Path,
    architecture: str,
    *,
    more: dict[str, int],
    n_embd: int = N_EMBD,
    seed: int = 7,
) -> ModelFile:
    """A file with all that the header says, and the frequencies of the full layer."""
    sliding = {
        "attention.key_length_swa": _HEAD_DIM,
        "attention.value_length_swa": _HEAD_DIM,
        "rope.dimension_count_swa": _HEAD_DIM,
        "attention.sliding_window": 64,
    }
    file = ModelFile(
        path,
        architecture,
        blocks=len(_IS_SLIDING),
        n_embd=n_embd,
        head_dim=_HEAD_DIM,
        mix=1.0,
        seed=seed,
        more={**sliding, **more},
    )
    file.writer.add_array(file.key("attention.sliding_window_pattern"), _IS_SLIDING)
    for key in ("rope.freq_base", "rope.freq_base_swa"):
        file.writer.add_float32(file.key(key), 10_000.0)
    file.norms("rope_freqs", size=_HEAD_DIM // 2)
    return file


def _write_norms(file: ModelFile, block: str, *, mix: float) -> None:
    file.norms(f"{block}.attn_norm", f"{block}.ffn_norm")
    file.norms(f"{block}.post_attention_norm", f"{block}.post_ffw_norm", value=mix)


def _widened(matrix: np.ndarray) -> np.ndarray:
    """With columns of zeros, up to the assistant's n_embd."""
    return np.pad(matrix, ((0, 0), (0, _ASSISTANT_N_EMBD - matrix.shape[1])))
