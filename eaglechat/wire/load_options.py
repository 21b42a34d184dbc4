"""The options of a load, and their bounds."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from eaglechat.wire.records import KvType

N_CTX_LEAST = 256
"""The smallest context, in tokens: llama.cpp rounds up to a multiple of this."""
N_CTX_LIMIT = 2**24
"""More tokens than any model's context. Given a larger number, llama.cpp would fill the memory with
bookkeeping before it refuses."""
CHECKPOINTS_MIB = 512
"""Not measured: room for the checkpoints of several turns with most models. The size of one
checkpoint depends only on the model."""
SplitMode = Literal["none", "layer", "row"]
TENSOR_SPLIT_REFUSED = (
    "llama.cpp's tensor split stops at an assertion when a draft reads the target's layers; "
    "use layer, row or none"
)
FlashAttention = Literal["auto", "on", "off"]
LeaveOut = Literal["amx", "extra_buffers", "flash_attention", "gpu"]
"""What can be left out if llama.cpp crashes with it: AMX instructions, weights repacked for this
CPU (which AMX needs too), flash attention, the GPUs."""

_Share = Annotated[float, Meta(ge=0.0, le=1e6)]
_Endpoint = Annotated[str, Meta(pattern=r"^[^\s:]+:[0-9]{1,5}$")]


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the models are loaded and run."""

    n_ctx: Annotated[
        int,
        Meta(
            ge=0,
            le=N_CTX_LIMIT,
            description="Context size in tokens; 0: what the target was trained for, up to 32,768, "
            "as memory allows.",
            extra={"flag": "--ctx"},
        ),
    ] = 0
    n_batch: Annotated[int, Meta(ge=32, le=8192, description="Prompt tokens decoded at once.")] = (
        512
    )
    n_threads: Annotated[
        int,
        Meta(
            ge=0,
            le=1024,
            description="Threads of llama.cpp; 0: one for each fast physical core.",
            extra={"flag": "--threads"},
        ),
    ] = 0
    n_gpu_layers: Annotated[
        int,
        Meta(
            ge=-1,
            le=99_999,
            description="Layers of the models on the GPU; -1 means all.",
            extra={"flag": "--gpu-layers"},
        ),
    ] = -1
    split_mode: Annotated[
        SplitMode,
        Meta(description="How several GPUs share the target; none uses main_gpu alone."),
    ] = "layer"
    main_gpu: Annotated[
        int, Meta(ge=0, le=255, description="The GPU for split_mode none, counted from 0.")
    ] = 0
    tensor_split: Annotated[
        tuple[_Share, ...],
        Meta(
            max_length=16,
            description="Each GPU's share of the target; empty shares by free memory.",
            examples=[[3, 1]],
        ),
    ] = ()
    rpc_servers: Annotated[
        tuple[_Endpoint, ...],
        Meta(
            max_length=16,
            description="RPC servers of llama.cpp; their devices come before this machine's GPUs.",
            examples=[["gpu1:50052"]],
        ),
    ] = ()
    flash_attention: Annotated[
        FlashAttention,
        Meta(description="Flash attention; auto uses it if the backend supports it."),
    ] = "auto"
    kv_type: Annotated[
        KvType,
        Meta(
            description="Number format of the target's KV cache; q8_0 takes half the memory and "
            "needs flash attention."
        ),
    ] = "f16"
    draft_kv_type: Annotated[KvType, Meta(description="Number format of the draft's KV cache.")] = (
        "f16"
    )
    # Drafts trained on short texts lose acceptance in longer contexts: docs/chatting.md.
    draft_window: Annotated[
        int,
        Meta(
            ge=0,
            le=N_CTX_LIMIT,
            description="How many of the latest tokens an EAGLE-3 draft sees; 0 means all.",
        ),
    ] = 2048
    checkpoints_mib: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 20,
            description="Memory, in MiB, for saved states of a recurrent or hybrid target, from "
            "which a chat goes on; 0 saves none.",
        ),
    ] = CHECKPOINTS_MIB
