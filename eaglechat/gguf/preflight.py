"""What checks of GGUF headers share, before llama.cpp opens the files. `pairing.py` checks that a
target and a draft fit."""

from __future__ import annotations

from dataclasses import dataclass

from eaglechat.gguf.header import GGUFHeader, printable
from eaglechat.wire.drafters import DrafterKind
from eaglechat.wire.errors import EngineError

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


class PreflightError(EngineError):
    """A file or a pair cannot run; the message is one sentence."""

    code = "preflight"

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


@dataclass(frozen=True)
class Pairing:
    kind: DrafterKind
    file: GGUFHeader | None = None
    """The draft's; None if the drafter is in the target's file."""


def deepest_readable_layer(target: GGUFHeader) -> int:
    """The last layer whose input a draft can read. Layer n_layers is the state after the last."""
    return target.n_layers - (target.architecture not in _EXPORTS_FINAL_STATE)


# --- what a GGUF is if it is no language model that writes from left to right, and what to do ---

_ADAPTER = "a LoRA adapter: merge it into its model with llama-export-lora, and choose the result"
_IMATRIX = "an importance matrix, which is read when a model is quantised: choose the model"
_PROJECTOR = (
    "a projector (mmproj), the part of a model that sees or hears: choose the model beside it"
)
_CONTROL = "a control vector, which changes a model's style: choose the model"
_VOCABULARY = "a vocabulary without weights: choose the whole model"
_WORDLESS = "a model without a vocabulary, which reads no text: choose a language model"
_EMBEDDING = "an embedding model, which turns texts into vectors: choose a language model"
_RERANKER = "a reranker, which scores texts: choose a language model"
_ENCODER = "an encoder, which reads and does not write: choose a language model"
_DIFFUSION = (
    "a diffusion language model, which does not write from left to right: llama-diffusion-cli "
    "runs it"
)
_IMAGES = "a model that makes images or videos: stable-diffusion.cpp or ComfyUI run it"
_SPEECH = "a model for speech or its sounds: whisper.cpp or llama-tts run such models"
_T5 = "a T5 model, in which an encoder reads for a decoder: llama.cpp's llama-cli runs it"
_OLLAMA = "in a form that only Ollama reads: download a GGUF made by llama.cpp, as the Hub has them"

_OF_TYPE = {
    "adapter": _ADAPTER, "imatrix": _IMATRIX, "mmproj": _PROJECTOR, "vocab": _VOCABULARY,
}  # fmt: skip
"""By general.type."""

_OF_ARCHITECTURE = {
    **dict.fromkeys(("clip", "mmproj"), _PROJECTOR),
    "imatrix": _IMATRIX,
    "controlvector": _CONTROL,
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _DIFFUSION),
    "t5": _T5,
    "t5encoder": _ENCODER,
    **dict.fromkeys(
        ("aura", "cosmos", "flux", "flux2", "hidream", "hyvid", "lcpp_sd", "ltxv", "lumina2",
         "pig", "qwen_image", "sd1", "sd3", "sdxl", "wan", "z_image"),
        _IMAGES,
    ),
    **dict.fromkeys(
        ("dac", "encodec", "kokoro", "mimi", "parler-tts", "snac", "wavtokenizer-dec", "whisper"),
        _SPEECH,
    ),
    **dict.fromkeys(
        ("deepseekocr", "glm4moelite", "glmocr", "gptoss", "mllama", "nemotronh", "nomicbert",
         "qwen25vl"),
        _OLLAMA,
    ),
}  # fmt: skip
"""Architectures that are no language models, and how Ollama calls some that are."""

_SENSES = ("v.", "a.", "mm.", "resampler.")
"""How the names of tensors begin that see or hear."""
_CLASSIFIER = frozenset({"cls.weight", "cls.output.weight"})
_RANK = 4
"""llama.cpp's LLAMA_POOLING_TYPE_RANK."""


def why_no_chat_model(header: GGUFHeader) -> str | None:
    """What the file is, and what to do, if it is no model to chat with; None if it is one, as far
    as the header tells."""
    arch, names = header.architecture.lower(), [tensor.name for tensor in header.tensors]
    kind = header.text("general.type").lower()
    known = _OF_TYPE.get(kind) or _OF_ARCHITECTURE.get(arch)
    keys = {key.partition(".")[0] for key in header.fields}
    pooling = header.number("{arch}.pooling_type")
    signs = {
        _ADAPTER: "adapter" in keys or any(name.endswith((".lora_a", ".lora_b")) for name in names),
        _IMATRIX: "imatrix" in keys or any(name.endswith(".in_sum2") for name in names),
        _CONTROL: bool(names) and all(name.startswith("direction.") for name in names),
        _PROJECTOR: bool(names) and all(name.startswith(_SENSES) for name in names),
        _DIFFUSION: "diffusion" in keys,
        _RERANKER: pooling == _RANK or not _CLASSIFIER.isdisjoint(names),
        _EMBEDDING: pooling > 0 or "bert" in arch or "embed" in arch,
        _ENCODER: header.get("{arch}.attention.causal") is False,
        _OLLAMA: any(name.startswith(_SENSES) for name in names),
        # llama.cpp would end the process at the first text.
        _WORDLESS: header.text("tokenizer.ggml.model") in ("none", "no_vocab"),
        # Of a file on the Hub only the beginning may be known, which has no tensors.
        _VOCABULARY: bool(header.data_start) and not (names or header.tensors_elsewhere),
    }
    return known or next((what for what, is_sign in signs.items() if is_sign), None)
