"""llama.cpp's model, batch and context, each of which owns one native object and frees it once; and
the sequences of a context."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from eaglechat.engine.llama import backend, bindings, workarounds
from eaglechat.engine.llama.bindings import (
    Floats,
    api,
    bytes_of,
    libggml,
    libllama,
    numbers_of,
)
from eaglechat.wire.errors import DecodeError, ModelLoadError
from eaglechat.wire.protocol import FlashAttention, KvType, LeaveOut, LoadOptions
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT

_KV_TYPES: dict[KvType, int] = {"f16": api.GGML_TYPE_F16, "q8_0": api.GGML_TYPE_Q8_0}

_AS_IN_FILE: Mapping[str, int] = MappingProxyType({})
_ON_ALL_GPUS = LoadOptions()
TRUNK = 0
_ALL = -1
"""llama.cpp's number for every sequence."""

OwnedT = TypeVar("OwnedT", bound="Owned")


class Owned:
    _pointer: int | None
    _free: Callable[[int], None]

    @property
    def pointer(self) -> int:
        if self._pointer is None:
            raise RuntimeError(f"{type(self).__name__} is closed")
        return self._pointer

    def close(self) -> None:
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            type(self)._free(pointer)

    def __enter__(self: OwnedT) -> OwnedT:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None:
            self.close()


class Model(Owned):
    _free = staticmethod(api.llama_model_free)

    def __init__(
        self,
        path: Path,
        options: LoadOptions = _ON_ALL_GPUS,
        progress: Callable[[float], bool] | None = None,
        *,
        devices: Sequence[int] = (),
        leave_out: Sequence[LeaveOut] = (),
        with_heads: bool = False,
        fields: Mapping[str, int] = _AS_IN_FILE,
    ) -> None:
        """Load `path`; `with_heads` also loads its MTP heads. `progress` gets 0..1 and stops the
        load by returning False. `fields` are used instead of those of the same keys in the file.
        `devices` are handles of the GPUs, empty for those that llama.cpp finds itself; `leave_out`
        is what it does without beside what it does without in every load.

        Raises ModelLoadError.
        """
        self._pointer = None
        self.path = path
        left_out = (*workarounds.for_every_model(), *leave_out)
        self.left_out = tuple(dict.fromkeys(left_out))
        self._pointer = bindings.load_model(
            str(path),
            options,
            self.left_out,
            progress,
            devices=devices,
            with_heads=with_heads,
            fields=fields,
        )
        if self._pointer is None:
            raise ModelLoadError(f"llama.cpp cannot load {path}: {backend.why_not_loaded()}")
        pointer = self._pointer
        self._vocab = vocab = api.llama_model_get_vocab(pointer)
        self.n_embd: int = api.llama_model_n_embd(pointer)
        self.n_embd_out: int = api.llama_model_n_embd_out(pointer)
        """Width of the states that MTP heads read and write; differs from n_embd for some."""
        self.has_heads = with_heads
        self.n_layers: int = api.llama_model_n_layer(pointer)
        self.n_vocab: int = api.llama_vocab_n_tokens(vocab)
        self.n_ctx_train: int = api.llama_model_n_ctx_train(pointer)
        self.bos, self.eos = int(api.llama_vocab_bos(vocab)), int(api.llama_vocab_eos(vocab))
        self.mask = int(api.llama_vocab_mask(vocab))
        """The token that a block drafter fills in; -1 if the vocabulary has none."""
        self.adds_bos = bool(api.llama_vocab_get_add_bos(vocab))
        self.devices = bindings.model_devices(pointer)
        """The names of the GPUs that the model may use; empty if it runs on the CPU."""
        n_read = libllama.target_layers_n(pointer)
        self.target_layers = tuple(libllama.target_layers(pointer)[:n_read]) if n_read else ()
        """The layers of the target whose inputs a draft reads; empty for other models."""
        self.selector_top_k = int(libllama.selector_top_k(pointer))
        """How many candidates for each place a DFlash2 draft selects from; 0 for other models."""
        self.keeps_whole_history = not (
            api.llama_model_is_recurrent(pointer) or api.llama_model_is_hybrid(pointer)
        )
        """False for recurrent and hybrid models: their state cannot drop single positions."""
        self._pieces: dict[int, bytes] = {}

    def metadata(self, key: str) -> str | None:
        """A scalar of the GGUF's metadata as text; None if there is none."""
        read, pointer, name = api.llama_model_meta_val_str, self.pointer, key.encode()
        length = read(pointer, name, None, 0)
        if length < 0:
            return None
        # It ends with a zero.
        text = bytes_of(length + 1, lambda buffer, size: read(pointer, name, buffer, size))
        return text.decode("utf-8", errors="replace")

    def tokenize(self, text: str, *, bos: bool, special: bool) -> list[int]:
        """Token ids. `bos` adds the beginning that it asks for, `special` reads control tokens."""
        raw, vocab = text.encode(), self._vocab
        return numbers_of(
            len(raw) + 8, lambda *to: api.llama_tokenize(vocab, raw, len(raw), *to, bos, special)
        )

    def piece(self, token: int) -> bytes:
        """The bytes of a token; empty for a control token."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._bytes(token, special=False)
        return piece

    def spelled(self, token: int) -> bytes:
        """The bytes of a token, with a control token's own text."""
        return self._bytes(token, special=True)

    def _bytes(self, token: int, *, special: bool) -> bytes:
        vocab = self._vocab
        return bytes_of(64, lambda *to: api.llama_token_to_piece(vocab, token, *to, 0, special))

    def is_end(self, token: int) -> bool:
        """True for tokens that end a generation."""
        return bool(api.llama_vocab_is_eog(self._vocab, token))


class Batch(Owned):
    """The rows of one decode or encode: tokens, features, or tokens with draft states."""

    _free = staticmethod(libllama.batch_free)

    def __init__(self, context: Context) -> None:
        self._pointer = libllama.batch_init(context.pointer)
        self._cell, self._cell_address = bindings.position_cell()
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.seq_ids: list[int] = []
        self.is_read = False

    def __len__(self) -> int:
        return len(self.positions)

    def clear(self) -> None:
        libllama.batch_clear(self.pointer)
        self.tokens.clear()
        self.positions.clear()
        self.seq_ids.clear()
        self.is_read = False

    def add_tokens(
        self,
        tokens: Sequence[int],
        position: int,
        seq_id: int,
        *,
        output: bool,
        states: Floats | None = None,
    ) -> None:
        """Add tokens of a sequence, the first at `position`; `output` asks for their logits.

        An EAGLE-3 draft also takes `states` [n, n_embd]. Raises DecodeError if the batch is full.
        """
        pointer, cell, address = self.pointer, self._cell, self._cell_address
        embeddings = bindings.embeddings(states) if states is not None else None
        for cell.value, token in enumerate(tokens, position):
            row = libllama.batch_add_token(pointer, seq_id, token)
            if row < 0:
                raise _no_row(row, f"token {token} is not in the vocabulary", seq_id)
            if embeddings is not None:
                libllama.batch_set_embd(pointer, row, next(embeddings))
            libllama.batch_set_pos(pointer, row, address)
            if output:
                libllama.batch_set_output(pointer, row, True)
        self.is_read |= output
        self._note(tokens, position, seq_id)

    def add_node(self, token: int, position: int, seq_ids: Sequence[int]) -> None:
        """Add a token of a tree, with its logits, to the sequence of every path through it. Raises
        DecodeError if the batch is full."""
        row = len(self)
        self.add_tokens([token], position, seq_ids[0], output=True)
        for seq_id in seq_ids[1:]:
            libllama.batch_add_seq(self.pointer, row, seq_id)

    def add_features(
        self, rows: Floats, position: int, seq_id: int, *, output: bool = True
    ) -> None:
        """Add rows of features [n, width], the first at `position`. `output` says that each has a
        result that is read, as in an encoder; in a decoder that would be a row of logits."""
        pointer, cell, address = self.pointer, self._cell, self._cell_address
        for cell.value, features in enumerate(bindings.embeddings(rows), position):
            row = libllama.batch_add_embd(pointer, seq_id, features)
            if row < 0:
                raise _no_row(row, "a row of features has the wrong width", seq_id)
            libllama.batch_set_pos(pointer, row, address)
            if output:
                libllama.batch_set_output(pointer, row, True)
        self._note([-1] * len(rows), position, seq_id)

    def _note(self, tokens: Sequence[int], position: int, seq_id: int) -> None:
        self.tokens += tokens
        self.positions += range(position, position + len(tokens))
        self.seq_ids += [seq_id] * len(tokens)


def _no_row(row: int, wrong: str, seq_id: int) -> DecodeError:
    reason = {-1: "the batch is full", -2: wrong}.get(row, f"sequence {seq_id} is out of range")
    return DecodeError(f"cannot add a row to a batch: {reason}")


class DraftHead:
    """Ends a draft's graphs after the output head, or before it when no output is read.

    llama.cpp then spreads the logits of the draft's own vocabulary over the target's, one number
    at a time for every row, which takes a CPU as long as the rest of the graph. Nobody needs that.
    llama.cpp asks about each operation of a graph, on the CPU only.
    """

    def __init__(self) -> None:
        self.callback = api.ggml_backend_sched_eval_callback(self._follow)
        """For llama_context_params; valid as long as this object lives."""
        self.is_last = False
        """Whether graphs end after the head. The context's own logits are then undefined."""
        self._is_read = True
        self._is_next = False
        self._values = _NO_VALUES

    def _follow(self, tensor: int, asks: bool, _data: Any) -> bool:
        """llama.cpp first asks whether a tensor is wanted, and after computing a wanted one
        whether to go on."""
        if asks:
            # The head is the operation after the output norm.
            was_next, self._is_next = self._is_next, libggml.tensor_name(tensor) == b"result_norm"
            return was_next if self._is_read else self._is_next
        self._is_next = False
        if self._is_read:
            values = bindings.floats(libggml.tensor_data(tensor), (libggml.tensor_size(tensor),))
            self._values = values if values is not None else _NO_VALUES
        return self._is_read and not self.is_last

    def begin(self, *, is_read: bool) -> None:
        """Call this before each graph, with whether its output is read."""
        self._is_read, self._is_next, self._values = is_read, False, _NO_VALUES

    def logits(self, row: int, n_vocab: int) -> Floats:
        """A view of a row's logits [n_vocab] over the draft's own vocabulary, valid until the next
        graph; shorter if the last graph computed none."""
        return self._values[row * n_vocab : (row + 1) * n_vocab]


_NO_VALUES: Floats = np.empty(0, dtype=np.float32)


class Context(Owned):
    _free = staticmethod(api.llama_free)

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        n_batch: int,
        n_threads: int,
        n_ubatch: int = 512,
        n_seq: int = 1,
        n_outputs: int = 0,
        flash_attention: FlashAttention = "auto",
        n_rollback: int = 0,
        kv_type: KvType = "f16",
        shared_cells: bool = True,
        other: Context | None = None,
        runs_heads: bool = False,
    ) -> None:
        """Allocate the context. Raises ModelLoadError.

        n_outputs: the most rows of one batch whose output is read; 0 for any number.
        n_rollback: how many latest positions a recurrent state can take back.
        shared_cells: if False, each sequence has n_ctx / n_seq cells of its own and attends over
        those only. That is faster for many sequences with equally many tokens in each batch.
        other: the target's context; a draft uses its embeddings and output head.
        runs_heads: the context runs the MTP heads of its model, not the model itself.
        """
        params = api.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = n_batch
        params.n_ubatch = min(n_batch, n_ubatch)
        params.n_seq_max = n_seq
        params.n_outputs_max = n_outputs
        params.n_rs_seq = 0 if model.keeps_whole_history or runs_heads else n_rollback
        params.type_k = params.type_v = _KV_TYPES[kv_type]
        params.n_threads = params.n_threads_batch = n_threads
        params.kv_unified = shared_cells and n_seq > 1
        if flash_attention == "auto" and "flash_attention" in model.left_out:
            flash_attention = "off"
        params.flash_attn_type = bindings.FLASH_ATTENTION[flash_attention]
        # Only EAGLE-3's graphs end with their head; DFlash2's selector comes behind it.
        is_eagle3 = other is not None and model.metadata("general.architecture") == "eagle3"
        self.head = DraftHead() if is_eagle3 and not model.devices else None
        if runs_heads:
            # llama.cpp ends the process if they were not loaded.
            assert model.has_heads
            params.ctx_type = api.LLAMA_CONTEXT_TYPE_MTP
        if other is not None:
            params.ctx_other = other.pointer
        if self.head is not None:
            params.cb_eval = self.head.callback
        self._pointer = api.llama_init_from_model(model.pointer, params)
        if self._pointer is None:
            raise ModelLoadError(
                f"llama.cpp cannot make a context of {n_ctx} tokens; there may be too little "
                "memory (try a smaller --ctx)"
            )
        self.model = model
        self._width = model.n_embd
        """Of an exported state."""
        self._memory = api.llama_get_memory(self._pointer)
        self.n_ctx: int = api.llama_n_ctx_seq(self._pointer)
        self.n_batch: int = api.llama_n_batch(self._pointer)
        self.n_ubatch: int = api.llama_n_ubatch(self._pointer)
        self.n_seq: int = n_seq
        self.n_rollback: int | None = (
            None if model.keeps_whole_history else api.llama_n_rs_seq(self._pointer)
        )
        """How many latest positions a recurrent state can take back; None for a KV cache, which
        can drop any position."""
        self.longest_draft = N_DRAFT_MAX_LIMIT if self.n_rollback is None else self.n_rollback
        """The most draft tokens that can be taken back."""
        self._extracted: frozenset[int] = frozenset()
        """The layers whose inputs are to be exported."""
        self._readable: frozenset[int] = frozenset()
        """Those whose inputs the last decode exported."""

    def close(self) -> None:
        super().close()
        self._memory = None

    def decode(self, batch: Batch) -> int:
        """Run the decoder and return llama.cpp's status: 0 is success, 1 no room in the KV cache,
        2 stopped, after which a part of the batch may be in the cache."""
        if self.head is not None:
            self.head.begin(is_read=batch.is_read)
        self._readable = self._extracted
        status = int(api.llama_process(self.pointer, 1, batch.pointer))
        # A GPU backend returns at once. Without waiting, its time would count to the sampling.
        api.llama_synchronize(self.pointer)
        return status

    def encode(self, batch: Batch) -> int:
        """Run the encoder, which makes draft states of features in EAGLE-3; llama.cpp's status."""
        return int(api.llama_process(self.pointer, 0, batch.pointer))

    def forget(self, seq_id: int, start: int, end: int = -1) -> bool:
        """Drop a sequence's positions from `start` up to `end`, or all of them from `start` on.

        Returns False if the memory cannot.
        """
        return bool(libllama.seq_rm(self._memory, seq_id, start, end))

    def share(self, seq_id: int, other: int, start: int, end: int) -> None:
        """Let another sequence share this one's positions from `start` up to `end`."""
        libllama.seq_cp(self._memory, seq_id, other, start, end)

    @property
    def can_shift(self) -> bool:
        """Whether `shift` works. Not with a recurrent state, which keeps what it has read."""
        return self.model.keeps_whole_history and bool(api.llama_memory_can_shift(self._memory))

    def shift(self, seq_id: int, start: int, end: int) -> None:
        """Drop the positions from `start` up to `end` and move those from `end` on to `start`.

        llama.cpp rotates their keys to the new positions in the next decode.
        """
        libllama.seq_rm(self._memory, seq_id, start, end)
        libllama.seq_add(self._memory, seq_id, end, -1, start - end)

    def recurrent_size(self, seq_id: int) -> int:
        """The bytes of the recurrent part of a sequence's state."""
        return int(api.llama_state_seq_get_size_ext(self.pointer, seq_id, _PARTIAL_ONLY))

    def save_recurrent(self, seq_id: int) -> bytes:
        """The recurrent part of a sequence's state; empty if llama.cpp cannot save it."""
        context, get = self.pointer, libllama.state_get
        return bytes_of(
            self.recurrent_size(seq_id), lambda *to: get(context, *to, seq_id, _PARTIAL_ONLY)
        )

    def restore_recurrent(self, seq_id: int, state: bytes) -> bool:
        """Put a saved recurrent part back. The caller forgets the positions after it."""
        return bool(libllama.state_set(self.pointer, state, len(state), seq_id, _PARTIAL_ONLY))

    def last_position(self, seq_id: int) -> int:
        """The highest position in a sequence's KV cache; -1 if it is empty."""
        return int(libllama.seq_pos_max(self._memory, seq_id))

    def logits(self, row: int) -> Floats:
        """A view of an output row's logits [n_vocab], valid until the next decode."""
        return _view(libllama.logits_ith(self.pointer, row), (self.model.n_vocab,))

    def extract_layer_inputs(self, layers: Sequence[int], enabled: bool) -> None:
        """Let each decode export the inputs of these layers. Layer n_layers is the state after the
        last one."""
        chosen = frozenset(layers)
        self._extracted = self._extracted | chosen if enabled else self._extracted - chosen
        for layer in layers:
            if layer == self.model.n_layers:
                libllama.set_nextn(self.pointer, enabled, False)
            else:
                libllama.set_layer_inputs(self.pointer, layer, enabled)

    def layer_inputs(self, layer: int, n_rows: int) -> Floats:
        """A view [n_rows, n_embd] of a layer's inputs, with a row per token of the batch. Raises
        DecodeError if the last decode did not export them."""
        if layer not in self._readable:
            # llama.cpp ends the process.
            raise DecodeError(
                f"the target's last decode did not export the inputs of layer {layer}"
            )
        if layer == self.model.n_layers:
            address = libllama.nextn(self.pointer)
        else:
            address = libllama.layer_inputs(self.pointer, layer)
        return _view(address, (n_rows, self.model.n_embd))

    def export_final_states(self) -> None:
        """Let each decode export the states after the output norm; every row is then an output."""
        api.llama_set_embeddings(self.pointer, True)

    def final_states(self, n_rows: int) -> Floats:
        """A view [n_rows, n_embd] of the last decode's states after the output norm."""
        return _view(libllama.embeddings(self.pointer), (n_rows, self.model.n_embd))

    def attend_causally(self, enabled: bool) -> None:
        """Whether a row sees only rows before it, or all of its ubatch."""
        api.llama_set_causal_attn(self.pointer, enabled)

    def export_states(
        self, enabled: bool = True, *, of_outputs: bool = True, width: int = 0
    ) -> None:
        """Let each decode export states, of every row or of output rows only: a draft's before its
        output norm; those that MTP heads read and write; the lattices of a DFlash2 draft, of every
        row, of which none may ask for output. `width` is n_embd if it is 0."""
        self._width = width or self.model.n_embd
        libllama.set_nextn(self.pointer, enabled, of_outputs)

    def states(self, n_rows: int) -> Floats:
        """A view [n_rows, width] of the exported states of the last encode or decode."""
        return _view(libllama.nextn(self.pointer), (n_rows, self._width))

    def state(self, row: int) -> Floats:
        """A view [1, width] of the exported state of a row of the last decode."""
        return _view(libllama.nextn_ith(self.pointer, row), (1, self._width))

    def choose_head(self, index: int) -> None:
        libllama.set_nextn_head(self.pointer, index)


class Branches:
    """The sequences of a context that verifies trees, one for each path, in shared KV cells. Only
    this class changes their positions.

    Sequence 0 is the trunk. A branch shares the cells of the trunk's first positions, up to some
    length, and is extended when a tree needs it. Sharing takes a pass over the KV cache's cells,
    but computes nothing.
    """

    def __init__(self, context: Context, only: int | None = None) -> None:
        """`only` is the trunk where others use the other sequences; it then has no branches."""
        self._context, self._trunk = context, TRUNK if only is None else only
        self.most = context.n_seq if only is None else 1
        """The most paths that a tree can have."""
        self._shared = [0] * self.most
        """How many first positions each branch shares with the trunk."""

    def forget(self, start: int, end: int = -1) -> bool:
        """Drop the positions from `start` up to `end`, or all from `start` on, of all sequences.

        Returns False if the memory cannot.
        """
        if end < 0:
            self._shared = [min(shared, start) for shared in self._shared]
        # A recurrent state has no branches, and refuses the number for every sequence.
        return self._context.forget(_ALL if self.most > 1 else self._trunk, start, end)

    def shift(self, start: int, end: int) -> None:
        """Drop the positions from `start` up to `end`, and move those from `end` on to `start`."""
        self.forget(start, end)
        self._context.shift(self._trunk, start, end)
        self._shared = [shifted(shared, start, end) for shared in self._shared]

    def grow(self, branches: Sequence[int], length: int) -> None:
        """Let these branches share the trunk's first `length` positions."""
        for branch in branches:
            if branch != TRUNK and self._shared[branch] < length:
                self._context.share(TRUNK, branch, self._shared[branch], length)
                self._shared[branch] = length

    def fork(self, parent: int, branch: int, start: int, end: int) -> None:
        """Let a branch of length `start` share its parent's positions up to `end`."""
        if end > start:
            self._context.share(parent, branch, start, end)

    def settle(self, winner: int, branches: Sequence[int], start: int, end: int) -> None:
        """Keep the winner's positions from `start` up to `end` as the trunk's, and drop all other
        positions from `start` on of the trunk and these branches."""
        if winner != TRUNK:
            self._context.forget(TRUNK, start)
            self.fork(winner, TRUNK, start, end)
        for branch in branches:
            if branch != TRUNK:
                self._context.forget(branch, start)
                self._shared[branch] = start
        self._context.forget(TRUNK, end)


def shifted(position: int, start: int, end: int) -> int:
    """Where a position is after those from `start` up to `end` have left."""
    return min(position, max(start, position - (end - start)))


_PARTIAL_ONLY = 1
"""LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: without the keys and values of attention layers. Not with
ON_DEVICE: that keeps one saved state of a sequence, and a chat needs several."""


def _view(address: int | None, shape: tuple[int, ...]) -> Floats:
    view = bindings.floats(address, shape)
    if view is None:
        raise DecodeError("llama.cpp returned no output for a row that asked for it")
    return view
