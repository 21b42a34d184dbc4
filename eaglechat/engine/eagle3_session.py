"""`Eagle3Session`: EAGLE-3 for programs with a decode loop of their own.

Its life cycle is that of the session of this name in the Rust crate llama-cpp-4. It is a drafter of
eaglechat's own loop for each sequence, with checks and counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from eaglechat.engine.clock import ms_since
from eaglechat.engine.drafters.eagle3 import Eagle3Drafter, draft_window, norms_of
from eaglechat.engine.drafters.pairing import check_pair
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.gguf.preflight import DRAFT_ARCHITECTURE, PreflightError
from eaglechat.wire.errors import Eagle3SessionError, InitError, ModelLoadError, ProcessError
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT


class BadSeqIdError(Eagle3SessionError):
    """A sequence id outside 0 .. n_seq - 1."""

    code = "session_seq_id"


class InvalidConfigError(Eagle3SessionError):
    """A session parameter out of its range."""

    code = "session_config"


@dataclass(frozen=True)
class Eagle3SessionConfig:
    """Raises InvalidConfigError."""

    n_seq: int
    n_draft_max: int
    n_min: int = 0
    """A shorter draft is dropped."""
    p_min: float = 0.0
    """A draft ends before the first token that is less likely."""

    def __post_init__(self) -> None:
        _check("n_seq", self.n_seq, 1)
        _check("n_draft_max", self.n_draft_max, 1, N_DRAFT_MAX_LIMIT)
        _check("n_min", self.n_min, 0, N_DRAFT_MAX_LIMIT)
        _check("p_min", self.p_min, 0, 1)


@dataclass
class SessionStats:
    """What a session did since it was made; times in milliseconds."""

    n_drafts: int = 0
    n_drafts_accepted: int = 0
    """Drafts of which at least one token was accepted."""
    n_drafted: int = 0
    n_accepted: int = 0
    accepted_at: list[int] = field(default_factory=lambda: [0] * N_DRAFT_MAX_LIMIT)
    """By place in the draft: how many tokens were accepted there."""
    process_ms: float = 0.0
    draft_ms: float = 0.0


class Eagle3Session:
    """Drafts for the sequences of a target context. Both contexts stay the caller's.

    A round of a sequence is `draft`, the target's decode of [id_last, *draft], `process` of that
    batch, and `accept` of what the target confirmed.
    """

    need_embd = False
    """Whether the target must output post-norm embeddings."""

    def __init__(self, target: Context, draft: Context, config: Eagle3SessionConfig) -> None:
        """Raises InitError when the two contexts do not fit each other."""
        for name, context in (("target", target), ("draft", draft)):
            if context.n_seq < config.n_seq:
                raise InitError(
                    f"the session wants {config.n_seq} sequences, "
                    f"the {name} context was made for {context.n_seq}"
                )
        try:
            _, header = check_pair(target.model.path, draft.model.path)
            assert header is not None
            if header.architecture != DRAFT_ARCHITECTURE:
                raise InitError(f"{header.path} is no EAGLE-3 draft, it is {header.architecture}")
            window, norms = draft_window(header, LoadOptions(draft_window=0)), norms_of(header)
        except (PreflightError, ModelLoadError) as error:
            raise InitError(str(error)) from error
        self.n_draft_max = config.n_draft_max
        """Most tokens `draft` proposes, 0 for none; may be set between any two rounds."""
        self._config, self._stats = config, SessionStats()
        self._drafters = [
            Eagle3Drafter(target, draft, window=window, norms=norms, seq_id=seq_id)
            for seq_id in range(config.n_seq)
        ]
        self._drafted = [0] * config.n_seq
        """By sequence: the length of a draft that waits for `accept`."""
        self.need_embd_pre_norm = target.model.n_layers in draft.model.target_layers
        """Whether the target must export its final pre-norm state, as the draft reads it."""

    def close(self) -> None:
        """Call it before closing the contexts."""
        for drafter in self._drafters:
            drafter.close()

    def begin(self, seq_id: int, prompt: Sequence[int]) -> None:
        """Check that `process` saw the whole prompt that the target now holds. Raises
        ProcessError."""
        known = self._drafter(seq_id).known
        if known != len(prompt):
            raise ProcessError(
                f"the draft saw {known} positions of a prompt of {len(prompt)} tokens; "
                "process() must follow every decode of the target"
            )

    def process(self, batch: Batch) -> None:
        """Take note of a batch that the target has just decoded. The rows of a sequence have to be
        contiguous and in order. Raises ProcessError, BadSeqIdError."""
        first = 0
        for seq_id, rows in groupby(batch.seq_ids):
            last = first + len(list(rows))
            self._drafter(seq_id).see(batch, first, last)
            first = last

    def draft(self, seq_id: int, n_past: int, id_last: int) -> list[int]:
        """Propose tokens to follow `id_last`, which stands at `n_past`. Raises ProcessError,
        InvalidConfigError for an `n_draft_max` that was set out of its range."""
        _check("n_draft_max", self.n_draft_max, 0, N_DRAFT_MAX_LIMIT)
        limits, drafter = Limits(self.n_draft_max, p_min=self._config.p_min), self._drafter(seq_id)
        started, process_ms = time.perf_counter(), drafter.process_ms
        ids = [*drafter.propose(n_past, id_last, limits).ids]
        self._stats.draft_ms += ms_since(started) - (drafter.process_ms - process_ms)
        if len(ids) < self._config.n_min:
            ids = []
        self._drafted[seq_id] = len(ids)
        self._stats.n_drafts += bool(ids)
        self._stats.n_drafted += len(ids)
        return ids

    def accept(self, seq_id: int, n_accepted: int) -> None:
        """The target confirmed the first `n_accepted` drafted tokens of the batch just processed,
        whoever drafted them. Raises ProcessError if the batch had fewer."""
        drafter = self._drafter(seq_id)
        if not 0 <= n_accepted <= drafter.n_verified:
            raise ProcessError(f"{n_accepted} accepted of a draft of {drafter.n_verified}")
        drafter.accept(range(n_accepted))
        if self._drafted[seq_id]:
            self._stats.n_drafts_accepted += n_accepted > 0
            self._stats.n_accepted += n_accepted
            for place in range(n_accepted):
                self._stats.accepted_at[place] += 1
        self._drafted[seq_id] = 0

    def stats(self) -> SessionStats:
        return replace(self._stats, process_ms=sum(one.process_ms for one in self._drafters))

    def _drafter(self, seq_id: int) -> Eagle3Drafter:
        if not 0 <= seq_id < len(self._drafters):
            raise BadSeqIdError(
                f"sequence {seq_id} is out of range; this session has {len(self._drafters)}, "
                "counted from 0"
            )
        return self._drafters[seq_id]


def _check(name: str, value: float, least: int, most: int | None = None) -> None:
    if value < least or (most is not None and not value <= most):
        allowed = f"{least} to {most}" if most is not None else f"at least {least}"
        raise InvalidConfigError(f"{name} must be {allowed}, got {value}")
