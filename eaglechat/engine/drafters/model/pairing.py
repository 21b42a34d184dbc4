"""Whether a whole language model can draft for another, by GGUF headers.

Both must write the same tokens. The comparison is llama.cpp's `common_speculative_are_compatible`
(common/speculative.cpp): the vocabulary's type, BOS and EOS, sizes within 128 tokens, and the same
texts from token 5 on, as families differ in the first few.
"""

from __future__ import annotations

from itertools import islice

from eaglechat.gguf.chat_model import why_no_chat_model
from eaglechat.gguf.header import GGUFError, GGUFHeader, read_texts
from eaglechat.gguf.preflight import PreflightError

_TOKENS = "tokenizer.ggml.tokens"
_MOST_MORE, _FIRST_COMPARED = 128, 5
_RECURRENT = ("{arch}.ssm.state_size", "{arch}.shortconv.l_cache", "{arch}.wkv.head_size")
"""Sizes of recurrent states."""
_MOST_OFFERED = 1 / 3
"""A model of more than this share of the target's bytes is not offered as its draft."""


def is_offered(target: GGUFHeader, draft: GGUFHeader) -> bool:
    """Whether a whole model is worth a try: of the target's family, and much smaller."""
    pre = "tokenizer.ggml.pre"
    if draft.size_bytes > _MOST_OFFERED * target.size_bytes or draft.get(pre) != target.get(pre):
        return False
    try:
        check(target, draft)
    except PreflightError:
        return False
    return True


def check(target: GGUFHeader, draft: GGUFHeader) -> None:
    """Compares all but the texts of the tokens. Raises PreflightError."""
    if (other := why_no_chat_model(draft)) is not None:
        raise PreflightError(f"{draft.path} cannot draft, it is {other}")
    if any(draft.number(key) for key in _RECURRENT):
        raise PreflightError(
            f"{draft.path} is a recurrent or hybrid model: its state cannot take back rejected "
            "tokens, so it cannot draft"
        )
    for what, key, adds in (
        ("type of tokenizer", "model", ""),
        ("BOS token", "bos_token_id", "add_bos_token"),
        ("EOS token", "eos_token_id", "add_eos_token"),
    ):
        here, there = (_of_tokenizer(one, key, adds) for one in (target, draft))
        if here != there:
            raise PreflightError(
                _differ(target, draft, f"the {what} is {here} here, {there} there")
            )
    if abs(target.n_vocab - draft.n_vocab) > _MOST_MORE:
        sizes = f"{target.n_vocab:,} tokens here, {draft.n_vocab:,} there"
        raise PreflightError(_differ(target, draft, sizes))


def check_texts(target: GGUFHeader, draft: GGUFHeader) -> None:
    """Compares the texts of the tokens, which headers do not hold. Raises PreflightError."""
    try:
        texts = zip(read_texts(target, _TOKENS), read_texts(draft, _TOKENS), strict=False)
        for id, (here, there) in islice(enumerate(texts), _FIRST_COMPARED, None):
            if here != there:
                raise PreflightError(
                    _differ(
                        target, draft, f"token {id} is {_shown(here)} here, {_shown(there)} there"
                    )
                )
    except (OSError, GGUFError) as error:
        raise PreflightError(f"the draft cannot be compared with the target: {error}") from error


def _of_tokenizer(header: GGUFHeader, key: str, adds: str) -> object:
    """A field of the tokenizer; None for a token that it does not add."""
    if adds and not header.get(f"tokenizer.ggml.{adds}"):
        return None
    return header.get(f"tokenizer.ggml.{key}")


def _shown(text: bytes) -> str:
    return ascii(text.decode("utf-8", errors="replace"))


def _differ(target: GGUFHeader, draft: GGUFHeader, how: str) -> str:
    return (
        f"{draft.path} cannot draft for {target.path.name}: their vocabularies differ ({how}). "
        "A draft model has to be of the target's family"
    )
