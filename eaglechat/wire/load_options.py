"""How a pair is loaded: what a client may ask for, and within which bounds."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from eaglechat.wire.records import KvType

N_CTX_LEAST = 256
"""llama.cpp rounds up to a multiple of this."""
N_CTX_LIMIT = 2**24
"""Beyond every model; llama.cpp would fill the memory with bookkeeping before it refuses."""
ContextSize = Annotated[int, Meta(ge=0, le=N_CTX_LIMIT)]
DRAFT_WINDOW_DEFAULT = 2048
"""Drafts trained on short texts lose acceptance beyond this; docs/chatting.md says more."""
DraftWindow = Annotated[int, Meta(ge=0, le=N_CTX_LIMIT)]
CHECKPOINTS_MIB = 512
"""A guess that leaves room for some turns; what a checkpoint takes depends on the model alone."""
CheckpointsMib = Annotated[int, Meta(ge=0, le=1 << 20)]
GpuLayers = Annotated[int, Meta(ge=-1, le=99_999)]
SplitMode = Literal["none", "layer", "row"]
TENSOR_SPLIT_REFUSED = (
    "llama.cpp's tensor split stops at an assertion when a draft reads the target's layers; "
    "use layer, row or none"
)
FlashAttention = Literal["auto", "on", "off"]
GpuIndex = Annotated[int, Meta(ge=0, le=255)]
GpuShares = Annotated[tuple[Annotated[float, Meta(ge=0.0, le=1e6)], ...], Meta(max_length=16)]
RpcServers = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^[^\s:]+:[0-9]{1,5}$")], ...], Meta(max_length=16)
]
BatchSize = Annotated[int, Meta(ge=32, le=8192)]
LeaveOut = Literal["amx", "extra_buffers", "flash_attention", "gpu"]
"""What llama.cpp can do without where it crashes: AMX instructions, weights repacked for this
CPU (which AMX needs too), flash attention, the GPUs."""


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the models are loaded. None leaves the choice to the engine."""

    n_ctx: ContextSize = 0
    """Context size in tokens; 0 is the largest power of two up to what the target was trained
    for and 32,768 that fits into the free memory."""
    n_batch: BatchSize = 512
    n_threads: Annotated[int, Meta(ge=1, le=1024)] | None = None
    n_gpu_layers: GpuLayers = -1
    """Layers on the GPU; -1 is all of them."""
    split_mode: SplitMode = "layer"
    """How several GPUs share the target: none takes one of them. The draft goes to one GPU."""
    main_gpu: GpuIndex = 0
    """The GPU that split mode none takes."""
    tensor_split: GpuShares = ()
    """Each GPU's share of the target; empty shares by free memory."""
    rpc_servers: RpcServers = ()
    """Addresses, as host:port, of RPC servers whose devices come before the GPUs there are."""
    flash_attention: FlashAttention = "auto"
    kv_type: KvType = "f16"
    """Number format of the target's KV cache."""
    draft_kv_type: KvType = "f16"
    draft_window: DraftWindow = DRAFT_WINDOW_DEFAULT
    """Positions the draft looks back on; 0 is the whole context."""
    checkpoints_mib: CheckpointsMib = CHECKPOINTS_MIB
    """Memory for saved states of a recurrent or hybrid target; 0 saves none."""
