"""Block drafters for `write_llama` and `write_qwen35`: DFlash, DSpark and DFlash2.

One block. Each of its attention heads looks back a number of positions, the first one position, and
passes on what follows the token there after that number of steps, less one. A mask has nothing to
pass on, and the further back a head looks the less it weighs, so row i of [id_last, mask, mask...]
gets what follows id_last after i - 1 steps, and the output matrix goes one step further.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal

import numpy as np

from tests.tiny_kinds.cycle import (
    N_EMBD,
    NORMED,
    SHARED,
    TOKENS,
    F,
    N,
    after,
    embeddings,
    output_head,
    repaired_tokens,
    wrong_tokens,
)
from tests.tiny_kinds.model_file import ModelFile

Variant = Literal["dflash", "dspark", "dspark-bonus", "dflash2"]

_HEAD_DIM = 64
_ROPE_BASE = 4.0
_CONV_KERNEL, _CONV_GROUP = 3, 32
_TOP_K = 4
_LAYERS = [1, 2, 3]
"""Those of the target whose inputs it reads."""


def write_dflash(
    path: Path,
    *,
    variant: Variant = "dflash",
    wrong: float = 0.0,
    block_size: int = 8,
    from_features: bool = False,
    mrope: bool = False,
    causal: bool | None = None,
    blur: bool = False,
) -> Path:
    """`dspark` drafts a token with its first row too, `dspark-bonus` does not. Both have a Markov
    head and a confidence that knows what stays wrong; `dflash2` has a selector. These are right
    after the `repaired_tokens` among the wrong ones.

    `wrong` is the share of tokens after which the block is wrong. `from_features`:
    its embeddings say nothing, all that it knows comes from the target's layers.
    `mrope`: for a target with positions of several numbers. `causal` is what the header says;
    None: nothing. `blur`: attention that looks at the whole block, so that each row counts.
    """
    file = ModelFile(
        path,
        "dflash",
        blocks=1,
        n_heads=block_size,
        head_dim=_HEAD_DIM,
        more={"block_size": block_size},
    )
    file.writer.add_array(file.key("target_layers"), _LAYERS)
    file.writer.add_float32(file.key("rope.freq_base"), _ROPE_BASE)
    if mrope:
        file.writer.add_array(file.key("rope.dimension_sections"), [_HEAD_DIM // 2, 0, 0, 0])
    if causal is not None:
        file.writer.add_bool(file.key("attention.causal"), causal)
    wrong_after, repaired = wrong_tokens(wrong), repaired_tokens(wrong)
    if from_features:
        shown = embeddings()
        shown[:, :SHARED] = 0
        file.tensor("token_embd.weight", shown)
    if from_features or wrong_after:
        # The second best is right, for a selector to choose.
        file.tensor("output.weight", output_head(wrong_after, second=0.5))
    file.tensor("fc.weight", np.hstack([np.eye(N_EMBD) / len(_LAYERS)] * len(_LAYERS)))
    file.norms("enc.output_norm", "output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")
    # The first row of DSpark's block is a step ahead.
    _write_attention(file, block_size, ahead=1 if variant == "dspark" else 0, blur=blur)
    file.ffn("blk.0")
    if variant.startswith("dspark"):
        if variant == "dspark-bonus":
            file.writer.add_bool(file.key("sample_from_anchor"), False)
        _write_markov_head(file, wrong_after, repaired)
    if variant == "dflash2":
        _write_selector(file, repaired)
    return file.close()


def _write_attention(file: ModelFile, n_heads: int, *, ahead: int, blur: bool) -> None:
    """Keys are the same everywhere; a query is turned back by as many positions as its head looks
    back, so that RoPE makes it fit the key there best."""
    half = _HEAD_DIM // 2
    angles = _ROPE_BASE ** (-np.arange(half) / half)
    query, key, value = (np.zeros((n_heads * _HEAD_DIM, N_EMBD)) for _ in range(3))
    output = np.zeros((N_EMBD, n_heads * _HEAD_DIM))
    for head in range(n_heads):
        back, first = head + 1, head * _HEAD_DIM
        rows = slice(first, first + _HEAD_DIM)
        query[rows, SHARED] = np.concatenate([np.cos(back * angles), -np.sin(back * angles)])
        key[rows, SHARED] = np.concatenate([np.ones(half), np.zeros(half)])
        for token in range(N):
            value[first + after(token, head + ahead), token] = 2.0**-back / NORMED
        output[:_HEAD_DIM, rows] = np.eye(_HEAD_DIM)
    for part, matrix in (("q", query), ("k", key), ("v", value), ("output", output)):
        file.tensor(f"blk.0.attn_{part}.weight", matrix)
    file.norms("blk.0.attn_q_norm", size=_HEAD_DIM, value=1.0 if blur else 16.0)
    file.norms("blk.0.attn_k_norm", size=_HEAD_DIM)


def _write_markov_head(
    file: ModelFile, wrong_after: Collection[int], repaired: Collection[int]
) -> None:
    """The first matrix names the token before, the second adds to what follows it."""
    before, following = np.eye(len(TOKENS)), np.zeros((len(TOKENS), len(TOKENS)))
    confidence = np.zeros((1, N_EMBD + len(TOKENS)))
    for token in range(N):
        stays_wrong = token in wrong_after and token not in repaired
        confidence[0, N_EMBD + token] = -8.0 if stays_wrong else 8.0
    for token in repaired:
        following[F[token], token] = 1000.0
    file.tensor("markov_w1.weight", before)
    file.tensor("markov_w2.weight", following)
    file.tensor("conf_proj.weight", confidence)


def _write_selector(file: ModelFile, repaired: Collection[int]) -> None:
    """A selector that adds to what follows the repaired tokens, and convolutions that leave all as
    it is."""
    more = {
        "conv_kernel_size": _CONV_KERNEL,
        "conv_group_size": _CONV_GROUP,
        "selector_rank": len(TOKENS),
        "selector_top_k": _TOP_K,
    }
    for key, value in more.items():
        file.writer.add_uint32(file.key(key), value)
    base = np.zeros((2, _CONV_KERNEL, N_EMBD))
    base[:, 0] = 1
    projection = np.zeros((2 * _CONV_KERNEL * N_EMBD // _CONV_GROUP, N_EMBD))
    for part in ("attn", "ffn"):
        file.tensor(f"blk.0.{part}_conv_base", base)
        file.tensor(f"blk.0.{part}_conv_proj.weight", projection)
    before, following = (np.zeros((len(TOKENS), len(TOKENS))) for _ in range(2))
    following[F, np.arange(N)] = 1
    for token in repaired:
        before[token, token] = 100.0
    hidden = np.zeros((len(TOKENS), N_EMBD))
    hidden[:, SHARED] = 1
    file.tensor("selector_predecessor.weight", before)
    file.tensor("selector_successor.weight", following)
    file.tensor("selector_hidden.weight", hidden)
