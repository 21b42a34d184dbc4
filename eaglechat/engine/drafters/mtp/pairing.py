"""Whether a target has multi-token-prediction heads that can draft, by GGUF headers.

They are in the target's own file, or in a sidecar: a file of the same architecture with the heads
and without the other blocks. Gemma 4's are a model of its own, the assistant.
"""

from __future__ import annotations

from eaglechat.gguf.header import GGUFHeader
from eaglechat.gguf.preflight import PreflightError

ASSISTANT, _ASSISTANTS_TARGET = "gemma4-assistant", "gemma4"

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
            return f"its MTP heads were stripped, but its header still declares {declared}"
        return "its file has no MTP heads"
    if target.architecture not in ARCHITECTURES:
        return f"llama.cpp cannot run the MTP heads of {target.architecture} models"
    if declared != target.n_mtp_heads:
        return f"its file declares {declared} MTP heads and has {target.n_mtp_heads}"
    return None


def without_stripped_blocks(target: GGUFHeader) -> dict[str, int]:
    """Fields of the header as they would be without MTP heads, if the blocks of those that it
    declares were stripped as a whole; else nothing. For some architectures llama.cpp does not load
    a file that lacks what its header declares."""
    n_layers, arch = target.n_layers, target.architecture
    last = f"blk.{target.number('{arch}.block_count') - 1}."
    tensors = (*target.tensors, *target.tensors_elsewhere)
    if not target.number("{arch}.nextn_predict_layers") or any(
        tensor.name.startswith(last) for tensor in tensors
    ):
        return {}
    return {f"{arch}.block_count": n_layers, f"{arch}.nextn_predict_layers": 0}


def is_draft(header: GGUFHeader) -> bool:
    """Whether a file is a sidecar or an assistant: it drafts, and cannot run by itself."""
    return header.architecture == ASSISTANT or header.is_heads_alone


def check(target: GGUFHeader, draft: GGUFHeader) -> None:
    """Raises PreflightError if a sidecar or an assistant is not one for this target."""
    name = target.path.name
    is_assistant = draft.architecture == ASSISTANT
    wanted = _ASSISTANTS_TARGET if is_assistant else draft.architecture
    if target.architecture != wanted:
        raise PreflightError(
            f"the draft {draft.path} has the MTP heads of a {wanted} model, {name} is a "
            f"{target.architecture} model"
        )
    why = None if is_assistant else problem(draft)
    if why is not None:
        raise PreflightError(f"the draft {draft.path} cannot draft: {why}")
    width = draft.number("{arch}.embedding_length_out") if is_assistant else draft.n_embd
    figures = [
        ("hidden size", width, target.n_embd),
        ("vocabulary", draft.n_vocab, target.n_vocab),
    ]
    if not is_assistant:
        figures.append(("number of layers", draft.n_layers, target.n_layers))
    for what, made_for, its in figures:
        if made_for != its:
            raise PreflightError(
                f"the draft was made for a target with a {what} of {made_for}, {name} has {its}"
            )
    if is_assistant:
        _check_shared_keys(target, draft)


def _check_shared_keys(target: GGUFHeader, assistant: GGUFHeader) -> None:
    """An assistant's layers read the keys and values of the target's last sliding and last full
    layer in the shape that its own header gives. Where they are smaller, llama.cpp ends the
    process; where they are larger, it reads a part of them."""
    for kind, of_target in _shapes_of_keys(target).items():
        own = _shapes_of_keys(assistant).get(kind, of_target)
        if own != of_target:
            raise PreflightError(
                f"the draft reads keys of {own[0]} heads {own[1]} wide in the {kind} layers of its "
                f"target, {target.path.name} has {of_target[0]} heads {of_target[1]} wide"
            )


def _shapes_of_keys(header: GGUFHeader) -> dict[str, tuple[int, int]]:
    """The number and width of the key heads in the last layer of each kind."""
    found = {}
    shared = header.number("{arch}.attention.shared_kv_layers")
    is_sliding = header.flags("{arch}.attention.sliding_window_pattern")
    own = is_sliding[: len(is_sliding) - shared] or is_sliding
    key = "{arch}.attention.head_count"
    heads = header.numbers(f"{key}_kv") or ()
    of_all = header.number(f"{key}_kv", header.number(key))
    for layer, sliding in enumerate(own):
        found["sliding" if sliding else "full"] = (
            heads[layer] if layer < len(heads) else of_all,
            header.number(f"{{arch}}.attention.key_length{'_swa' if sliding else ''}"),
        )
    return found
