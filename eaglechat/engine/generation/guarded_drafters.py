"""The loop's drafters: n-grams, and the draft model that a reply asks for. Either may fail; neither
ends a reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from eaglechat.engine.drafters.base import Drafter, DraftModel, Limits, Proposal, Spent
from eaglechat.engine.drafters.ngram import NgramDrafter
from eaglechat.engine.llama.objects import Batch
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AUTO, Speculation

D = TypeVar("D", bound=Drafter)
T = TypeVar("T")


class Choice(NamedTuple):
    """A draft model that a reply may use."""

    name: str
    known: int
    """Positions from 0 on that it has seen."""
    grows_trees: bool


class Mark(NamedTuple):
    """What a draft model needs to go on from a position."""

    model_name: str
    state: object
    """`DraftModel.mark`: of a type of its own for each kind of draft model."""


class GuardedDrafters:
    """While speculation is off, nothing is proposed and nothing seen. A drafter that raises is left
    out of the rest of the reply, and tried again in a later one; the other one goes on.

    Of several draft models one is in use, from a reply's beginning to its end. The others see
    nothing meanwhile.
    """

    def __init__(self, models: Sequence[DraftModel], ngram: NgramDrafter | None) -> None:
        """The first of `models` is used until a reply asks for another."""
        self._models, self._ngram = tuple(models), ngram
        self._model = models[0] if models else None
        for model in models:
            model.set_export(False)
        if self._model is not None:
            self._model.set_export(True)
        self._failed: list[Drafter] = []
        self._failure: str | None = None
        self._cause = ""
        self._n_failures = 0
        """Tries in a row that ended with a failure."""
        self._sits_out = 0
        """Replies that pass before what has failed is tried again."""
        self.on = bool(self._in_use)

    @property
    def _in_use(self) -> tuple[Drafter, ...]:
        # The model comes first, as `resume` asks it first.
        return tuple(one for one in (self._model, self._ngram) if one is not None)

    @property
    def model_name(self) -> str:
        """The draft model in use; empty without one."""
        return self._model.name if self._model is not None else ""

    @property
    def to_choose_from(self) -> list[Choice]:
        """The draft models that have not failed; none if there is only one."""
        models = self._models if len(self._models) > 1 else ()
        choices = [
            self._ask(model, lambda one: Choice(one.name, one.known, one.grows_trees), None)
            for model in models
        ]
        return [choice for choice in choices if choice is not None]

    def new_reply(self, speculation: Speculation, fastest: str = "") -> None:
        """A reply begins. Where the settings leave the draft model to auto, it is `fastest`, or
        the first if that is empty.

        A draft model that is tried again knows nothing, so the target has to decode the whole
        prompt again. Therefore it is tried in the next reply, and after further failures in a row
        only when 1, 3, 7, ... replies have passed.
        """
        self._choose(fastest if speculation.drafter == AUTO else speculation.drafter)
        if not self._failed:
            if self.on:
                self._n_failures = 0
        elif self._sits_out > 0:
            # Nobody misses one that another is used instead of.
            if any(drafter in self._failed for drafter in self._in_use):
                self._failure = (
                    f"the draft failed {self._n_failures} times in a row ({self._cause}); it is "
                    f"tried again in {self._sits_out} "
                    f"{'reply' if self._sits_out == 1 else 'replies'}"
                )
            self._sits_out -= 1
        else:
            again, self._failed, self._failure = self._failed, [], None
            self.on = False
            for drafter in again:
                self._ask(drafter, lambda one: one.resume((), to_draft=False), 0)
        self.follow(speculation)

    def _choose(self, wanted: str) -> None:
        """Use the draft model of this name; the first for an empty name, none for a name that no
        model has."""
        models = [one for one in self._models if wanted in ("", one.name)]
        chosen = models[0] if models else None
        if chosen is not self._model:
            self._ask(self._model, lambda model: model.set_export(False), None)
            self._model = chosen
            self._ask(chosen, lambda model: model.set_export(self.on), None)

    def follow(self, speculation: Speculation) -> None:
        """Go on or off, as the settings now are."""
        is_on = speculation.enabled and speculation.drafter != "none"
        if self._works and self.on != is_on:
            self.on = is_on
            self._ask(self._model, lambda model: model.set_export(is_on), None)

    @property
    def has_failed(self) -> bool:
        """Whether a drafter has failed since `failure` was last asked."""
        return self._failure is not None

    def failure(self) -> str | None:
        """What has failed since this was last asked."""
        failure, self._failure = self._failure, None
        return failure

    # --- what the target holds ---

    @property
    def known(self) -> int:
        """Positions from 0 on that all drafters have seen."""
        known = [self._ask(drafter, lambda one: one.known, None) for drafter in self._in_use]
        return min((length for length in known if length is not None), default=0)

    def resume(self, tokens: Sequence[int], *, to_draft: bool) -> int:
        """`Drafter.resume` for all drafters. While speculation is off, the target keeps all
        tokens."""
        kept = len(tokens)
        if self.on:
            for drafter in self._in_use:
                kept = self._resume(drafter, tokens[:kept], to_draft=to_draft)
        self.forget(tokens[:kept])
        return kept

    def forget(self, tokens: Sequence[int]) -> None:
        """The target holds these tokens, and nothing behind them."""
        drafters: list[Drafter | None] = [*self._models, self._ngram]
        for drafter in drafters:
            if drafter and self._ask(drafter, lambda one: one.known, 0) > len(tokens):
                self._resume(drafter, tokens, to_draft=False)

    def _resume(self, drafter: Drafter, tokens: Sequence[int], *, to_draft: bool) -> int:
        return self._ask(drafter, lambda one: one.resume(tokens, to_draft=to_draft), len(tokens))

    def mark(self) -> Mark | None:
        """What the draft model in use needs to go on from here; None without a draft model, and
        while it is off or has failed."""
        state = self._ask(self._model, lambda model: model.mark(), None) if self.on else None
        return None if state is None else Mark(self.model_name, state)

    def restore(self, length: int, mark: Mark | None) -> None:
        """Go back to a mark behind `length` positions, unless it is another draft model's."""
        if mark is not None and mark.model_name == self.model_name:
            self._ask(self._model, lambda model: model.restore(length, mark.state), None)

    def shift(self, start: int, end: int) -> None:
        drafters: list[Drafter | None] = [*self._models, self._ngram]
        for drafter in drafters:
            self._ask(drafter, lambda one: one.shift(start, end), None)

    # --- a round ---

    @property
    def spent(self) -> Spent:
        """Milliseconds of all drafters together."""
        spent = [drafter.spent for drafter in self._in_use]
        return Spent(sum(one.process_ms for one in spent), sum(one.draft_ms for one in spent))

    @property
    def longest(self) -> int:
        """The most tokens that the draft model can propose now; 0 if there is none."""
        return self._ask(self._model, lambda model: model.longest, 0)

    @property
    def grows_trees(self) -> bool:
        return self._ask(self._model, lambda model: model.grows_trees, False)

    @property
    def waiting(self) -> int:
        """Rows that the draft model has not taken in."""
        return self._ask(self._model, lambda model: model.waiting, 0) if self.on else 0

    def take_in(self) -> None:
        if self.on:
            self._ask(self._model, lambda model: model.take_in(), None)

    def see(self, batch: Batch) -> None:
        if self.on:
            for drafter in self._in_use:
                self._ask(drafter, lambda one: one.see(batch), None)

    def look_up(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """What n-grams propose; see `Drafter.propose`."""
        return self._propose(self._ngram, n_past, id_last, limits)

    def draft(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        """What the draft model proposes; see `Drafter.propose`."""
        return self._propose(self._model, n_past, id_last, limits)

    def _propose(
        self, drafter: Drafter | None, n_past: int, id_last: int, limits: Limits
    ) -> Proposal:
        if not self.on or limits.n_max == 0:
            return Proposal()
        proposal = self._ask(drafter, lambda one: one.propose(n_past, id_last, limits), Proposal())
        return proposal if len(proposal) >= limits.n_min else Proposal()

    def accept(self, path: Sequence[int]) -> None:
        if self.on:
            for drafter in self._in_use:
                self._ask(drafter, lambda one: one.accept(path), None)

    # --- failures ---

    @property
    def _works(self) -> bool:
        return any(drafter not in self._failed for drafter in self._in_use)

    def _ask(self, drafter: D | None, question: Callable[[D], T], otherwise: T) -> T:
        """What a drafter answers, or `otherwise` if there is none or it fails, now or before."""
        if drafter is None or drafter in self._failed:
            return otherwise
        try:
            return question(drafter)
        except Exception as error:
            is_ours = isinstance(error, EngineError)
            self._cause = str(error) if is_ours else f"{type(error).__name__}: {error}"
            self._failure = f"the draft failed: {self._cause}"
            if not self._failed:
                self._n_failures += 1
                self._sits_out = 2 ** (self._n_failures - 1) - 1
            self._failed.append(drafter)
            self.on = self.on and self._works
            if self._model is not None and drafter is self._model:
                with suppress(Exception):
                    self._model.set_export(False)
            return otherwise
