"""What checks of GGUF headers share, before llama.cpp opens the files. `engine/drafters/pairing.py`
checks that a target and a draft fit."""

from __future__ import annotations

from dataclasses import dataclass

from eaglechat.gguf.header import GGUFHeader, printable
from eaglechat.wire.drafters import DrafterKind
from eaglechat.wire.errors import EngineError, SettingsError
from eaglechat.wire.load_options import FlashAttention
from eaglechat.wire.records import KvType

DRAFT_ARCHITECTURE = "eagle3"
EXTRACT_LAYERS = 3

NORMS_FEATURES = "eaglechat.fc_norm"
NORM_OUTPUT = "eaglechat.norm_output"
DRAFT_WINDOW = "eaglechat.sliding_window"
"""Keys of our converter, for what this engine computes because llama.cpp's eagle3 graph does not:
EAGLE-3.1's two norms, and the window, in tokens, that a draft was trained with."""

EAGLE_4 = "eaglechat.eagle4"
"""Key of our converter: the draft comes from an EAGLE-4 checkpoint."""

TARGET_ARCHITECTURES = frozenset(
    {
        "bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan-dense", "hunyuan_vl", "lfm2",
        "lfm2moe", "llama", "mimo2", "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige",
        "nemotron_h", "nemotron_h_moe", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next",
        "qwen4exp",
    }
)  # fmt: skip
"""Architectures whose llama.cpp graph exports layer inputs: their sources set `t_layer_inp`."""

_EXPORTS_FINAL_STATE = frozenset({"gpt-oss", "mimo2"})
"""Architectures whose sources set `t_h_nextn` to the state after the last layer, which a draft may
read. Most others set it to that state behind the output norm; deepseek4's is several times as
wide."""

_Q8_BLOCK = 32


class PreflightError(EngineError):
    """A file or a pair cannot run; the message is one sentence."""

    code = "preflight"

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


@dataclass(frozen=True)
class Pairing:
    """What drafts for a target."""

    kind: DrafterKind
    file: GGUFHeader | None = None
    """The draft's; None if the drafter is in the target's file."""
    has_probability: bool = True
    """Whether it knows how probable its tokens are. Where DSpark has no head for that, llama-server
    ends over a least probability."""


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


def deepest_readable_layer(target: GGUFHeader) -> int:
    """The last layer whose input a draft can read. Layer n_layers is the state after the last."""
    return target.n_layers - (target.architecture not in _EXPORTS_FINAL_STATE)
