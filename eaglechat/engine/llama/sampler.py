"""llama.cpp's samplers over the logits of a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from eaglechat.engine.llama.bindings import Floats, Ids, api, apply_sampler
from eaglechat.engine.llama.objects import Context, Model, Owned
from eaglechat.engine.noise import gumbel
from eaglechat.wire.errors import DecodeError
from eaglechat.wire.records import Likely

REPEAT_LAST_N = 64
"""How many tokens the repeat penalty looks back on."""
_MOST_LISTED = 256
"""To find more of the likeliest tokens than this, llama.cpp is faster."""
_GROUP = 64
"""`likeliest` first looks at the maximum of each group of so many logits."""


class Sampler(Owned):
    """A chain of llama.cpp's samplers, and a draw of what they leave."""

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
        self._seed = seed if temperature > 0.0 else None
        # llama.cpp would first copy the vocabulary into candidates.
        self._is_argmax = temperature <= 0.0 and repeat_penalty == 1.0
        # The penalty lowers at most REPEAT_LAST_N of the likeliest tokens. The top_k after it are
        # therefore among the top_k + REPEAT_LAST_N before it.
        n_penalised = REPEAT_LAST_N if repeat_penalty > 1.0 else 0
        can_list = top_k > 0 and repeat_penalty >= 1.0 and top_k + n_penalised <= _MOST_LISTED
        self._n_listed = top_k + n_penalised if can_list else 0
        stages = []
        if repeat_penalty != 1.0:
            stages.append(
                api.llama_sampler_init_penalties(
                    model.n_vocab, REPEAT_LAST_N, repeat_penalty, 0.0, 0.0
                )
            )
        if temperature > 0.0:
            stages += [
                # llama.cpp takes it as 32 bits, which a larger number would overflow.
                api.llama_sampler_init_top_k(min(top_k, model.n_vocab)),
                api.llama_sampler_init_top_p(top_p, 1),
                api.llama_sampler_init_min_p(min_p, 1),
                api.llama_sampler_init_temp(temperature),
            ]
        for stage in stages:
            api.llama_sampler_chain_add(self._pointer, stage)

    def sample(self, context: Context, row: int, place: int) -> int:
        """Draw the token that follows an output row, which stands at a place of the text, and count
        it for the penalty.

        Raises DecodeError if the logits are not numbers.
        """
        if self._is_argmax:
            logits = context.logits(row)
            best = int(logits.argmax())
            _check_number(logits[best])
            return best
        return self._draw(*self._left(context, row), place)

    def look(
        self, context: Context, row: int, place: int, top: int, drafted: Sequence[int]
    ) -> tuple[int, tuple[Likely, ...]]:
        """Like `sample`, and also returns the `top` likeliest tokens, the sampled and the drafted
        ones, the likeliest first. Raises DecodeError as it does."""
        ids, left = self._left(context, row)
        sampled = self._draw(ids, left, place)
        chances = {sampled: 1.0}
        if self._seed is not None:
            chances = dict(zip(ids.tolist(), _softmax(left).tolist(), strict=True))
        logits = context.logits(row)
        probabilities = _softmax(logits)
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

    def _left(self, context: Context, row: int) -> tuple[Ids, Floats]:
        """The tokens that penalty and filters leave, and their logits over the temperature. Raises
        DecodeError."""
        logits = context.logits(row)
        listed = likeliest(logits, self._n_listed) if self._n_listed else None
        if listed is not None:
            return apply_sampler(self.pointer, listed, logits[listed], is_sorted=True)
        # llama.cpp would leave any token, or end the process.
        _check_number(logits.max())
        return apply_sampler(self.pointer, np.arange(len(logits)), logits, is_sorted=False)

    def _draw(self, ids: Ids, left: Floats, place: int) -> int:
        """One of the tokens `ids`, which is counted for the penalty."""
        if self._seed is None or len(ids) == 1:
            token = int(ids[left.argmax()])
        else:
            token = int(ids[(left + gumbel(self._seed, place, ids)).argmax()])
        self.accept(token)
        return token

    def accept(self, token: int) -> None:
        """Count a token of the prompt for the penalty."""
        api.llama_sampler_accept(self.pointer, token)


def _softmax(logits: Floats) -> npt.NDArray[np.float64]:
    odds = np.exp(logits.astype(np.float64) - logits.max())
    shares: npt.NDArray[np.float64] = odds / odds.sum()
    return shares


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

    The count-th largest of the groups' maxima is a bound: at least `count` logits reach it, and few
    more, which are then sorted.
    """
    n_groups = len(logits) // _GROUP
    if n_groups < count:
        return None
    # Group i has the logits i, i + n_groups, and so on: numpy finds those maxima fastest.
    maxima = logits[: n_groups * _GROUP].reshape(_GROUP, n_groups).max(axis=0)
    rest = logits[n_groups * _GROUP :].max(initial=-np.inf)
    if not np.isfinite(np.maximum(maxima.max(), rest)):
        return None
    listed = np.flatnonzero(logits >= np.partition(maxima, -count)[-count])
    return listed[np.argsort(-logits[listed], kind="stable")[:count]]
