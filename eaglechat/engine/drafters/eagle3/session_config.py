"""What a session is made with: its parameters, and two contexts that must fit each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from eaglechat.engine.drafters.eagle3.norms import Norms
from eaglechat.engine.llama.objects import Context
from eaglechat.gguf.preflight import EXTRACT_LAYERS
from eaglechat.wire.errors import InitError, InvalidConfigError
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT


@dataclass(frozen=True)
class Eagle3SessionConfig:
    """Parameters of a session: sequences, longest draft, shortest draft kept, the draft
    probability below which a draft ends, and how far back the draft looks.

    Raises InvalidConfigError."""

    n_seq: int
    n_draft_max: int
    n_min: int = 0
    p_min: float = 0.0
    draft_window: int = 0
    """Positions the draft's KV cache keeps, the last ones; 0 keeps all."""
    norms: Norms = field(default_factory=Norms)

    def __post_init__(self) -> None:
        if self.n_seq <= 0:
            raise InvalidConfigError(f"n_seq must be at least 1, got {self.n_seq}")
        if self.n_draft_max <= 0:
            raise InvalidConfigError(
                f"n_draft_max of a session must be at least 1, got {self.n_draft_max}"
            )
        check_draft_length("n_draft_max", self.n_draft_max)
        check_draft_length("n_min", self.n_min)
        _check_probability(self.p_min)
        if self.draft_window < 0:
            raise InvalidConfigError(f"draft_window must be at least 0, got {self.draft_window}")


def check_draft_length(name: str, value: int) -> None:
    if not 0 <= value <= N_DRAFT_MAX_LIMIT:
        raise InvalidConfigError(f"{name} must be 0 to {N_DRAFT_MAX_LIMIT}, got {value}")


def _check_probability(p_min: float) -> None:
    if not 0.0 <= p_min <= 1.0:
        raise InvalidConfigError(f"p_min must be 0 to 1, got {p_min}")


def check_contexts(target: Context, draft: Context, config: Eagle3SessionConfig) -> None:
    layers = draft.model.target_layers
    if not layers:
        raise InitError("the draft model is not eagle3: it names no extract layers")
    if len(layers) != EXTRACT_LAYERS:
        raise InitError(f"the draft model names {len(layers)} extract layers, EAGLE-3 needs 3")
    hidden = int(draft.model.metadata("eagle3.target_hidden_size") or 0)
    if hidden != target.model.n_embd:
        raise InitError(
            f"the draft was made for hidden size {hidden}, the target has {target.model.n_embd}"
        )
    if draft.model.n_vocab != target.model.n_vocab:
        raise InitError(
            f"the draft has a vocabulary of {draft.model.n_vocab} tokens, "
            f"the target one of {target.model.n_vocab}"
        )
    if max(layers) > target.model.n_layers:
        raise InitError(
            f"the draft reads layer {max(layers)}, the target has {target.model.n_layers} layers"
        )
    for name, context in (("target", target), ("draft", draft)):
        if context.n_seq < config.n_seq:
            raise InitError(
                f"the session wants {config.n_seq} sequences, "
                f"the {name} context was made for {context.n_seq}"
            )
