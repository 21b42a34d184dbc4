"""A draft's output head, behind which its graph may end.

llama.cpp spreads the logits of a draft's own vocabulary over the target's, one number at a time and
for every row, which takes a processor as long as all the rest. Nobody needs it: the graph is ended
once the head is computed, or before it where no output is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eaglechat.engine.llama.bindings import Floats, G, api, floats

_NORM = b"result_norm"
"""What the head reads, as llama.cpp names it; the head is computed next."""
_NONE: Floats = np.empty(0, dtype=np.float32)


class DraftHead:
    """Follows each graph of a draft's context, operation by operation; on the processor only."""

    def __init__(self) -> None:
        self.callback = api.ggml_backend_sched_eval_callback(self._follow)
        """As llama_context_params takes it; valid as long as this lives."""
        self.is_last = False
        """Whether graphs end behind the head; the logits of the context are then void."""
        self._is_read = True
        self._is_next = False
        self._values = _NONE

    def _follow(self, tensor: int, asks: bool, _data: Any) -> bool:
        """Asked whether a tensor is wanted, then, with it computed, whether to go on."""
        if asks:
            was_next, self._is_next = self._is_next, G.tensor_name(tensor) == _NORM
            return was_next if self._is_read else self._is_next
        self._is_next = False
        if self._is_read:
            values = floats(G.tensor_data(tensor), (G.tensor_size(tensor),))
            self._values = values if values is not None else _NONE
        return self._is_read and not self.is_last

    def begin(self, *, is_read: bool) -> None:
        """A graph is about to be computed, whose output is read or not."""
        self._is_read, self._is_next, self._values = is_read, False, _NONE

    def logits(self, row: int, n_vocab: int) -> Floats:
        """A view of the last graph's logits [n_vocab] of a row, over the draft's own vocabulary;
        shorter where there are none. Valid until the next graph."""
        return self._values[row * n_vocab : (row + 1) * n_vocab]
