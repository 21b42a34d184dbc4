"""llama.cpp's samplers over the logits of a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from eaglechat.engine.llama.bindings import Candidates, Floats, api, libllama
from eaglechat.engine.llama.objects import Context, Model, Owned
from eaglechat.wire.errors import DecodeError
from eaglechat.wire.records import Likely

REPEAT_LAST_N = 64
"""How many tokens the repeat penalty looks back on."""
_MOST_LISTED = 256
"""To find more of the likeliest tokens than this, llama.cpp is faster."""
LARGE_VOCABULARY = 100_000
"""In a smaller vocabulary than this, llama.cpp finds the likeliest tokens faster."""
_STRIDE = 64
"""`likeliest` first looks at the maximum of each group of so many logits."""


class Sampler(Owned):
    """A chain of llama.cpp's samplers."""

    _free = staticmethod(api.llama_sampler_free)

    def __init__(
        self,
        model: Model,
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        repeat_penalty: float,
        seed: int,
    ) -> None:
        """Penalty, top-k, top-p, min-p, temperature, draw; at temperature 0 penalty and argmax."""
        params = api.llama_sampler_chain_default_params()
        self._pointer = api.llama_sampler_chain_init(params)
        # llama.cpp first copies the vocabulary into candidates, which takes six times as long.
        self._is_argmax = temperature <= 0.0 and repeat_penalty == 1.0
        # The penalty lowers at most REPEAT_LAST_N of the likeliest tokens. The top_k after it are
        # therefore among the top_k + REPEAT_LAST_N before it.
        n_penalised = REPEAT_LAST_N if repeat_penalty > 1.0 else 0
        can_list = top_k > 0 and repeat_penalty >= 1.0 and model.n_vocab >= LARGE_VOCABULARY
        self._n_listed = top_k + n_penalised if can_list else 0
        stages = []
        if repeat_penalty != 1.0:
            stages.append(
                api.llama_sampler_init_penalties(
                    model.n_vocab, REPEAT_LAST_N, repeat_penalty, 0.0, 0.0
                )
            )
        if temperature <= 0.0:
            stages.append(api.llama_sampler_init_greedy())
        else:
            stages += [
                # llama.cpp takes it as 32 bits, which a larger number would overflow.
                api.llama_sampler_init_top_k(min(top_k, model.n_vocab)),
                api.llama_sampler_init_top_p(top_p, 1),
                api.llama_sampler_init_min_p(min_p, 1),
                api.llama_sampler_init_temp(temperature),
                api.llama_sampler_init_dist(seed),
            ]
        for stage in stages:
            api.llama_sampler_chain_add(self._pointer, stage)

    def sample(self, context: Context, row: int) -> int:
        """Draw the token that follows an output row, and count it for the penalty.

        Raises DecodeError if the logits are not numbers.
        """
        logits = context.logits(row)
        if self._is_argmax:
            best = int(logits.argmax())
            _check_number(logits[best])
            return best
        if 0 < self._n_listed <= _MOST_LISTED:
            listed = likeliest(logits, self._n_listed)
            if listed is not None:
                return Candidates(listed, logits[listed], is_sorted=True).draw(self.pointer)
        # llama.cpp would draw any token, or end the process.
        _check_number(logits.max())
        return int(libllama.sample(self._pointer, context.pointer, row))

    def look(
        self, context: Context, row: int, top: int, drafted: Sequence[int]
    ) -> tuple[int, tuple[Likely, ...]]:
        """Like `sample`, and also returns the `top` likeliest tokens, the sampled and the drafted
        ones, the likeliest first. Raises DecodeError as it does."""
        logits = context.logits(row).astype(np.float64)
        _check_number(logits.max())
        if self._is_argmax:
            sampled = int(logits.argmax())
            chances = {sampled: 1.0}
        else:
            candidates = Candidates(np.arange(len(logits)), context.logits(row), is_sorted=False)
            sampled = candidates.draw(self.pointer)
            ids, left = candidates.left
            chances = dict(zip(ids, left, strict=True)) if any(left) else {sampled: 1.0}
        weights = np.exp(logits - logits.max())
        probabilities = weights / weights.sum()
        best = np.argpartition(logits, -top)[-top:].tolist()
        seen = sorted({*best, sampled, *drafted}, key=lambda id: (-probabilities[id], id))
        return sampled, tuple(
            Likely(
                id=id,
                text=(context.model.piece(id) or context.model.spelled(id)).decode(
                    "utf-8", errors="replace"
                ),
                probability=float(probabilities[id]),
                chance=chances.get(id, 0.0),
            )
            for id in seen
        )

    def accept(self, token: int) -> None:
        """Count a token of the prompt for the penalty."""
        api.llama_sampler_accept(self.pointer, token)


def _check_number(largest: np.floating[Any]) -> None:
    """The largest logit is not a number if any of them is not one. Raises DecodeError."""
    if not np.isfinite(largest):
        raise DecodeError(
            "the model's logits are not numbers, so no token can be chosen: its file is damaged, "
            "or a kernel of llama.cpp or of the GPU's driver computes wrongly. Download the file "
            "again, or load it without the GPU (engine.n_gpu_layers = 0)"
        )


def likeliest(logits: Floats, count: int) -> npt.NDArray[np.intp] | None:
    """The tokens of the `count` largest logits, the largest first; None if there are too few
    logits for this method, or some are not numbers.

    The logits are divided into groups of 64. The count-th largest maximum of a group is a bound:
    at least `count` logits reach it, and few more, which are then sorted.
    """
    n_strided = len(logits) // _STRIDE
    if n_strided < count:
        return None
    strides = logits[: n_strided * _STRIDE].reshape(_STRIDE, n_strided)
    maxima = strides.max(axis=0)
    rest_max = logits[n_strided * _STRIDE :].max(initial=-np.inf)
    if not np.isfinite(np.maximum(maxima.max(), rest_max)):
        return None
    bound = np.partition(maxima, n_strided - count)[n_strided - count]
    reaching = np.flatnonzero(maxima >= bound)
    rows, columns = np.divmod(np.flatnonzero(strides[:, reaching] >= bound), len(reaching) or 1)
    rest = np.arange(n_strided * _STRIDE, len(logits))
    listed = np.concatenate((rows * n_strided + reaching[columns], rest))
    if len(listed) < count + len(rest):
        return None
    return listed[np.argsort(-logits[listed], kind="stable")[:count]]
