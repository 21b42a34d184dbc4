"""The loop under an automatic length: what the draft takes in, what is read again for it."""

from __future__ import annotations

import pytest

from eaglechat.engine.auto.calibration import Calibration
from eaglechat.engine.auto.controller import Allowed, Controller, Plan
from eaglechat.engine.drafters.base import MOST_WAITING
from eaglechat.engine.llama.objects import Model
from eaglechat.engine.loop import Generator, Live
from eaglechat.engine.prompt import Asked
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT, AutoDraft, AutoReason, Round
from tests.engine.rig import (
    GREEDY,
    Reply,
    check_bookkeeping,
    drafts_of,
    first_position,
    fresh_reply,
    open_rig,
)

TEXT = "the cat sat on the mat"
LONG = TEXT + " and the dog" * 20
PASTED = "the quick brown fox" + " and the mat" * 20
AUTOMATIC = Live(Speculation(n_draft_max=AUTO), 0.0)


@pytest.mark.parametrize("n_plain", [1, 2 * MOST_WAITING], ids=["drafting", "plain rounds"])
def test_a_draft_holds_under_auto_what_it_holds_at_a_length_of_one_s_own(
    tiny_models: tuple[Model, Model],
    monkeypatch: pytest.MonkeyPatch,
    n_plain: int,
) -> None:
    """After prompts of several batches and many plain rounds."""
    with open_rig(*tiny_models, n_batch=32) as rig:
        prompt = rig.prompt(LONG)
        for _ in range(2):
            assert len(prompt) > 6 * MOST_WAITING
            auto_plays(monkeypatch, [3, 0, 3] + [0] * n_plain + [3] * 8)
            reply = rig.reply(prompt, live=AUTOMATIC, max_tokens=n_plain + 12)
            check_bookkeeping(reply, prompt)
            assert (first_position(rig.draft), rig.drafter.longest) == (0, N_DRAFT_MAX_LIMIT)
            # With the same before them, the draft guesses the same.
            own = fresh_reply(tiny_models, [*prompt, *reply.tokens], n_draft_max=3)
            assert drafts_of(rig.reply([*prompt, *reply.tokens])) == drafts_of(own)
            prompt = (*prompt, *reply.tokens, *rig.prompt(PASTED))


@pytest.mark.parametrize("are_cheap", [True, False])
def test_of_cheap_rows_few_wait_for_a_trial_of_drafting(
    tiny_models: tuple[Model, Model], monkeypatch: pytest.MonkeyPatch, are_cheap: bool
) -> None:
    auto_plays(monkeypatch, [], affords_rows=are_cheap)
    with open_rig(*tiny_models) as rig:
        waiting = [
            rig.drafter.waiting
            for event in rig.stream(rig.prompt(LONG), live=AUTOMATIC, max_tokens=150)
            if isinstance(event, Round)
        ]
    assert len(waiting) > 2 * MOST_WAITING
    assert max(waiting) == (MOST_WAITING + 1 if are_cheap else len(waiting) + 1)


def test_a_short_draft_window_keeps_auto_drafting_and_what_it_left_out_is_read_again(
    tiny_models: tuple[Model, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = auto_plays(monkeypatch, [3] * 6)
    with open_rig(*tiny_models, draft_window=16) as rig:
        prompt = rig.prompt(LONG)
        rig.reply([*prompt, *rig.prompt(LONG)], live=AUTOMATIC, max_tokens=30)
        assert all(allowed[:6])
        assert first_position(rig.draft) >= len(prompt) - 1
        again = rig.reply(prompt)
    assert again.tokens == fresh_reply(tiny_models, prompt).tokens
    assert again.prefills[0].reused == len(prompt) - 1 - (16 + 1)


@pytest.mark.parametrize("what", ["new_reply", "choose", "observe"])
def test_a_fault_of_auto_makes_the_reply_plain_and_is_told_once(
    tiny_models: tuple[Model, Model], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    auto = Live(Speculation(n_draft_max=AUTO), 0.0)
    with open_rig(*tiny_models) as rig:
        prompt = rig.prompt(TEXT)
        with monkeypatch.context() as patched:
            patched.setattr(Controller, what, explode)
            reply = rig.reply(prompt, live=auto)
        check_bookkeeping(reply, prompt)
        assert reply.tokens == fresh_reply(tiny_models, prompt).tokens
        assert not any(drafts_of(reply))
        assert [off.reason for off in reply.offs] == [
            "the automatic draft length failed: ZeroDivisionError: no time has passed"
        ]
        # The next reply has a fresh controller.
        again = rig.reply(prompt, live=auto)
        assert not again.offs
        assert all(round_.auto is not None for round_ in again.rounds)


def explode(*_: object) -> None:
    raise ZeroDivisionError("no time has passed")


def auto_plays(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], *, affords_rows: bool = True
) -> list[bool]:
    """Have auto choose these lengths, then 0. The list returned says of each round whether it could
    have drafted."""
    rest, allowed = iter(lengths), []

    def choose(self: Controller, _past: int, _waiting: int, allows: Allowed) -> Plan:
        self.affords_rows = affords_rows
        allowed.append(allows.n_most > 0)
        n = min(next(rest, 0), allows.n_most)
        state = AutoDraft(n, AutoReason.BEST, (), 0.0, 0.0)
        return Plan(n, worth=(0.0,) * n, by_probability=(1.0,) * 10, is_chosen=True, state=state)

    monkeypatch.setattr(Controller, "choose", choose)
    monkeypatch.setattr(Controller, "observe", lambda *_: None)
    return allowed


def test_without_a_draft_auto_verifies_what_n_grams_find(
    tiny_models: tuple[Model, Model],
) -> None:
    flat = Calibration(verify=((1, 1.0), (17, 1.2)))
    with open_rig(*tiny_models) as rig:
        prompt = rig.prompt(TEXT)
        alone = Generator(rig.target, calibrations={"": flat})
        live = Live(Speculation(n_draft_max=AUTO, shape=AUTO, ngram=True), 0.0)
        reply = Reply(tuple(alone.reply(Asked(prompt), GREEDY, live, seed=1, max_tokens=120)))
        alone.close()
        assert reply.tokens == fresh_reply(tiny_models, prompt, max_tokens=120).tokens
    check_bookkeeping(reply, prompt)
    looked_up = [r for r in reply.rounds if r.drafted]
    assert {round_.drafter for round_ in looked_up} == {"ngram"}
    assert all(r.auto and r.auto.reason is AutoReason.LOOKED_UP for r in looked_up)


@pytest.mark.parametrize("cells_shared", [True, False])
def test_a_length_of_one_s_own_is_drafted_in_the_shape_that_is_faster(
    tiny_models: tuple[Model, Model], cells_shared: bool
) -> None:
    """If sequences cannot share the target's cells, that is a chain."""
    live = Live(Speculation(n_draft_max=6, shape=AUTO), 0.0)
    with open_rig(*tiny_models, n_seq=16 if cells_shared else 1) as rig:
        prompt = rig.prompt(TEXT)
        reply = rig.reply(prompt, live=live, max_tokens=120)
    check_bookkeeping(reply, prompt)
    rounds = reply.rounds[:-6]
    assert {(r.n_draft_max, len(r.drafted), r.auto) for r in rounds} == {(6, 6, None)}
    assert not any(r.is_tree for r in rounds) or cells_shared
