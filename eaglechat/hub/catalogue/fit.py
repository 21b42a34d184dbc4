"""Memory a pair needs at a context size, against what a machine has. Pure functions over headers.

Weights are the size of the files and KV caches are exact; the buffers of the computation are an
estimate within a few megabytes of what llama.cpp reports for the built-in pair.
"""

from __future__ import annotations

from dataclasses import dataclass

from eaglechat.gguf.header import GGUFHeader
from eaglechat.hub.units import format_bytes
from eaglechat.wire.protocol import Memory
from eaglechat.wire.records import N_CTX_DEFAULT_LIMIT, N_DRAFT_MAX_LIMIT, KvType

_CELLS_MULTIPLE = 256
_F16_BYTES, _F32_BYTES = 2, 4
_N_UBATCH = 512
_BLOCK_BYTES: dict[KvType, tuple[int, int]] = {"f16": (1, 2), "q8_0": (32, 34)}
"""Values of a block, and its bytes."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes, by what they are for."""

    target_weights: int
    draft_weights: int
    target_kv: int
    draft_kv: int
    compute: int

    @property
    def total(self) -> int:
        kv = self.target_kv + self.draft_kv
        return self.target_weights + self.draft_weights + kv + self.compute


@dataclass(frozen=True)
class Machine:
    """Memory of a machine in bytes: RAM, and of its GPUs together; None where it is not known.

    `unified` is a GPU that shares the RAM.
    """

    ram: int | None
    ram_available: int | None = None
    gpu: int | None = None
    unified: bool = False


@dataclass(frozen=True)
class Fit:
    """Whether a pair runs on a machine, and one sentence about it; `fits` None if nobody knows."""

    fits: bool | None
    on_gpu: bool
    brief: str
    note: str = ""
    """What a list has no room for."""

    @property
    def text(self) -> str:
        return self.brief + self.note


def context_size(target: GGUFHeader, n_ctx: int) -> int:
    """The context a setting means: 0 is what the target was trained for, at most 8192."""
    return n_ctx or min(target.n_ctx_train or N_CTX_DEFAULT_LIMIT, N_CTX_DEFAULT_LIMIT)


def memory_need(
    target: GGUFHeader,
    draft: GGUFHeader | None,
    n_ctx: int,
    kv_type: KvType = "f16",
    draft_kv_type: KvType = "f16",
) -> MemoryNeed:
    """What both models take at a context of `n_ctx` tokens."""
    headers = [target] if draft is None else [target, draft]
    return MemoryNeed(
        target_weights=target.size_bytes,
        draft_weights=draft.size_bytes if draft else 0,
        target_kv=kv_bytes(target, n_ctx, kv_type),
        draft_kv=kv_bytes(draft, n_ctx, draft_kv_type) if draft else 0,
        compute=sum(_compute_bytes(header, n_ctx) for header in headers),
    )


def kv_bytes(header: GGUFHeader, n_ctx: int, kv_type: KvType = "f16") -> int:
    """The KV cache of a model; layers with a sliding window count in full, as llama.cpp keeps them.

    Models with latent attention (MLA) keep less than this.
    """
    cells = -(-n_ctx // _CELLS_MULTIPLE) * _CELLS_MULTIPLE
    heads = _per_layer(header, "{arch}.attention.head_count_kv")
    windowed = header.flags("{arch}.attention.sliding_window_pattern")
    width = _head_widths(header, "")
    width_windowed = (
        _head_widths(header, "_swa") if header.number("{arch}.attention.key_length_swa") else width
    )
    per_cell = 0
    for layer in _layers_with_cache(header):
        is_windowed = layer < len(windowed) and windowed[layer]
        per_cell += heads[layer] * (width_windowed if is_windowed else width)
    values, size = _BLOCK_BYTES[kv_type]
    return per_cell * cells // values * size


def _layers_with_cache(header: GGUFHeader) -> list[int]:
    """Layers that keep keys and values: not recurrent ones, nor those that reuse another's."""
    count = header.n_layers - header.number("{arch}.attention.shared_kv_layers")
    interval = header.number("{arch}.full_attention_interval") or 1
    return [layer for layer in range(count) if (layer + 1) % interval == 0]


def _per_layer(header: GGUFHeader, key: str) -> list[int]:
    """A figure for each layer; the last of a list that is too short stands for the rest."""
    values = header.numbers(key)
    if values:
        return [*values, *[values[-1]] * (header.n_layers - len(values))]
    heads = _largest(header, "{arch}.attention.head_count", 0)
    return [header.number(key, heads)] * header.n_layers


def _head_widths(header: GGUFHeader, suffix: str) -> int:
    """Elements of a key and a value together, for one head."""
    heads = _largest(header, "{arch}.attention.head_count", 0) or 1
    default = header.n_embd // heads
    key = header.number(f"{{arch}}.attention.key_length{suffix}", default)
    return key + header.number(f"{{arch}}.attention.value_length{suffix}", default)


def _largest(header: GGUFHeader, key: str, default: int) -> int:
    """A number that some models give for each layer; the largest of them."""
    return max(header.numbers(key) or (header.number(key, default),))


def _compute_bytes(header: GGUFHeader, n_ctx: int) -> int:
    """Activations of a batch, the attention mask, and the rows of logits one round reads."""
    feed_forward = _largest(header, "{arch}.feed_forward_length", 0)
    activations = _N_UBATCH * (2 * feed_forward + 4 * header.n_embd) * _F32_BYTES
    logits = (N_DRAFT_MAX_LIMIT + 1) * header.n_vocab * _F32_BYTES
    return activations + logits + _N_UBATCH * n_ctx * _F16_BYTES


def judge(need: MemoryNeed, machine: Machine) -> Fit:
    """Whether the need fits: on the GPU, else in RAM, else how much is missing."""
    wanted = format_bytes(need.total)
    if machine.gpu and not machine.unified and need.total <= machine.gpu:
        return Fit(True, True, f"{wanted} of {format_bytes(machine.gpu)} GPU", " memory")
    if machine.ram is None:
        return Fit(None, False, f"needs {wanted}; this machine's memory is not known")
    if need.total > machine.ram:
        short = format_bytes(need.total - machine.ram)
        text = f"needs {wanted}, {short} more than this machine's {format_bytes(machine.ram)}"
        return Fit(False, False, text)
    brief, note = f"{wanted} of {format_bytes(machine.ram)} RAM", ""
    if machine.ram_available is not None and need.total > machine.ram_available:
        note = f", but only {format_bytes(machine.ram_available)} is free now"
    elif machine.gpu and not machine.unified:
        note = f"; too large for the GPU's {format_bytes(machine.gpu)} alone"
    return Fit(True, machine.unified, brief, note)


def machine_of(memory: Memory) -> Machine:
    """The machine an engine says it runs on."""
    return Machine(memory.ram, memory.ram_available, memory.gpu or None, memory.unified)
