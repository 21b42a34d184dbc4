"""Whatever has happened to a pair, it writes and drafts what one that has just been loaded does.

A state machine asks, cancels, turns speculation off and on, lets the draft fail, edits earlier
questions and outgrows the context, and holds every reply against a fresh pair's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from eaglechat.engine.drafters.base import Drafter
from eaglechat.engine.llama.objects import Batch
from eaglechat.engine.prompt import Asked
from eaglechat.engine.sequences import common_prefix
from eaglechat.wire.errors import DecodeError
from eaglechat.wire.protocol import AUTO, Set
from eaglechat.wire.records import FinishReason
from tests.engine.kind_pairs import KINDS, Files, Write
from tests.engine.rig import Reply, check_bookkeeping
from tests.engine.ties import same_unless_tie
from tests.tiny_kinds import BOS, N

SMALL = 192
"""A context that a few turns outgrow."""
STEPS = settings(
    max_examples=6,
    stateful_step_count=9,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

START = (7, 21, 40)
WORDS = st.lists(st.integers(0, N - 1), min_size=1, max_size=8)
LONG = st.lists(st.integers(0, N - 1), min_size=40, max_size=70)
ASKED = st.fixed_dictionaries(
    {
        "n": st.sampled_from([3, 8, 1, 0]),
        "ngram": st.booleans(),
        "enabled": st.sampled_from([True, True, False]),
        "shape": st.sampled_from(["chain", "tree"]),
        "length": st.integers(1, 14),
    }
)
DRAFTING: dict[str, Any] = {"n": 3, "shape": "tree", "length": 12}
OFF_AND_ON = st.fixed_dictionaries(
    {
        0: st.sampled_from([Set(enabled=False), Set(n_draft_max=0), Set(n_draft_max=8)]),
        3: st.sampled_from([Set(enabled=True), Set(shape="tree"), Set(enabled=False)]),
    }
)
BROKEN = "the draft failed: RuntimeError: broken; load the pair again to try it again"


CALLS = "resume", "shift", "see", "take_in", "propose", "accept", "set_export", "mark", "restore"


class Fragile:
    """A draft model that fails at the call that is asked for, counted from the one that comes
    next."""

    def __init__(self, model: Drafter) -> None:
        self._model = model
        self.calls_left: int | None = None

    def __getattr__(self, name: str) -> Any:
        if name in CALLS:
            if self.calls_left == 0:
                self.calls_left = None
                raise RuntimeError("broken")
            if self.calls_left is not None:
                self.calls_left -= 1
        return getattr(self._model, name)


class Turns(Asked):
    """A conversation of tokens. Turns begin alike, as those of a chat template do; the last one may
    be edited."""

    def __init__(self, turns: Sequence[Sequence[int]]) -> None:
        self._turns = turns
        super().__init__(self.without(0))

    @property
    def count(self) -> int:
        return len(self._turns)

    def without(self, n: int) -> tuple[int, ...]:
        return (BOS, *(token for turn in self._turns[n:] for token in turn))

    def boundaries(self) -> tuple[int, ...]:
        return (len(self.tokens) - len(self._turns[-1]) + len(START),)


class Chats(RuleBasedStateMachine):
    """Chats with one pair."""

    def __init__(self, files: Files, drafter: str, n_ctx: int) -> None:
        super().__init__()
        self.files, self.name, self.n_ctx = files, drafter, n_ctx
        self.stack = ExitStack()
        self.turns: list[tuple[int, ...]] = []
        self.load()

    def load(self) -> None:
        self.stack.close()
        opened = self.files.opened(self.name, n_ctx=self.n_ctx, n_batch=32, wrap=Fragile)
        self.pair = self.stack.enter_context(opened)

    def teardown(self) -> None:
        self.stack.close()

    @rule(words=WORDS | LONG, kept=st.integers(0, 5), asked=ASKED)
    def ask(self, words: list[int], kept: int, asked: dict[str, Any]) -> None:
        """The question follows the first `kept` turns: an earlier one may be edited."""
        del self.turns[kept:]
        reply = self.reply(words, **asked)
        assert reply.offs == []
        if asked["enabled"] and len(reply.windows) < 2:
            check_same_drafts(reply, self.fresh(reply, words, **asked))
        self.answered(words, reply)

    @precondition(lambda self: self.turns)
    @rule(asked=ASKED)
    def ask_again(self, asked: dict[str, Any]) -> None:
        self.ask(self.words, len(self.turns) - 1, asked)

    @rule(words=WORDS)
    def ask_with_auto(self, words: list[int]) -> None:
        reply = self.reply(words, n=AUTO, length=12)
        assert reply.offs == []
        self.answered(words, reply)

    @rule(words=WORDS, changes=OFF_AND_ON)
    def change_in_mid_reply(self, words: list[int], changes: dict[int, Set]) -> None:
        reply = self.reply(words, **DRAFTING, changes=changes)
        assert reply.offs == []
        self.answered(words, reply)

    @rule(words=WORDS | LONG, enabled=st.booleans(), kind=st.sampled_from(["prefills", "rounds"]))
    def cancel(self, words: list[int], enabled: bool, kind: str) -> None:
        reply = self.reply(
            words, **DRAFTING, enabled=enabled, cancel_at=lambda seen: len(getattr(seen, kind)) > 1
        )
        assert reply.end.finish_reason in (FinishReason.CANCELLED, FinishReason.LENGTH)
        # It takes effect within one round.
        assert kind == "prefills" or len(reply.rounds) <= 2
        if reply.tokens:
            self.answered(words, reply)

    @rule(words=WORDS, calls=st.integers(0, 12), ngram=st.booleans())
    def the_draft_fails(self, words: list[int], calls: int, ngram: bool) -> None:
        """And is out until the pair is loaded again."""
        self.pair.drafter.calls_left = calls
        reply = self.reply(words, **DRAFTING, ngram=ngram)
        has_failed = self.pair.drafter.calls_left is None
        self.pair.drafter.calls_left = None
        assert [off.reason for off in reply.offs] == ([BROKEN] if has_failed else [])
        self.answered(words, reply)
        if has_failed:
            reply = self.reply(words, **DRAFTING, ngram=ngram)
            assert [off.reason for off in reply.offs] == [BROKEN]
            assert {round_.drafter for round_ in reply.rounds} <= {"ngram", None}
            self.answered(words, reply)
            self.load()

    @rule(words=WORDS, calls=st.integers(0, 6), status=st.sampled_from([1, -3]))
    def the_target_fails(self, words: list[int], calls: int, status: int) -> None:
        """The reply is an error, and the next one is as good as ever."""
        decode, left = self.pair.target.decode, iter(range(calls))

        def fails(batch: Batch) -> int:
            return decode(batch) if next(left, None) is not None else status

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.pair.target, "decode", fails)
            with suppress(DecodeError):
                self.reply(words, **DRAFTING)

    def reply(self, words: Sequence[int], **asked: Any) -> Reply:
        """The reply to a question, checked against a fresh pair's."""
        turns = self.conversation(words)
        prompt = turns.tokens
        known = self.known(prompt, enabled=asked.get("enabled", True))
        reply = self.pair.reply(turns, **asked)
        for round_ in reply.rounds:
            accepted = [round_.drafted[index].id for index in round_.path]
            assert [token.id for token in round_.tokens[: round_.n_accepted]] == accepted
        if not reply.windows:
            check_bookkeeping(reply, prompt)
        if reply.end.finish_reason is FinishReason.LENGTH:
            assert len(reply.tokens) == asked["length"]
        assert reply.windows or reply.prefills[0].reused >= known - 1
        fresh = self.fresh(reply, words, enabled=False, length=14)
        first_turn = reply.windows[0].first_turn if reply.windows else 0
        plain = fresh.tokens[: len(reply.tokens)]
        same_unless_tie(self.pair.target.model, turns.without(first_turn), plain, reply.tokens)
        self.check_caches(reply, turns)
        return reply

    def known(self, prompt: Sequence[int], *, enabled: bool) -> int:
        """How many of a prompt's tokens target and drafter know: all but one are not read again."""
        held = tuple(self.pair.generator.cache.tokens)
        common = common_prefix(held, prompt[:-1])
        if enabled:
            common = min(common, self.pair.drafter.known)
        # A recurrent target goes back to a checkpoint.
        return common if not self.files.kind.is_hybrid or common == len(held) else 0

    def fresh(self, reply: Reply, words: Sequence[int], **asked: Any) -> Reply:
        """The reply of a pair that has never seen anything else, to what was in the context."""
        first_turn = reply.windows[0].first_turn if reply.windows else 0
        with self.files.opened(self.name, n_batch=32) as pair:
            return pair.reply(self.conversation(words).without(first_turn), **asked)

    def conversation(self, words: Sequence[int]) -> Turns:
        return Turns([*self.turns, (*START, *words)])

    def answered(self, words: Sequence[int], reply: Reply) -> None:
        self.words = words
        self.turns.append((*START, *words, *reply.tokens))

    def check_caches(self, reply: Reply, turns: Turns) -> None:
        """Target and drafter hold the conversation, and nothing else."""
        held, target = tuple(self.pair.generator.cache.tokens), self.pair.target
        first_turn = reply.windows[-1].first_turn if reply.windows else 0
        wanted = (*turns.without(first_turn), *reply.tokens)
        assert held == wanted[: len(held)]
        assert target.last_position(0) == len(held) - 1
        assert all(target.last_position(s) < len(held) for s in range(target.n_seq))
        if not reply.offs:
            # What has failed is told nothing more.
            assert self.pair.drafter.known <= len(held)
            if self.name in ("eagle3", "dflash", "dspark", "dflash2"):
                # Others forget what they drafted only when they next draft.
                assert self.pair.drafter.draft.last_position(0) < self.pair.drafter.known + 8


def check_same_drafts(reply: Reply, fresh: Reply) -> None:
    for one, other in zip(reply.rounds, fresh.rounds, strict=True):
        assert [token.id for token in one.drafted] == [token.id for token in other.drafted]
        shares, wanted = ([token.probability for token in r.drafted] for r in (one, other))
        assert shares == pytest.approx(wanted, abs=0.005)


QUICK = {
    "history": ("llama, eagle3", "qwen35, eagle3", "llama, model"),
    "overflow": ("llama, eagle3", "hy_v3", "llama, dspark"),
}


@pytest.mark.parametrize(
    ("past", "kind", "drafter"),
    [
        pytest.param(past, kind, drafter, marks=() if kind in quick else pytest.mark.slow)
        for past, quick in QUICK.items()
        for kind, made in KINDS.items()
        for drafter in made.drafters[:1]
    ],
)
def test_a_pair_with_a_past_is_as_good_as_new(
    write: Write, past: str, kind: str, drafter: str
) -> None:
    """A target whose context overflows does not look back: its features of a token are the same
    with and without the turns that have left."""
    is_small = past == "overflow"
    files = write(kind, mixed=not is_small)
    run_state_machine_as_test(
        lambda: Chats(files, drafter, SMALL if is_small else 512), settings=STEPS
    )
