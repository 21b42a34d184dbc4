"""The drafter as the loop has it: there may be none, it may be off, and it may fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar

from eaglechat.engine.drafters.base import Drafter, Limits, Proposal, Spent
from eaglechat.engine.llama.objects import Batch
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import Speculation

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Method = Callable[Concatenate["Drafting", _P], _T]


NO_MARK: object = None
"""There is nothing to go on from."""


def _guarded(otherwise: _T) -> Callable[[_Method[_P, _T]], _Method[_P, _T]]:
    """Where the drafter fails, it is given up and the call answers `otherwise`."""

    def guard(method: _Method[_P, _T]) -> _Method[_P, _T]:
        def call(self: Drafting, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                self.give_up(error)
                return otherwise

        return call

    return guard


_NOT_KNOWN: int | None = None


class Drafting:
    """A drafter, or none. Where it fails, its fallback goes on, if it has one, and a later reply
    tries it again.

    While it is off, nothing is proposed and nothing seen.
    """

    def __init__(self, drafter: Drafter | None) -> None:
        self._drafter = drafter
        """Its fallback, or None, once it has failed."""
        self._failed: Drafter | None = None
        self._failure: str | None = None
        self._cause = ""
        self._n_failures = self._sits_out = 0
        """How often it has failed in a row, and the replies that go on without it."""
        self.on = drafter is not None

    def new_reply(self, speculation: Speculation) -> None:
        """A reply begins.

        What has failed begins from nothing, for which the target reads the whole prompt again. So
        the next reply tries it once more, and what then fails again sits out 1 reply, 3, 7, ...
        """
        if self._failed is None:
            if self.on:
                self._n_failures = 0
        elif self._sits_out > 0:
            self._failure = (
                f"the draft failed {self._n_failures} times in a row ({self._cause}); it is tried "
                f"again in {self._sits_out} {'reply' if self._sits_out == 1 else 'replies'}"
            )
            self._sits_out -= 1
        else:
            self._drafter, self._failed, self._failure = self._failed, None, None
            self.on = False
            self._forget_all()
        self.follow(speculation)

    @property
    def has_failed(self) -> bool:
        """Whether something has failed since `failure` was last asked."""
        return self._failure is not None

    @_guarded(None)
    def follow(self, speculation: Speculation) -> None:
        """Go on as the settings now are."""
        if self._drafter is None:
            return
        if self.on != speculation.enabled:
            self.on = speculation.enabled
            self._drafter.listen(self.on)

    def failure(self) -> str | None:
        """What has failed since this was last asked."""
        failure, self._failure = self._failure, None
        return failure

    def give_up(self, error: Exception) -> None:
        """Go on without the drafter."""
        is_ours = isinstance(error, EngineError)
        self._cause = str(error) if is_ours else f"{type(error).__name__}: {error}"
        self._failure = f"the draft failed: {self._cause}"
        drafter, self._drafter = self._drafter, None
        if drafter is not None:
            self._drafter = drafter.fallback
            with suppress(Exception):
                drafter.listen(False)
        if self._failed is None:
            self._failed = drafter
            self._n_failures += 1
            self._sits_out = 2 ** (self._n_failures - 1) - 1
        self.on = self.on and self._drafter is not None

    # What follows is a drafter's own; see `Drafter`.

    @property
    @_guarded(0)
    def known(self) -> int:
        return self._drafter.known if self._drafter is not None else 0

    @property
    @_guarded(0)
    def waiting(self) -> int:
        return self._drafter.waiting if self._drafter is not None and self.on else 0

    @property
    @_guarded(True)
    def is_blind(self) -> bool:
        return self._drafter is None or self._drafter.is_blind

    @property
    @_guarded(False)
    def grows_trees(self) -> bool:
        return self._drafter is not None and self._drafter.grows_trees

    @property
    @_guarded(Spent(0.0, 0.0))
    def spent(self) -> Spent:
        return self._drafter.spent if self._drafter is not None else Spent(0.0, 0.0)

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
        """As of a drafter; while it is off, all of them may stay."""
        if self.on or self.known > len(tokens):
            kept = self._resume(tokens, to_draft)
            if kept is None:
                return self.resume(tokens, to_draft=to_draft)
            return kept if self.on else len(tokens)
        return len(tokens)

    @_guarded(_NOT_KNOWN)
    def _resume(self, tokens: Sequence[int], to_draft: bool) -> int | None:
        assert self._drafter is not None
        return self._drafter.resume(tokens, to_draft=to_draft)

    @_guarded(None)
    def _forget_all(self) -> None:
        assert self._drafter is not None
        self._drafter.resume((), to_draft=False)

    def mark(self) -> object:
        """As of a drafter; None while it is off, or has failed."""
        return self._mark()

    @_guarded(NO_MARK)
    def _mark(self) -> object:
        return self._drafter.mark() if self._drafter is not None and self.on else None

    @_guarded(None)
    def restore(self, length: int, mark: object) -> None:
        if self._drafter is not None and mark is not None:
            self._drafter.restore(length, mark)

    @_guarded(None)
    def shift(self, start: int, end: int) -> None:
        if self._drafter is not None:
            self._drafter.shift(start, end)

    @_guarded(None)
    def see(self, batch: Batch) -> None:
        if self._drafter is not None and self.on:
            self._drafter.see(batch)

    @_guarded(None)
    def take_in(self) -> None:
        if self._drafter is not None and self.on:
            self._drafter.take_in()

    @_guarded(Proposal())
    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        if self._drafter is None or not self.on or not (limits.n_max or limits.n_lookup):
            return Proposal()
        return self._drafter.propose(n_past, id_last, limits)

    @_guarded(None)
    def accept(self, path: Sequence[int]) -> None:
        if self._drafter is not None and self.on:
            self._drafter.accept(path)
