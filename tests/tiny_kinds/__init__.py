"""Tiny models of the other kinds of drafters, with an acceptance known by construction.

A target without `mix` puts F[t] after t, whatever came before. Its drafter proposes the same, but
F[F[t]] after the tokens of `wrong_tokens`: `accepted` tells how much of a draft stays. With `mix`
the history decides too, so that a cache or a state that is not what it should be changes the text.
"""

from tests.tiny_kinds.cycle import (
    BOS,
    EOS,
    MASK,
    TOKENS,
    F,
    N,
    accepted,
    repaired_tokens,
    wrong_tokens,
)
from tests.tiny_kinds.dflash import Variant, write_dflash
from tests.tiny_kinds.eagle3 import write_eagle3
from tests.tiny_kinds.gemma4 import write_gemma4, write_gemma4_assistant
from tests.tiny_kinds.llama import write_llama
from tests.tiny_kinds.mtp import write_hy_v3, write_qwen35

__all__ = [
    "BOS",
    "EOS",
    "MASK",
    "TOKENS",
    "F",
    "N",
    "Variant",
    "accepted",
    "repaired_tokens",
    "write_dflash",
    "write_eagle3",
    "write_gemma4",
    "write_gemma4_assistant",
    "write_hy_v3",
    "write_llama",
    "write_qwen35",
    "wrong_tokens",
]
