"""The draft's encoder: the features of three target layers, fused into one state a position."""

from __future__ import annotations

from eaglechat.engine.llama.bindings import Floats
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import ProcessError


class Encoder:
    """Runs it in batches of its own."""

    def __init__(self, draft: Context) -> None:
        self._draft = draft
        self._batch = Batch(draft)

    def close(self) -> None:
        self._batch.close()

    def states(self, seq_id: int, features: Floats, position: int) -> Floats:
        """The states g [rows, n_embd] of features [rows, 3 * n_embd]; valid until the draft is next
        run. Raises ProcessError."""
        self._batch.clear()
        # The encoder reads no positions, yet llama.cpp wants those that follow the KV cache.
        self._batch.add_features(features, position, seq_id)
        status = self._draft.encode(self._batch)
        if status != 0:
            raise ProcessError(f"the draft's encoder failed (llama.cpp status {status})")
        return self._draft.states(len(features))
