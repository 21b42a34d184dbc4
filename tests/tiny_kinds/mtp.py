"""Targets with heads for multi-token prediction in their own file, dense and hybrid.

A head is a block that is given the normed embedding of a token and the normed state of the
position before it. Its output matrix is the bigram, but for the tokens after which it is wrong.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.tiny_kinds.cycle import N_EMBD, NORMED, forward, output_head, wrong_tokens
from tests.tiny_kinds.model_file import N_FF, ModelFile

_HYBRID_STATE, _HYBRID_HEADS = 16, 2


def write_hy_v3(
    path: Path,
    *,
    heads: int = 1,
    mix: float = 0.0,
    wrong: float = 0.0,
    token_weight: float = 0.0,
    strip: bool = False,
    mtp_only: bool = False,
) -> Path:
    """Three dense blocks, and `heads` that draft a token each, one from the state of the other.

    `mix` lets the history decide what follows: the more, the less of a draft is accepted. `wrong`
    is the share of tokens after which the heads are wrong. `token_weight` is how much of its input
    a head takes from the token: with 0 it goes by the state alone, so a state of another position
    is a wrong draft; with 1 by the token alone. `strip` declares the heads and leaves their tensors
    out. `mtp_only` is a sidecar: it leaves out the tensors of the other blocks.
    """
    trunk = 3
    more = {"nextn_predict_layers": heads, "expert_feed_forward_length": N_FF}
    file = ModelFile(path, "hy_v3", blocks=trunk + heads, mix=mix, more=more)
    file.writer.add_float32(file.key("rope.freq_base"), 10_000.0)
    file.ends()
    for layer in range(trunk + heads):
        if mtp_only and layer < trunk:
            continue
        block = f"blk.{layer}"
        file.norms(f"{block}.attn_norm", f"{block}.ffn_norm")
        file.attention(block)
        file.ffn(block)
        if layer >= trunk and not strip:
            _write_head(file, block, wrong, token_weight)
    return file.close()


def write_qwen35(
    path: Path,
    *,
    mix: float = 0.0,
    wrong: float = 0.0,
    token_weight: float = 0.0,
    strip: bool = False,
    strip_block: bool = False,
    mtp_only: bool = False,
) -> Path:
    """Four blocks, of which 0 and 2 are recurrent (gated delta nets), and one head.

    The arguments are those of `write_hy_v3`. `strip_block` leaves out the whole block of the head.
    """
    trunk = 4
    more = {
        "nextn_predict_layers": 1,
        "full_attention_interval": 2,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": _HYBRID_HEADS * _HYBRID_STATE,
        "ssm.state_size": _HYBRID_STATE,
        "ssm.time_step_rank": _HYBRID_HEADS,
        "ssm.group_count": _HYBRID_HEADS,
    }
    file = ModelFile(path, "qwen35", blocks=trunk + 1, mix=mix, more=more)
    file.writer.add_array(file.key("rope.dimension_sections"), [6, 5, 5, 0])
    file.writer.add_float32(file.key("rope.freq_base"), 10_000.0)
    file.ends()
    for layer in range(trunk + 1):
        is_head = layer == trunk
        if (strip_block and is_head) or (mtp_only and not is_head):
            continue
        block = f"blk.{layer}"
        file.norms(f"{block}.attn_norm", f"{block}.post_attention_norm")
        file.ffn(block)
        if is_head or layer % 2:
            file.attention(block, gated=True)
        else:
            _write_delta_net(file, block, mix)
        if is_head and not strip:
            _write_head(file, block, wrong, token_weight)
    return file.close()


def _write_head(file: ModelFile, block: str, wrong: float, token_weight: float) -> None:
    """What a head has beside a block. The state of the position before says the same of the token
    as its embedding: it is the embedding of the token before, moved on by one."""
    by_token = token_weight * np.eye(N_EMBD) / NORMED
    by_state = (1 - token_weight) * forward() / NORMED
    file.tensor(f"{block}.nextn.eh_proj.weight", np.hstack([by_token, by_state]))
    file.norms(*(f"{block}.nextn.{part}" for part in ("enorm", "hnorm", "shared_head_norm")))
    file.tensor(f"{block}.nextn.shared_head_head.weight", output_head(wrong_tokens(wrong)))


def _write_delta_net(file: ModelFile, block: str, mix: float) -> None:
    width = _HYBRID_HEADS * _HYBRID_STATE
    convolved = 3 * width  # queries, keys and values
    file.noise_of_state(f"{block}.attn_qkv", convolved)
    file.noise_of_state(f"{block}.attn_gate", width)
    file.noise(f"{block}.ssm_conv1d", convolved, 4, 2.0)
    file.tensor(f"{block}.ssm_dt.bias", np.full(_HYBRID_HEADS, 0.1))
    decay = np.abs(file.random.standard_normal(_HYBRID_HEADS))
    file.tensor(f"{block}.ssm_a", -0.1 * decay - 0.02)
    file.noise_of_state(f"{block}.ssm_beta", _HYBRID_HEADS)
    file.noise_of_state(f"{block}.ssm_alpha", _HYBRID_HEADS)
    file.norms(f"{block}.ssm_norm", size=_HYBRID_STATE)
    file.noise(f"{block}.ssm_out", N_EMBD, width, 2 * mix)
