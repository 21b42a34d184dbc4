"""EAGLE-3.1's two norms, computed here because llama.cpp's eagle3 graph does not have them.

`fc_norm`: the input of each target layer is normed before the encoder. The converter has multiplied
the norm's weights into `fc.weight`, so only the scaling is left. `norm_output`: a state that the
draft feeds back to itself passes the output norm first; the encoder's states do not. Source: vLLM
pull request 42764.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eaglechat.engine.llama.bindings import Floats
from eaglechat.gguf.header import GGUFError, GGUFHeader, read_tensor
from eaglechat.gguf.preflight import EXTRACT_LAYERS, NORM_OUTPUT, NORMS_FEATURES
from eaglechat.wire.errors import ModelLoadError

_EPS_KEY = "eagle3.attention.layer_norm_rms_epsilon"


@dataclass(frozen=True, eq=False)
class Norms:
    """The norms of a draft; by default none, as in EAGLE-3."""

    eps: float = 1e-6
    features: bool = False
    output: Floats | None = None
    """Weights [n_embd] of the output norm, if states that are fed back pass it."""

    def of_features(self, features: Floats) -> Floats:
        """Features [rows, 3 * n_embd], normed for the encoder."""
        if not self.features:
            return features
        layers = features.reshape(len(features), EXTRACT_LAYERS, -1)
        return self._scaled(layers).reshape(features.shape)

    def of_states(self, states: Floats) -> Floats:
        """The draft's own states [rows, n_embd], normed to be fed back."""
        return states if self.output is None else self._scaled(states) * self.output

    def _scaled(self, values: Floats) -> Floats:
        """`values` with a root mean square of 1 along the last dimension."""
        mean_square = np.mean(np.square(values), axis=-1, keepdims=True)
        scaled: Floats = values / np.sqrt(mean_square + np.float32(self.eps))
        return scaled


def norms_of(draft: GGUFHeader) -> Norms:
    """The norms that a draft's header names. Raises ModelLoadError."""
    output = None
    if draft.get(NORM_OUTPUT):
        named = (tensor for tensor in draft.tensors if tensor.name == "output_norm.weight")
        tensor = next(named, None)
        if tensor is None or tensor.type != "F32" or tensor.shape != (draft.n_embd,):
            raise ModelLoadError(
                f"the draft {draft.path} norms what it feeds back ({NORM_OUTPUT}), but has no "
                f"output_norm.weight of {draft.n_embd} values in F32; convert it again"
            )
        try:
            output = np.frombuffer(read_tensor(draft, tensor), "<f4").astype(np.float32)
        except (OSError, GGUFError) as error:
            raise ModelLoadError(f"the draft cannot be read: {error}") from error
    eps = draft.get(_EPS_KEY)
    return Norms(
        eps=eps if isinstance(eps, float) else Norms.eps,
        features=bool(draft.get(NORMS_FEATURES)),
        output=output,
    )
