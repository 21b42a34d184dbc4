"""Auto's choice among the draft models of a pair, in simulated chats: no clock, no chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

import pytest

from eaglechat.engine.auto.plan import Seen
from eaglechat.engine.auto.planner import Planner
from eaglechat.engine.drafters.base import Spent
from eaglechat.engine.drafters.guard import GuardedDrafters
from eaglechat.engine.drafters.proposal import Limits, Proposal
from eaglechat.engine.llama.objects import Batch
from eaglechat.wire.protocol import AUTO, Speculation
from tests.engine.auto.pairs import calibrated, gpu, steady
from tests.engine.auto.simulated_pair import Simulated, proposal_of, round_of, text_of

TOKENS = 150
AUTOMATIC = Speculation(n_draft_max=AUTO)
CHEAP = Simulated(gpu, steady(0.3), draft_step=0.3, shape="chain")
GOOD = replace(CHEAP, accepts=steady(0.85), draft_step=0.6)


@dataclass
class Model:
    """A draft model as far as the planner asks for it; the simulated pair drafts."""

    name: str
    known: int = 0
    spent: Spent = field(default_factory=Spent)
    longest: int = 16
    grows_trees: bool = False
    in_one_pass: bool = False
    waiting: int = 1

    def resume(self, tokens: Sequence[int]) -> int:
        return len(tokens)

    def shift(self, start: int, end: int) -> None: ...
    def see(self, batch: Batch) -> None: ...
    def accept(self, path: Sequence[int]) -> None: ...
    def take_in(self) -> None: ...
    def set_export(self, enabled: bool) -> None: ...
    def mark(self) -> object: ...
    def restore(self, length: int, mark: object) -> None: ...
    def propose(self, n_past: int, id_last: int, limits: Limits) -> Proposal:
        return Proposal()


class Chat:
    """Replies with a pair's draft models; `used` says which drafted each of them."""

    def __init__(self, pairs: Mapping[str, Simulated], n_again: int = 0) -> None:
        """A model that has not drafted yet has the target decode `n_again` tokens again."""
        self._models = {name: Model(name) for name in pairs}
        self._drafters = GuardedDrafters([*self._models.values()], can_draft=True)
        calibrations = {name: calibrated(pair) for name, pair in pairs.items()}
        self._planner = Planner(self._drafters, calibrations)
        self._n_again = n_again
        self.used: list[str] = []

    def ask(self, pairs: Mapping[str, Simulated], speculation: Speculation = AUTOMATIC) -> None:
        planner = self._planner
        planner.new_reply(
            speculation, 40, lambda known: 0 if known else self._n_again, goes_on=False
        )
        self.used.append(self._drafters.model_name)
        self._models[self.used[-1]].known = 40
        pair = replace(pairs[self.used[-1]], seed=len(self.used))
        n_written = 0
        while n_written < TOKENS:
            nothing = Proposal()
            plan = planner.choose(speculation, nothing, 40 + n_written, 16)
            limits = plan.limits(speculation)
            guesses = text_of(pair).chain(n_written, limits.n_max)
            kept = [one for one in guesses if limits.pays(one.path, len(one.path) - 1)]
            draft_ms, verify_ms = pair.draft_step * len(guesses), pair.verify(len(kept) + 1, 0)
            round_ = round_of(plan, n_written, 40 + n_written, kept, ms=draft_ms + verify_ms)
            planner.observe(Seen(plan, round_, proposal_of(kept), nothing, 1, draft_ms))
            n_written += len(round_.tokens)


@pytest.mark.parametrize("order", permutations(["cheap", "good"]), ids="-".join)
def test_the_faster_model_is_found_kept_and_left_when_it_gets_worse(order: Sequence[str]) -> None:
    pairs = {"cheap": CHEAP, "good": GOOD}
    chat = Chat({name: pairs[name] for name in order})
    for _ in range(6):
        chat.ask(pairs)
    assert chat.used[2:] == ["good"] * 4
    # The drafts of the other kind of text that now comes are no use.
    pairs["good"] = replace(GOOD, accepts=steady(0.02))
    for _ in range(10):
        chat.ask(pairs)
    assert chat.used[-2:] == ["cheap"] * 2


def test_a_conversation_is_read_again_for_a_faster_model_only_if_that_pays() -> None:
    pairs = {"cheap": CHEAP, "good": GOOD}
    for n_again, is_worth in ((200, True), (20_000, False)):
        chat = Chat(pairs, n_again)
        for _ in range(4):
            chat.ask(pairs)
        assert ("good" in chat.used) is is_worth


def test_settings_name_the_model_or_its_length_and_auto_remembers_what_it_found() -> None:
    pairs = {"cheap": CHEAP, "good": GOOD}
    chat = Chat(pairs)
    for speculation in (
        *[AUTOMATIC] * 4,
        Speculation(n_draft_max=AUTO, drafter="cheap"),
        AUTOMATIC,
        Speculation(n_draft_max=3),
    ):
        chat.ask(pairs, speculation)
    assert chat.used[3:] == ["good", "cheap", "good", "good"]
