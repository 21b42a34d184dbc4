"""Whether a target brings multi-token-prediction heads that can draft, by its GGUF header."""

from __future__ import annotations

from eaglechat.gguf.header import GGUFHeader

STATES_OF_ALL_ROWS = frozenset(
    {
        "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "glm-dsa", "glm4moe", "hy_v3",
        "nemotron_h_moe", "qwen35", "qwen35moe",
    }
)  # fmt: skip
"""Architectures whose graph exports a head's states before it drops the rows without output. Only
there may one batch hold rows of both kinds: the other graphs drop them first, and llama.cpp then
reads the states of the wrong rows, or ends the process."""

ARCHITECTURES = STATES_OF_ALL_ROWS | {"mimo2", "qwen3next", "step35"}
"""Architectures for which llama.cpp has a graph of the heads. deepseek4 has one too, with states of
another width than `llama_model_n_embd_out` says."""


def problem(target: GGUFHeader) -> str | None:
    """Why MTP heads cannot draft for a target; None if they can.

    llama.cpp ends the process where heads that are declared are missing, so they are looked for
    among the tensors.
    """
    declared = target.number("{arch}.nextn_predict_layers")
    if not target.n_mtp_heads:
        if declared:
            return "its file declares MTP heads and does not have them"
        return "its file has no MTP heads"
    if target.architecture not in ARCHITECTURES:
        return f"llama.cpp cannot run the MTP heads of {target.architecture} models"
    if declared != target.n_mtp_heads:
        return f"its file declares {declared} MTP heads and has {target.n_mtp_heads}"
    return None


def is_without_trunk(header: GGUFHeader) -> bool:
    """Whether a file has heads and not the model that they belong to. llama.cpp loads it as a
    target, and the first decode ends the process."""
    tensors = (*header.tensors, *header.tensors_elsewhere)
    return header.n_mtp_heads > 0 and not any(one.name.startswith("blk.0.") for one in tensors)
