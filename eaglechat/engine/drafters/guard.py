"""The draft models of the loop. One may fail; none ends a reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from eaglechat.engine.drafters.base import Drafter
from eaglechat.engine.drafters.proposal import Limits, Proposal
from eaglechat.engine.llama.objects import Batch
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import AUTO, Speculation

T = TypeVar("T")


class GuardedDrafters:
    """While speculation is off, nothing is proposed and nothing seen. A draft model that raises is
    out until the pair is loaded again: what it knows is lost, and what failed once would cost each
    further reply a prompt that is read again.

    Of several draft models one is in use, from a reply's beginning to its end. The others see
    nothing meanwhile.
    """

    def __init__(self, models: Sequence[Drafter], *, can_draft: bool) -> None:
        """The first of `models` is used until a reply asks for another. `can_draft` is False for a
        target that cannot take back rejected tokens."""
        self._models = tuple(models)
        self._model = self._models[0] if models else None
        """The one in use."""
        self._failed: dict[str, str] = {}
        """By the name of a model that has failed: why."""
        self._failure: str | None = None
        self._can_draft = self.on = can_draft
        for model in models:
            model.set_export(model is self._model)

    @property
    def model_name(self) -> str:
        """The draft model in use; empty without one."""
        return self._model.name if self._model is not None else ""

    @property
    def _working(self) -> list[Drafter]:
        return [model for model in self._models if model.name not in self._failed]

    def new_reply(self, want: Speculation) -> None:
        """A reply begins. Where the settings leave the draft model to auto, it is the first that
        works."""
        named = [model for model in self._models if want.drafter in (AUTO, model.name)]
        works = [model for model in named if model in self._working]
        chosen = next(iter([*works, *named]), None)
        if chosen is not self._model:
            self._try(lambda model: model.set_export(False), None)
            self._model = chosen
            self._try(lambda model: model.set_export(self.on), None)
        self.follow(want)
        if self.on:
            self._failure = self._failed.get(self.model_name, self._failure)

    def follow(self, want: Speculation) -> None:
        is_on = self._can_draft and want.enabled and want.drafter != "none"
        if self.on != is_on:
            self.on = is_on
            self._try(lambda model: model.set_export(is_on), None)

    @property
    def has_failed(self) -> bool:
        """Whether something has failed since `failure` was last asked."""
        return self._failure is not None

    def note_failure(self, why: str) -> None:
        self._failure = self._failure or why

    def failure(self) -> str | None:
        """What has failed since this was last asked, or is missed in this reply."""
        failure, self._failure = self._failure, None
        return failure

    # --- what the target holds ---

    def is_behind(self, length: int) -> bool:
        return self._ask(lambda model: model.known < length, False)

    def resume(self, tokens: Sequence[int]) -> int:
        """As `Drafter.resume`. While speculation is off, the target keeps all tokens."""
        kept = self._ask(lambda model: model.resume(tokens), len(tokens))
        self.forget(tokens[:kept])
        return kept

    def forget(self, tokens: Sequence[int]) -> None:
        """The target holds these tokens, and nothing behind them."""
        for model in self._working:
            if model.known > len(tokens):
                self._try(lambda one: one.resume(tokens), 0, model)

    def marks(self) -> dict[str, object]:
        """By the name of the draft model in use, what it needs to go on from here; empty without
        one, and while it is off or has failed."""
        return self._ask(lambda model: {model.name: model.mark()}, {})

    def restore(self, length: int, marks: Mapping[str, object]) -> None:
        """Go back to behind `length` positions, where `marks` were made, if the draft model in use
        is among them."""
        if self.model_name in marks:
            mark = marks[self.model_name]
            self._try(lambda model: model.restore(length, mark), None)

    def shift(self, start: int, end: int) -> None:
        for model in self._working:
            self._try(lambda one: one.shift(start, end), None, model)

    # --- a round ---

    @property
    def process_ms(self) -> float:
        return self._model.process_ms if self._model is not None else 0.0

    @property
    def longest(self) -> int:
        """The most tokens that the draft model can propose now; 0 if there is none."""
        return self._ask(lambda model: model.longest, 0)

    @property
    def grows_trees(self) -> bool:
        return self._ask(lambda model: model.grows_trees, False)

    @property
    def waiting(self) -> int:
        return self._ask(lambda model: model.waiting, 0)

    def take_in(self) -> None:
        self._ask(lambda model: model.take_in(), None)

    def see(self, batch: Batch) -> None:
        self._ask(lambda model: model.see(batch), None)

    def draft(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        return self._ask(lambda model: model.propose(n_past, id_last, limits), Proposal())

    def accept(self, path: Sequence[int]) -> None:
        self._ask(lambda model: model.accept(path), None)

    # --- failures ---

    def _ask(self, call: Callable[[Drafter], T], otherwise: T) -> T:
        """What the draft model in use answers; `otherwise` while it is off, too."""
        return self._try(call, otherwise) if self.on else otherwise

    def _try(self, call: Callable[[Drafter], T], otherwise: T, model: Drafter | None = None) -> T:
        """What a draft model answers, by default the one in use; `otherwise` if there is none or
        it fails, now or before."""
        model = model or self._model
        if model is None or model.name in self._failed:
            return otherwise
        try:
            return call(model)
        except Exception as error:
            is_ours = isinstance(error, EngineError)
            cause = str(error) if is_ours else f"{type(error).__name__}: {error}"
            said = f"the draft failed: {cause}; load the pair again to try it again"
            self._failed[model.name] = said
            self.note_failure(said)
            with suppress(Exception):
                model.set_export(False)
            return otherwise
