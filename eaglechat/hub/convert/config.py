"""Reads the config.json of a draft checkpoint, in the form that each of the trainers writes.

SpecForge and AngelSlim put the dimensions at the top level; speculators puts them in
`transformer_layer_config`; NVIDIA and SpecForge put flags in `eagle_config`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from eaglechat.gguf.preflight import EXTRACT_LAYERS
from eaglechat.hub.errors import ConversionError
from eaglechat.wire.drafters import DRAFTERS, DrafterKind

_CONVERTED: tuple[DrafterKind, ...] = ("eagle3", "eagle4")
_OTHER_KINDS: tuple[tuple[str, DrafterKind, str], ...] = (
    *(
        (one.in_files, kind, f"a {one.name} draft")
        for kind, one in reversed([*DRAFTERS.items()])
        if one.in_files and kind not in _CONVERTED
    ),
    ("assistant", "mtp", "Gemma 4's assistant"),
    ("mtp", "mtp", "a checkpoint of MTP heads"),
)
"""What the names of a class or a type contain, and what such a checkpoint is. The first counts: of
two kinds, the later one has the longer name."""

Count = Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
Layer = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e30)]


class OtherKindError(ConversionError):
    """A checkpoint is of a drafter that is not converted."""

    def __init__(self, name: str, kind: DrafterKind, what: str) -> None:
        super().__init__(
            f"{name} is {what}, and only EAGLE-3 checkpoints are converted: look for a GGUF of it, "
            "or make one with llama.cpp's convert_hf_to_gguf.py (--target-model-dir names the "
            "target's checkpoint), and give it as the draft"
        )
        self.kind: DrafterKind = kind


class RopeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Rotary position embedding (RoPE) and its scaling."""

    rope_type: str = "default"
    rope_theta: Positive = 10000.0
    factor: Positive | None = None
    low_freq_factor: Positive = 1.0
    high_freq_factor: Positive = 4.0
    original_max_position_embeddings: Positive | None = None
    extrapolation_factor: float | None = None
    attention_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    alpha: Annotated[float, msgspec.Meta(gt=0, le=1e4)] | None = None
    """Of Hunyuan's scaling, which enlarges the base; see `freq_base`."""
    partial_rotary_factor: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    """Share of each head's values that is rotated: the first ones."""
    mrope_section: tuple[Layer, ...] = ()


class DraftConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of config.json that matter here; defaults are those of transformers' Llama."""

    architectures: tuple[str, ...] = ()
    hidden_size: Count
    num_attention_heads: Count
    num_key_value_heads: Count | None = None
    head_dim: int | None = None
    num_hidden_layers: int = 1
    vocab_size: Count
    target_hidden_size: int | None = None
    max_position_embeddings: Count = 2048
    rms_norm_eps: Positive = 1e-6
    rope: RopeConfig
    hidden_act: str = "silu"
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    parallel_drafting: bool = False
    enable_moe: bool = False
    use_rope: bool = True
    use_aux_hidden_state: bool = True
    speculators_model_type: str = ""
    sliding_window: Count | None = None
    use_sliding_window: bool = False
    layer_types: tuple[str, ...] = ()
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    eagle_aux_hidden_state_layer_ids: tuple[Layer, ...] = ()
    aux_hidden_state_layer_ids: tuple[Layer, ...] = ()

    @property
    def n_kv_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def kind(self) -> Literal["eagle3", "eagle4"]:
        """EAGLE-4 is EAGLE-3.1 with a window, and a candidate head that is left out."""
        return "eagle4" if "eagle4" in ",".join(self.architectures).lower() else "eagle3"

    @property
    def window(self) -> int | None:
        """The sliding window of attention in tokens; None without one."""
        if self.kind == "eagle4":
            is_used = "full_attention" not in self.layer_types
        else:
            # Some model families name a window that their layers do not use or do not pass.
            is_used = self.use_sliding_window or "sliding_attention" in self.layer_types
            is_used &= (self.sliding_window or 0) < self.max_position_embeddings
        return self.sliding_window if is_used else None

    @property
    def aux_layer_ids(self) -> tuple[int, ...]:
        """The target's layers that the draft reads, as config.json has them; empty if not given."""
        return self.eagle_aux_hidden_state_layer_ids or self.aux_hidden_state_layer_ids


def read_config(directory: Path) -> DraftConfig:
    """The config of a checkpoint.

    Raises ConversionError if llama.cpp's eagle3 graph cannot run such a draft, OSError.
    """
    path = directory / "config.json"
    if path.exists() and not path.is_file():
        raise ConversionError(f"{path} is not a file")
    try:
        return parse_config(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise ConversionError(f"{directory} has no config.json, so it is no checkpoint") from None


def parse_config(content: bytes, name: str) -> DraftConfig:
    """`read_config` for the content of a config.json that errors call `name`."""
    try:
        raw = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConversionError(f"{name} is damaged: {error}") from error
    try:
        merged = _merged(raw)
        _refuse_other_kinds(raw)
        config = msgspec.convert({**merged, "rope": _rope(merged)}, DraftConfig)
    except msgspec.ValidationError as error:
        raise ConversionError(f"{name} cannot be used: {error}") from error
    _refuse_unsupported(config)
    return config


def _refuse_other_kinds(raw: dict[str, Any]) -> None:
    # The other fields mean something else there.
    classes = msgspec.convert(raw.get("architectures") or (), tuple[str, ...])
    words = f"{classes} {raw.get('speculators_model_type')} {raw.get('model_type')}".lower()
    for word, kind, what in _OTHER_KINDS:
        if re.search(word, words) or f"{word}_config" in raw:
            raise OtherKindError(", ".join(classes) or "this checkpoint", kind, what)


def _merged(raw: dict[str, Any]) -> dict[str, Any]:
    """One flat table; of a key that is given twice, the one in transformer_layer_config counts."""
    merged: dict[str, Any] = {}
    for table in (_table(raw, "eagle_config"), raw, _table(raw, "transformer_layer_config")):
        merged.update((key, value) for key, value in table.items() if value is not None)
    # A nested layer names the architecture of a plain transformer, not the draft's.
    if raw.get("architectures"):
        merged["architectures"] = raw["architectures"]
    return merged


def _rope(merged: dict[str, Any]) -> dict[str, Any]:
    """The parameters of RoPE under transformers 5's names, whichever names the config uses."""
    given = _table(merged, "rope_parameters") or _table(merged, "rope_scaling")
    # Of parameters per layer type, speculators builds a draft with those of sliding attention.
    given = _table(given, "sliding_attention") or _table(given, "full_attention") or given
    renamed = {
        "rope_theta": merged.get("rope_theta"),
        "partial_rotary_factor": merged.get("partial_rotary_factor"),
        "rope_type": given.get("type"),
        "attention_factor": given.get("attn_factor"),
        "original_max_position_embeddings": merged.get("original_max_position_embeddings"),
    }
    tables = (renamed, given)
    return {k: v for table in tables for k, v in table.items() if v is not None}


def _table(raw: dict[str, Any], key: str) -> dict[str, Any]:
    return msgspec.convert(raw.get(key) or {}, dict[str, Any])


def _refuse_unsupported(config: DraftConfig) -> None:
    name = ", ".join(config.architectures) or "this checkpoint"
    n_layers, n_read = config.num_hidden_layers, len(config.aux_layer_ids)
    graph = "llama.cpp's eagle3 graph"
    for applies, why in (
        (
            "Deepseek" in name or config.kv_lora_rank or config.q_lora_rank,
            f"uses DeepSeek's multi-head latent attention (MLA), which {graph} does not have",
        ),
        (
            config.parallel_drafting or "peagle" in (name + config.speculators_model_type).lower(),
            "is a P-EAGLE draft, which writes all its tokens in one pass; llama.cpp runs EAGLE-3 "
            "drafts only",
        ),
        (
            config.enable_moe,
            f"is a latent mixture of experts (enable_moe), {graph} is dense",
        ),
        (
            not config.use_rope,
            f"has no rotary position embedding (use_rope is false), which {graph} always applies",
        ),
        (
            config.fc_norm and config.norm_before_fc,
            "sets fc_norm and norm_before_fc, which are two ways to norm the same features",
        ),
        (n_layers != 1, f"has {n_layers} layers, llama.cpp runs drafts of 1"),
        (
            not config.use_aux_hidden_state,
            f"reads one hidden state of its target, {graph} reads {EXTRACT_LAYERS}",
        ),
        (
            config.hidden_act not in ("silu", "swish"),
            f"has the activation {config.hidden_act}, {graph} has silu only",
        ),
        (
            n_read not in (0, EXTRACT_LAYERS),
            f"reads {n_read} layers of its target, {graph} reads {EXTRACT_LAYERS}",
        ),
    ):
        if applies:
            raise ConversionError(f"{name} {why}")


_UNSCALED = ("default", "none", "llama3", "dynamic")
"""Types without a scaling field: llama3 is stored as a tensor of factors, and dynamic changes
nothing within the trained context."""


def scaling_fields(config: DraftConfig) -> dict[str, str | int | float]:
    """The GGUF fields under `eagle3.rope.scaling.`; empty for a draft without scaling.

    Raises ConversionError for a scaling that llama.cpp's eagle3 graph would ignore.
    """
    rope = config.rope
    kind = rope.rope_type.lower()
    if kind == "llama3" and rope.high_freq_factor <= rope.low_freq_factor:
        raise ConversionError(
            "the llama3 RoPE scaling in config.json is impossible: its frequency factors go from "
            f"{rope.low_freq_factor:g} to {rope.high_freq_factor:g}"
        )
    if kind in _UNSCALED and (rope.alpha is None or kind == "dynamic"):
        return {}
    if kind not in ("linear", "yarn"):
        raise ConversionError(
            f"the draft scales RoPE by the type {kind}, which llama.cpp's eagle3 graph cannot"
        )
    if rope.factor is None:
        raise ConversionError(f"config.json scales RoPE by the type {kind}, but names no factor")
    fields: dict[str, str | int | float] = {"type": kind, "factor": rope.factor}
    if kind == "yarn":
        original = rope.original_max_position_embeddings or config.max_position_embeddings
        fields["original_context_length"] = int(original)
        optional = {
            "yarn_ext_factor": rope.extrapolation_factor,
            "yarn_attn_factor": rope.attention_factor,
            "yarn_beta_fast": rope.beta_fast,
            "yarn_beta_slow": rope.beta_slow,
        }
        fields.update((key, value) for key, value in optional.items() if value is not None)
    return fields


def freq_base(config: DraftConfig, n_rot: int) -> float:
    """RoPE's base. With `alpha` it is larger, at every length, as in vLLM's
    DynamicNTKAlphaRotaryEmbedding; llama.cpp converts Hunyuan's own models in the same way."""
    rope = config.rope
    if rope.alpha is None or n_rot <= 2:
        return rope.rope_theta
    return rope.rope_theta * float(rope.alpha ** (n_rot / (n_rot - 2)))


def llama3_factors(config: DraftConfig, n_rot: int) -> npt.NDArray[np.float32] | None:
    """The divisors of RoPE's frequencies, [n_rot / 2], for llama3 scaling; else None.

    Low frequencies are divided by `factor`, high ones by 1, and those between by a value
    interpolated between the two. The arithmetic and its float32 are those of llama.cpp's converter.
    """
    rope = config.rope
    if rope.rope_type.lower() != "llama3":
        return None
    factor, low, high = rope.factor or 8.0, rope.low_freq_factor, rope.high_freq_factor
    original = rope.original_max_position_embeddings or 8192.0
    exponents = np.arange(0, n_rot, 2, dtype=np.float32) / np.float32(n_rot)
    powers = np.power(rope.rope_theta, exponents, dtype=np.float64).astype(np.float32)
    wavelengths = np.float32(2 * np.pi) / (np.float32(1) / powers)
    smooth = (np.float32(original) / wavelengths - np.float32(low)) / np.float32(high - low)
    between = np.float32(1) / ((np.float32(1) - smooth) / np.float32(factor) + smooth)
    factors: npt.NDArray[np.float32] = np.where(
        wavelengths < original / high,
        np.float32(1),
        np.where(wavelengths > original / low, np.float32(factor), between),
    )
    return factors
