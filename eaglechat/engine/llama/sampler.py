"""llama.cpp's samplers over the logits of a target."""

from __future__ import annotations

from eaglechat.engine.llama.bindings import C, api
from eaglechat.engine.llama.objects import Context, Model, Owned

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

    def accept(self, token: int) -> None:
        """Take note of a token that was not drawn here (the prompt's)."""
        api.llama_sampler_accept(self.pointer, token)
