"""What batches of each width and drafts cost on this machine, timed before the first reply.

Without it an automatic draft length would have to try widths in the user's replies, where the
dear ones cost the most.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from eaglechat.engine.errors import DecodeError, ProcessError
from eaglechat.engine.native import Batch, Context
from eaglechat.engine.records import N_DRAFT_MAX_LIMIT
from eaglechat.engine.session import Eagle3Session

_WIDTHS = (1, 2, 3, 5, 9, N_DRAFT_MAX_LIMIT + 1)
_REPEATS = 3
"""Of each width; the first also builds the graph and touches the memory."""
_BUDGET_S = 0.6
_UNSTEADY = 1.5
"""A machine on which the first width takes this much longer, or shorter, afterwards was busy."""
CALIBRATED_DRAFT = 3


@dataclass(frozen=True)
class Calibration:
    """Milliseconds, each measured alone, by batch width."""

    verify: tuple[tuple[int, float], ...] = ()
    """Of decoding a batch with all its outputs, features included."""
    draft: tuple[tuple[int, float], ...] = ()
    """Of taking a batch of this width in and drafting `CALIBRATED_DRAFT` tokens."""


NOT_CALIBRATED = Calibration()


def calibrate(target: Context, session: Eagle3Session) -> Calibration:
    """Time what fits into some tenths of a second, narrow batches first.

    Both KV caches must be empty, and are left so. A pair that cannot be timed is not calibrated:
    what ails it shows in the first reply, where the user is told.
    """
    deadline = time.perf_counter() + _BUDGET_S
    verify: list[tuple[int, float]] = []
    draft: list[tuple[int, float]] = []
    token = max(target.model.bos, 0)
    session.n_draft_max, length = CALIBRATED_DRAFT, session.n_draft_max
    try:
        with Batch(target) as batch:
            for width in _WIDTHS:
                started = time.perf_counter()
                times = [_round(target, session, batch, [token] * width) for _ in range(_REPEATS)]
                # Delays only ever add: the least is nearest the truth.
                verify.append((width, min(verify_ms for verify_ms, _ in times)))
                draft.append((width, min(draft_ms for _, draft_ms in times)))
                now = time.perf_counter()
                # The next width takes up to twice as long.
                if now + 2.0 * (now - started) > deadline:
                    break
            again, _ = _round(target, session, batch, [token])
    except (DecodeError, ProcessError):
        return NOT_CALIBRATED
    finally:
        session.n_draft_max = length
        session.rewind(0, 0)
        target.forget(0, 0)
    first = verify[0][1]
    if max(first, again) > _UNSTEADY * min(first, again):
        return NOT_CALIBRATED
    return Calibration(tuple(verify), tuple(draft))


def _round(
    target: Context, session: Eagle3Session, batch: Batch, tokens: list[int]
) -> tuple[float, float]:
    """Milliseconds of verifying these tokens, and of drafting after them."""
    session.rewind(0, 0)
    target.forget(0, 0)
    started = time.perf_counter()
    batch.clear()
    batch.add_tokens(tokens, 0, 0, output=True)
    status = target.decode(batch)
    if status != 0:
        raise DecodeError(f"the target failed to decode (llama.cpp status {status})")
    session.process(batch)
    target.logits(0).argmax()
    verified = time.perf_counter()
    session.draft(0, len(tokens), tokens[0])
    return (verified - started) * 1000.0, (time.perf_counter() - verified) * 1000.0
