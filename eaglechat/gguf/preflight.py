"""Checks by their GGUF headers that a target and a draft fit, before llama.cpp opens the files.

For some pairs llama.cpp aborts the process: a target whose graph does not export layer inputs fails
a GGML_ASSERT. For others it gives the reason only in its log.
"""

from __future__ import annotations

import sys
from array import array
from pathlib import Path

from eaglechat.gguf.header import (
    GGUFError,
    GGUFHeader,
    printable,
    read_header,
    read_tensor,
)
from eaglechat.wire.errors import EngineError, SettingsError
from eaglechat.wire.load_options import FlashAttention
from eaglechat.wire.records import KvType

DRAFT_ARCHITECTURE = "eagle3"
EXTRACT_LAYERS = 3
DRAFT_LAYERS = 1

NORMS_FEATURES = "eaglechat.fc_norm"
NORM_OUTPUT = "eaglechat.norm_output"
DRAFT_WINDOW = "eaglechat.sliding_window"
"""Keys of our converter, for what this engine computes because llama.cpp's eagle3 graph does not:
EAGLE-3.1's two norms, and the window, in tokens, that a draft was trained with."""

TARGET_ARCHITECTURES = frozenset(
    {
        "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan-dense", "hunyuan_vl", "lfm2",
        "lfm2moe", "llama", "mimo2", "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige",
        "nemotron_h", "nemotron_h_moe", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next",
        "qwen4exp",
    }
)  # fmt: skip
"""Architectures whose llama.cpp graph exports layer inputs: their sources set `t_layer_inp`."""

_EXPORTS_FINAL_STATE = frozenset(
    {
        "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "mimo2", "nemotron_h", "nemotron_h_moe",
        "qwen35", "qwen35moe", "qwen3next",
    }
)  # fmt: skip
"""Architectures whose sources also set `t_h_nextn`: a draft may read the state after the last
layer."""

_SHAREABLE = ("token_embd.weight", "output.weight")
"""A draft without these tensors uses its target's."""

_Q8_BLOCK = 32

_NOT_CHAT_MODELS = frozenset({"clip", "bert", "nomic-bert", "jina-bert-v2", "t5encoder", "dflash"})


class PreflightError(EngineError):
    """A file or a pair cannot run; the message is one sentence."""

    code = "preflight"

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


def check_pair(target: Path, draft: Path | None) -> tuple[GGUFHeader, GGUFHeader | None]:
    """The headers of a target and its draft. Raises PreflightError if they cannot run together."""
    target_header = _read(target, "target")
    draft_header = _read(draft, "draft") if draft is not None else None
    check_headers(target_header, draft_header)
    if draft_header is not None:
        check_vocabulary_map(draft_header)
    return target_header, draft_header


def check_headers(target: GGUFHeader, draft: GGUFHeader | None) -> None:
    """Like `check_pair`, of headers alone, such as those of files on the Hub.

    Raises PreflightError.
    """
    if target.architecture == DRAFT_ARCHITECTURE:
        message = (
            f"the target {target.path} is an EAGLE-3 draft (architecture eagle3), not a language "
            "model"
        )
        if draft is None:
            raise PreflightError(f"{message}; give it as the draft, with its own target")
        raise PreflightError(
            f"{message}; are target and draft swapped? (the draft given is {draft.path})"
        )
    if target.architecture in _NOT_CHAT_MODELS:
        raise PreflightError(
            f"{target.path} is a {target.architecture} model, which cannot chat; "
            "the target must be a language model"
        )
    if draft is not None:
        _check_draft(draft)
        _check_match(target, draft)


def check_kv_type(header: GGUFHeader, kv_type: KvType, flash_attention: FlashAttention) -> None:
    """Raises SettingsError if a model's KV cache cannot have this type."""
    if kv_type == "f16":
        return
    if flash_attention == "off":
        raise SettingsError(
            f"a KV cache in {kv_type} needs flash attention, which is switched off "
            "(engine.flash_attention); switch it on, or keep the cache in f16"
        )
    key = "{arch}.attention.head_count"
    heads = max(header.numbers(key) or [header.number(key)]) or 1
    for part in ("key", "value"):
        width = header.number(f"{{arch}}.attention.{part}_length", header.n_embd // heads)
        if width % _Q8_BLOCK:
            raise SettingsError(
                f"{header.path.name} has attention heads {width} wide, a KV cache in q8_0 needs "
                f"a multiple of {_Q8_BLOCK}; keep it in f16"
            )


def _read(path: Path, role: str) -> GGUFHeader:
    try:
        header = read_header(path)
    except FileNotFoundError:
        raise PreflightError(f"the {role} {path} does not exist") from None
    except OSError as error:
        why = error.strerror or error
        raise PreflightError(f"the {role} {path} cannot be read: {why}") from error
    except GGUFError as error:
        raise PreflightError(f"the {role} cannot be read: {error}") from error
    if not header.architecture:
        raise PreflightError(f"the {role} {path} does not name its architecture")
    return header


def _check_draft(draft: GGUFHeader) -> None:
    if draft.architecture != DRAFT_ARCHITECTURE:
        raise PreflightError(
            f"the draft {draft.path} has the architecture {draft.architecture}, "
            f"an EAGLE-3 draft has {DRAFT_ARCHITECTURE}"
        )
    layers = draft.numbers("eagle3.target_layers")
    if layers is None and draft.get("eagle3.target_layers") is not None:
        raise PreflightError(
            f"the draft {draft.path} does not give its extract layers (eagle3.target_layers) as a "
            f"list of {EXTRACT_LAYERS} whole numbers"
        )
    if layers is None or len(layers) != EXTRACT_LAYERS:
        raise PreflightError(
            f"the draft {draft.path} names {len(layers or ())} extract layers, "
            f"EAGLE-3 needs {EXTRACT_LAYERS}"
        )
    if draft.n_layers != DRAFT_LAYERS:
        raise PreflightError(
            f"the draft {draft.path} has {draft.n_layers} layers, an EAGLE-3 draft has "
            f"{DRAFT_LAYERS}"
        )


def check_vocabulary_map(draft: GGUFHeader) -> None:
    """llama.cpp does not check `d2t`: it writes the draft's logits wherever that points. Reads the
    tensor from the file. Raises PreflightError."""
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


def _check_match(target: GGUFHeader, draft: GGUFHeader) -> None:
    if target.architecture not in TARGET_ARCHITECTURES:
        raise PreflightError(
            f"the target {target.path} has the architecture {target.architecture}, whose llama.cpp "
            f"graph does not export layer inputs, so the draft {draft.path.name} cannot read it; "
            "load the target without a draft"
        )
    wanted = draft.number("eagle3.target_hidden_size")
    if wanted != target.n_embd:
        raise PreflightError(
            f"the draft was made for a target with hidden size {wanted}, "
            f"{target.path.name} has {target.n_embd}"
        )
    if draft.n_vocab != target.n_vocab:
        raise PreflightError(
            f"the draft was made for a vocabulary of {draft.n_vocab} tokens, "
            f"{target.path.name} has {target.n_vocab}"
        )
    own = {tensor.name for tensor in draft.tensors}
    if draft.n_embd != target.n_embd and not own.issuperset(_SHAREABLE):
        raise PreflightError(
            f"the draft has hidden size {draft.n_embd} and no embeddings or output head of its "
            f"own, so it cannot use those of {target.path.name}, which has {target.n_embd}"
        )
    last = deepest_readable_layer(target)
    outside = [
        layer for layer in draft.numbers("eagle3.target_layers") or () if not 0 <= layer <= last
    ]
    if outside:
        raise PreflightError(
            f"the draft reads the input of layer {outside[0]} of its target, "
            f"{target.path.name} ({target.architecture}) offers 0 to {last}"
        )


def deepest_readable_layer(target: GGUFHeader) -> int:
    """The last layer whose input a draft can read. Layer n_layers is the state after the last."""
    return target.n_layers - (target.architecture not in _EXPORTS_FINAL_STATE)
