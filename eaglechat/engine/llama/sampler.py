"""llama.cpp's samplers over the logits of a target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eaglechat.engine.llama.bindings import Candidates, Floats, api, libllama
from eaglechat.engine.llama.objects import Context, Model, Owned
from eaglechat.wire.records import Likely

REPEAT_LAST_N = 64
"""Tokens the repeat penalty looks back on."""
_MOST_LISTED = 256
"""Of the likeliest tokens, more are sooner left to llama.cpp to find."""
LARGE_VOCABULARY = 100_000
"""Of fewer logits llama.cpp finds the likeliest sooner."""
_STRIDE = 64
"""Logits whose maximum stands for them where the likeliest are looked for."""


class Sampler(Owned):
    """A llama.cpp sampler chain over the target's logits."""

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
        """Penalty, top-k, top-p, min-p, temperature, then a draw; greedy at temperature 0."""
        params = api.llama_sampler_chain_default_params()
        self._pointer = api.llama_sampler_chain_init(params)
        # llama.cpp first copies the vocabulary into candidates: six times the work of looking.
        self._is_argmax = temperature <= 0.0 and repeat_penalty == 1.0
        # What penalties take from some of the likeliest brings no others in than these.
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
                # As 32 bits it would be another number.
                api.llama_sampler_init_top_k(min(top_k, model.n_vocab)),
                api.llama_sampler_init_top_p(top_p, 1),
                api.llama_sampler_init_min_p(min_p, 1),
                api.llama_sampler_init_temp(temperature),
                api.llama_sampler_init_dist(seed),
            ]
        for stage in stages:
            api.llama_sampler_chain_add(self._pointer, stage)

    def sample(self, context: Context, row: int) -> int:
        """Draw the token after an output row; the chain takes note of it."""
        if self._is_argmax:
            return int(context.logits(row).argmax())
        if 0 < self._n_listed <= _MOST_LISTED:
            logits = context.logits(row)
            listed = likeliest(logits, self._n_listed)
            if listed is not None:
                return Candidates(listed, logits[listed], is_sorted=True).draw(self.pointer)
        return int(libllama.sample(self._pointer, context.pointer, row))

    def look(
        self, context: Context, row: int, top: int, drafted: Sequence[int]
    ) -> tuple[int, tuple[Likely, ...]]:
        """As `sample`; with it the `top` likeliest tokens, the sampled and the drafted ones, the
        likeliest first."""
        logits = context.logits(row).astype(np.float64)
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
        likeliest = np.argpartition(logits, -top)[-top:].tolist()
        seen = sorted({*likeliest, sampled, *drafted}, key=lambda id: (-probabilities[id], id))
        return sampled, tuple(
            Likely(
                id=id,
                text=context.model.piece(id).decode("utf-8", errors="replace"),
                probability=float(probabilities[id]),
                chance=chances.get(id, 0.0),
            )
            for id in seen
        )

    def accept(self, token: int) -> None:
        """Take note of a token that was not drawn here (the prompt's)."""
        api.llama_sampler_accept(self.pointer, token)


def likeliest(logits: Floats, count: int) -> npt.NDArray[np.intp] | None:
    """The tokens of the `count` largest logits, the largest first; None where there are too few
    logits to be worth it, or some are not numbers.

    As many of the maxima of strides as are looked for are a bound that only few logits reach.
    """
    n_strided = len(logits) // _STRIDE
    if n_strided < count:
        return None
    strides = logits[: n_strided * _STRIDE].reshape(_STRIDE, n_strided)
    maxima = strides.max(axis=0)
    bound = np.partition(maxima, n_strided - count)[n_strided - count]
    reaching = np.flatnonzero(maxima >= bound)
    rows, columns = np.divmod(np.flatnonzero(strides[:, reaching] >= bound), len(reaching) or 1)
    rest = np.arange(n_strided * _STRIDE, len(logits))
    listed = np.concatenate((rows * n_strided + reaching[columns], rest))
    if len(listed) < count + len(rest):
        return None
    return listed[np.argsort(-logits[listed], kind="stable")[:count]]
