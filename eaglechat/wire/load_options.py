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
ContextSize = Annotated[int, Meta(ge=0, le=N_CTX_LIMIT)]
DRAFT_WINDOW_DEFAULT = 2048
"""In tokens. Drafts trained on short texts lose acceptance in longer contexts; docs/chatting.md
says more."""
DraftWindow = Annotated[int, Meta(ge=0, le=N_CTX_LIMIT)]
CHECKPOINTS_MIB = 512
"""Not measured: room for the checkpoints of several turns with most models. The size of one
checkpoint depends only on the model."""
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
"""What can be left out if llama.cpp crashes with it: AMX instructions, weights repacked for this
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
    """How several GPUs share the target; "none" uses only `main_gpu`. The draft is on one GPU."""
    main_gpu: GpuIndex = 0
    """The GPU for `split_mode` "none", counted from 0."""
    tensor_split: GpuShares = ()
    """Each GPU's share of the target, as relative numbers; empty shares by free memory."""
    rpc_servers: RpcServers = ()
    """Addresses of llama.cpp RPC servers, as host:port. Their devices come before the engine's own
    GPUs."""
    flash_attention: FlashAttention = "auto"
    kv_type: KvType = "f16"
    """Number format of the target's KV cache."""
    draft_kv_type: KvType = "f16"
    draft_window: DraftWindow = DRAFT_WINDOW_DEFAULT
    """How many of the latest tokens the draft sees; 0 means the whole context."""
    checkpoints_mib: CheckpointsMib = CHECKPOINTS_MIB
    """Memory, in MiB, for saved states of a recurrent or hybrid target; 0 saves none."""
