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
FlashAttention = Literal["auto", "on", "off"]
LeaveOut = Literal["amx", "extra_buffers", "flash_attention", "gpu"]
"""What can be left out if llama.cpp crashes with it: AMX instructions, weights repacked for this
CPU (which AMX needs too), flash attention, the GPUs."""

_Share = Annotated[float, Meta(ge=0.0, le=1e6)]
_Endpoint = Annotated[str, Meta(pattern=r"^[^\s:]+:[0-9]{1,5}$")]


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the models are loaded and run."""

    n_ctx: Annotated[int, Meta(ge=0, le=N_CTX_LIMIT)] = 0
    n_batch: Annotated[int, Meta(ge=32, le=8192)] = 512
    n_threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    n_gpu_layers: Annotated[int, Meta(ge=-1, le=99_999)] = -1
    split_mode: SplitMode = "layer"
    main_gpu: Annotated[int, Meta(ge=0, le=255)] = 0
    tensor_split: Annotated[tuple[_Share, ...], Meta(max_length=16)] = ()
    rpc_servers: Annotated[tuple[_Endpoint, ...], Meta(max_length=16)] = ()
    flash_attention: FlashAttention = "auto"
    kv_type: KvType = "f16"
    draft_kv_type: KvType = "f16"
    # Drafts trained on short texts lose acceptance in longer contexts: docs/chatting.md.
    draft_window: Annotated[int, Meta(ge=0, le=N_CTX_LIMIT)] = 2048
    checkpoints_mib: Annotated[int, Meta(ge=0, le=1 << 20)] = CHECKPOINTS_MIB
