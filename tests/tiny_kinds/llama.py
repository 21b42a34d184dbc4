"""A dense target whose layer inputs can be read: what block drafters draft for."""

from __future__ import annotations

from pathlib import Path

from tests.tiny_kinds.cycle import wrong_tokens
from tests.tiny_kinds.model_file import ModelFile

_BLOCKS = 4


def write_llama(path: Path, *, mix: float = 0.0, wrong: float = 0.0) -> Path:
    """Four blocks. `mix` lets the history decide what follows: with 0.25 half of a draft of four
    stays, with 0.3 a twentieth, with up to 0.2 all. Without it, `wrong` is the share of tokens
    after which F[F[t]] follows t."""
    file = ModelFile(path, "llama", blocks=_BLOCKS, mix=mix)
    file.ends(wrong_tokens(wrong))
    for layer in range(_BLOCKS):
        block = f"blk.{layer}"
        file.norms(f"{block}.attn_norm", f"{block}.ffn_norm")
        file.attention(block, has_norms=False)
        file.ffn(block)
    return file.close()
