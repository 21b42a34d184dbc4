"""llama.cpp's samplers over the logits of a target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eaglechat.engine.llama.bindings import C, api, draw
from eaglechat.engine.llama.objects import Context, Model, Owned
from eaglechat.wire.records import Likely

REPEAT_LAST_N = 64
"""Tokens the repeat penalty looks back on."""


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
                api.llama_sampler_init_top_k(top_k),
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
        return int(C.sample(self._pointer, context.pointer, row))

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
            sampled, ids, left = draw(self.pointer, context.logits(row))
            chances = dict(zip(ids.tolist(), left.tolist(), strict=True))
            if not left.any():
                chances = {sampled: 1.0}
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
