"""`Eagle3Session`: EAGLE-3 for programs with a decode loop of their own.

Its life cycle is that of the session of this name in the Rust crate llama-cpp-4. For each sequence
it has a drafter of eaglechat's own loop, whose ProcessError passes through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby

from eaglechat.engine.drafters.base import ProcessError
from eaglechat.engine.drafters.eagle3 import Eagle3Drafter, draft_window, norms_of
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.gguf.pairing import check_pair
from eaglechat.gguf.preflight import DRAFT_ARCHITECTURE
from eaglechat.wire.errors import EngineError
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT
from eaglechat.wire.stats import SpeculationStats, of_step


class InitError(EngineError):
    """Target and draft do not fit each other, or the session."""


class BadSeqIdError(EngineError):
    """A sequence id outside 0 .. n_seq - 1."""


class InvalidConfigError(EngineError):
    """A session parameter out of its range."""


@dataclass(frozen=True)
class Eagle3SessionConfig:
    """Raises InvalidConfigError."""

    n_seq: int
    n_draft_max: int
    """Most tokens of a draft; 0 for none."""
    n_min: int = 0
    """A shorter draft is dropped."""
    p_min: float = 0.0
    """A draft ends before the first token that is less likely."""

    def __post_init__(self) -> None:
        # 256 is llama.cpp's LLAMA_MAX_SEQ.
        ranges = (1, 256), (0, N_DRAFT_MAX_LIMIT), (0, N_DRAFT_MAX_LIMIT), (0, 1)
        for field, (least, most) in zip(fields(self), ranges, strict=True):
            value = getattr(self, field.name)
            if not least <= value <= most:
                raise InvalidConfigError(f"{field.name} must be {least} to {most}, got {value}")


class Eagle3Session:
    """Drafts for the sequences of a target context. Both contexts stay the caller's.

    A round of a sequence is `draft`, the target's decode of [id_last, *draft], `process` of that
    batch, and `accept` of what the target confirmed.
    """

    need_embd = False
    """Whether the target must output post-norm embeddings."""

    def __init__(self, target: Context, draft: Context, config: Eagle3SessionConfig) -> None:
        """Raises InitError when the two contexts do not fit each other."""
        most = min(target.n_seq, draft.n_seq)
        if config.n_seq > most:
            raise InitError(f"the session wants {config.n_seq} sequences, the contexts have {most}")
        try:
            _, header = check_pair(target.model.path, draft.model.path)
            if header is None or header.architecture != DRAFT_ARCHITECTURE:
                raise InitError(f"{draft.model.path} is no EAGLE-3 draft")
            window, norms = draft_window(header, 0), norms_of(header)
        except EngineError as error:
            raise InitError(str(error)) from error
        self.config = config
        """May be replaced between two rounds, but for n_seq."""
        self.need_embd_pre_norm = target.model.n_layers in draft.model.target_layers
        """Whether the target must export its final pre-norm state, as the draft reads it."""
        self.stats = SpeculationStats()
        """Counts over all rounds that `accept` ended."""
        self._drafters = [
            Eagle3Drafter(target, draft, window=window, norms=norms, seq_id=seq_id)
            for seq_id in range(config.n_seq)
        ]

    def close(self) -> None:
        """Call it before closing the contexts."""
        for drafter in self._drafters:
            drafter.close()

    def begin(self, seq_id: int, prompt: Sequence[int]) -> None:
        """The target now holds this prompt, all of which `process` saw, and nothing behind it; an
        empty one begins another conversation. Raises ProcessError."""
        kept = self._drafter(seq_id).resume(prompt)
        if kept != len(prompt):
            raise ProcessError(f"process() has seen {kept} of the prompt's {len(prompt)} tokens")

    def process(self, batch: Batch) -> None:
        """Take note of a batch that the target has just decoded. The rows of a sequence have to be
        contiguous and in order. Raises ProcessError, BadSeqIdError."""
        first = 0
        for seq_id, rows in groupby(batch.seq_ids):
            last = first + len(list(rows))
            self._drafter(seq_id).see(batch, first, last)
            first = last

    def draft(self, seq_id: int, n_past: int, id_last: int) -> list[int]:
        """Propose tokens to follow `id_last`, which stands at `n_past`. Raises ProcessError."""
        limits = Limits(self.config.n_draft_max, self.config.n_min, self.config.p_min)
        return self._drafter(seq_id).propose(n_past, id_last, limits).ids

    def accept(self, seq_id: int, n_accepted: int) -> None:
        """The target confirmed the first `n_accepted` drafted tokens of the batch just processed,
        whoever drafted them. Raises ProcessError if the batch had fewer."""
        drafter = self._drafter(seq_id)
        n_drafted = drafter.n_verified
        if not 0 <= n_accepted <= n_drafted:
            raise ProcessError(f"{n_accepted} accepted of a draft of {n_drafted}")
        drafter.accept(range(n_accepted))
        n_tested = min(n_accepted + 1, n_drafted)
        self.stats += of_step(n_drafted, n_tested, n_accepted, n_accepted + 1)

    def _drafter(self, seq_id: int) -> Eagle3Drafter:
        if not 0 <= seq_id < len(self._drafters):
            raise BadSeqIdError(f"there is no sequence {seq_id} of 0 .. {self.config.n_seq - 1}")
        return self._drafters[seq_id]
