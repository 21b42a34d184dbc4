"""Checks the list of a draft's own tokens, which its header does not tell.

llama.cpp does not check it: it writes the draft's logits wherever the list points.
"""

from __future__ import annotations

import sys
from array import array

from eaglechat.gguf.header import GGUFError, GGUFHeader, read_tensor
from eaglechat.gguf.preflight import PreflightError


def check_vocabulary_map(draft: GGUFHeader) -> None:
    """Raises PreflightError if a draft's `d2t`, if it has one, cannot be that of its vocabulary."""
    d2t = next((tensor for tensor in draft.tensors if tensor.name == "d2t"), None)
    if d2t is None:
        return
    if d2t.type != "I64" or len(d2t.shape) != 1:
        raise PreflightError(
            f"the draft's d2t is a tensor of {d2t.type} with {len(d2t.shape)} dimensions, "
            "llama.cpp needs a list of I64"
        )
    if not any(tensor.name == "output.weight" for tensor in draft.tensors):
        raise PreflightError(
            f"the draft has {d2t.shape[0]} tokens of its own (d2t), but no output head for them"
        )
    if d2t.shape[0] > draft.n_vocab:
        raise PreflightError(
            f"the draft's d2t has {d2t.shape[0]} tokens, its vocabulary has {draft.n_vocab}"
        )
    ids = array("q")
    try:
        ids.frombytes(read_tensor(draft, d2t))
    except (OSError, GGUFError) as error:
        raise PreflightError(f"the draft cannot be read: {error}") from error
    if sys.byteorder == "big":
        ids.byteswap()
    outside = next((id for id in ids if not 0 <= id < draft.n_vocab), None)
    if outside is not None:
        raise PreflightError(
            f"the draft's d2t names token {outside}, its vocabulary has {draft.n_vocab}"
        )
