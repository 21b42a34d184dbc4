"""Whatever has happened to a pair, it writes and drafts what one that has just been loaded does.

A state machine asks, cancels, turns speculation off and on, lets the draft fail, edits earlier
questions and outgrows the context, and holds every reply against a fresh pair's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from eaglechat.engine.drafters.base import Drafter, common_prefix
from eaglechat.engine.drafters.dflash import DflashDrafter
from eaglechat.engine.drafters.eagle3 import Eagle3Drafter
from eaglechat.engine.drafters.model import ModelDrafter
from eaglechat.engine.drafters.mtp import MtpDrafter
from eaglechat.engine.drafters.pairing import block_of
from eaglechat.engine.live import Live
from eaglechat.engine.llama.objects import Model
from eaglechat.gguf.header import read_header
from eaglechat.wire.protocol import AUTO, Set, Shape, Speculation
from eaglechat.wire.records import FinishReason, Prefill, Round
from tests import tiny, tiny_kinds
from tests.engine.rig import Reply, Rig, drafts_of, open_rig, plainly

SMALL = 192
"""A context that a few turns outgrow."""
STEPS = settings(
    max_examples=6,
    stateful_step_count=9,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

WORDS = st.lists(st.integers(0, 19), min_size=1, max_size=8)
LONG = st.lists(st.integers(0, 19), min_size=40, max_size=70)
LENGTHS = st.sampled_from([0, 1, 3, 8])
SHAPES = st.sampled_from(["chain", "tree"])
REPLIES = st.integers(1, 14)
OFF_AND_ON = st.fixed_dictionaries(
    {
        0: st.sampled_from([Set(enabled=False), Set(n_draft_max=0), Set(n_draft_max=8)]),
        3: st.sampled_from([Set(enabled=True), Set(shape="tree"), Set(enabled=False)]),
    }
)


BROKEN = "the draft failed: RuntimeError: broken; load the pair again to try it again"


class Fragile:
    """A draft model that fails at the call that is asked for, counted from the one that comes
    next."""

    def __init__(self, model: Drafter) -> None:
        self._model = model
        self.calls_left: int | None = None

    def __getattr__(self, name: str) -> Any:
        if name in ("resume", "shift", "see", "take_in", "propose", "accept"):
            if self.calls_left == 0:
                self.calls_left = None
                raise RuntimeError("broken")
            if self.calls_left is not None:
                self.calls_left -= 1
        return getattr(self._model, name)


@dataclass(frozen=True)
class Pair:
    """What the chats are with."""

    models: tuple[Model, Model]
    n_ctx: int = 1024
    make_drafter: Callable[..., Drafter] = Eagle3Drafter
    drafts: Callable[[Reply], Any] | None = drafts_of
    """What of a reply's drafts is as with a fresh pair; None if they may differ."""
    forgets_at_once: bool = True
    """Whether the draft's KV cache never holds more than it should."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of `open_rig`."""

    def opened(self, *, fragile: bool, ngram: bool) -> AbstractContextManager[Rig]:
        def make(*contexts: Any, **options: Any) -> Any:
            drafter = self.make_drafter(*contexts, **options)
            return Fragile(drafter) if fragile else drafter

        return open_rig(
            *self.models,
            n_ctx=self.n_ctx if fragile else 1024,
            n_batch=32,
            make_drafter=make,
            ngram=ngram,
            **self.options,
        )


@dataclass(frozen=True)
class TokenTurns:
    """A conversation of tokens. Turns begin alike, as those of a chat template do."""

    turns: Sequence[Sequence[int]]

    @property
    def count(self) -> int:
        return len(self.turns)

    def without(self, n: int) -> tuple[int, ...]:
        return (tiny.BOS, *(token for turn in self.turns[n:] for token in turn))


class Chats(RuleBasedStateMachine):
    """Chats with one pair."""

    def __init__(self, pair: Pair, *, ngram: bool) -> None:
        super().__init__()
        self.pair, self.ngram = pair, ngram
        self.stack = ExitStack()
        self.turns: list[tuple[int, ...]] = []
        self.load()

    def load(self) -> None:
        self.stack.close()
        self.rig = self.stack.enter_context(self.pair.opened(fragile=True, ngram=self.ngram))

    def live(self, **speculation: Any) -> Live:
        return Live(Speculation(ngram=self.ngram, **speculation), 0.0)

    def teardown(self) -> None:
        self.stack.close()

    @rule(
        words=WORDS | LONG,
        n_draft_max=LENGTHS,
        enabled=st.booleans(),
        max_tokens=REPLIES,
        shape=SHAPES,
    )
    def ask(
        self, words: list[int], n_draft_max: int, enabled: bool, max_tokens: int, shape: Shape
    ) -> None:
        live = self.live(enabled=enabled, n_draft_max=n_draft_max, shape=shape)
        reply = self.reply(words, live, max_tokens=max_tokens)
        assert reply.offs == []
        drafts = self.pair.drafts
        if enabled and drafts is not None and len(reply.windows) < 2:
            fresh = self.fresh(reply, words, live, max_tokens=max_tokens)
            assert drafts(reply) == drafts(fresh)
        self.answered(words, reply)

    @precondition(lambda self: self.turns)
    @rule(n_draft_max=LENGTHS, enabled=st.booleans(), max_tokens=REPLIES, shape=SHAPES)
    def ask_again(self, n_draft_max: int, enabled: bool, max_tokens: int, shape: Shape) -> None:
        self.turns.pop()
        self.ask(self.words, n_draft_max, enabled, max_tokens, shape)

    @rule(words=WORDS)
    def ask_with_auto(self, words: list[int]) -> None:
        reply = self.reply(words, self.live(n_draft_max=AUTO))
        assert reply.offs == []
        self.answered(words, reply)

    @rule(words=WORDS, changes=OFF_AND_ON)
    def change_in_mid_reply(self, words: list[int], changes: dict[int, Set]) -> None:
        live = self.live(n_draft_max=3, shape="tree")
        reply = self.reply(words, live, changes=changes)
        assert reply.offs == []
        self.answered(words, reply)

    @rule(words=WORDS | LONG, enabled=st.booleans(), kind=st.sampled_from([Prefill, Round]))
    def cancel(self, words: list[int], enabled: bool, kind: type) -> None:
        live = self.live(enabled=enabled, n_draft_max=3, shape="tree")
        reply = self.reply(
            words, live, cancel_at=lambda seen: sum(isinstance(event, kind) for event in seen) > 1
        )
        assert reply.end.finish_reason in (FinishReason.CANCELLED, FinishReason.LENGTH)
        if reply.tokens:
            self.answered(words, reply)

    @rule(words=WORDS, calls=st.integers(0, 12))
    def the_draft_fails(self, words: list[int], calls: int) -> None:
        """And is out until the pair is loaded again."""
        live = self.live(n_draft_max=3, shape="tree")
        self.rig.drafter.calls_left = calls
        reply = self.reply(words, live)
        has_failed = self.rig.drafter.calls_left is None
        self.rig.drafter.calls_left = None
        assert [off.reason for off in reply.offs] == ([BROKEN] if has_failed else [])
        self.answered(words, reply)
        if has_failed:
            reply = self.reply(words, live)
            assert [off.reason for off in reply.offs] == [BROKEN]
            assert {round_.drafter for round_ in reply.rounds} <= {"ngram", None}
            self.answered(words, reply)
            self.load()

    @rule(kept=st.integers(0, 3))
    def edit(self, kept: int) -> None:
        """The next question follows an earlier turn."""
        del self.turns[kept:]

    def reply(
        self,
        words: Sequence[int],
        live: Live,
        *,
        max_tokens: int = 12,
        **options: object,
    ) -> Reply:
        """The reply to a question, checked against a fresh pair's."""
        turns = self.conversation(words)
        known = self.known(turns.without(0), live)
        reply = self.rig.reply(
            turns.without(0),
            live=live,
            turns=turns,
            max_tokens=max_tokens,
            boundaries=lambda: [len(turns.without(0)) - len(words)],
            **options,
        )
        check_rounds(reply)
        assert reply.windows or reply.prefills[0].reused >= known - 1
        fresh = self.fresh(reply, words, plainly())
        assert reply.tokens == fresh.tokens[: len(reply.tokens)]
        self.check_caches(reply, turns)
        return reply

    def known(self, prompt: Sequence[int], live: Live) -> int:
        """How many of a prompt's tokens target and drafter know: all but one are not read again."""
        common = common_prefix(self.rig.generator.cached, prompt[:-1])
        if live.speculation.enabled:
            common = min(common, self.rig.drafter.known)
        # A recurrent target goes back to a checkpoint.
        is_all = common == len(self.rig.generator.cached)
        return common if self.rig.target.n_rollback is None or is_all else 0

    def fresh(
        self, reply: Reply, words: Sequence[int], live: Live, *, max_tokens: int = 14
    ) -> Reply:
        """The reply of a pair that has never seen anything else, to what was in the context."""
        first_turn = reply.windows[0].first_turn if reply.windows else 0
        with self.pair.opened(fragile=False, ngram=self.ngram) as rig:
            prompt = self.conversation(words).without(first_turn)
            return rig.reply(prompt, live=live, max_tokens=max_tokens)

    def conversation(self, words: Sequence[int]) -> TokenTurns:
        return TokenTurns([*self.turns, (*START, *words)])

    def answered(self, words: Sequence[int], reply: Reply) -> None:
        self.words = words
        self.turns.append((*START, *words, *reply.tokens))

    def check_caches(self, reply: Reply, turns: TokenTurns) -> None:
        """Target and drafter hold the conversation, and nothing else."""
        held = self.rig.generator.cached
        first_turn = reply.windows[-1].first_turn if reply.windows else 0
        wanted = (*turns.without(first_turn), *reply.tokens)
        assert held == wanted[: len(held)]
        assert self.rig.target.last_position(0) == len(held) - 1
        assert all(
            self.rig.target.last_position(s) < len(held) for s in range(self.rig.target.n_seq)
        )
        if not reply.offs:
            # What has failed is told nothing more.
            assert self.rig.drafter.known <= len(held)
            if self.pair.forgets_at_once:
                assert self.rig.draft.last_position(0) < self.rig.drafter.known + 8


START = tuple(tiny.TOKENS.index(letter) for letter in ("Ġ", "x", "y"))


def check_rounds(reply: Reply) -> None:
    """What holds of all rounds, even if turns have left the context."""
    for round_ in reply.rounds:
        accepted = [round_.drafted[index].id for index in round_.path]
        assert [token.id for token in round_.tokens[: round_.n_accepted]] == accepted
        assert len(round_.tokens) <= len(round_.drafted) + 1


@pytest.fixture(scope="module")
def pairs(
    tmp_path_factory: pytest.TempPathFactory, tiny_models: tuple[Model, Model]
) -> Iterator[dict[str, Pair]]:
    """A target whose context overflows does not look back: its features of a token are the same
    with and without the turns that have left."""
    folder = tmp_path_factory.mktemp("pairs")
    draft = tiny_models[1]
    with ExitStack() as stack:

        def opened(path: Path, **options: Any) -> Model:
            return stack.enter_context(Model(path, **options))

        def of_heads(path: Path, architecture: str, n_heads: int = 1, **values: Any) -> Pair:
            model = opened(path, with_heads=True)
            return Pair(
                (model, model),
                make_drafter=lambda *contexts, **_: MtpDrafter(*contexts, n_heads, architecture),
                forgets_at_once=False,
                options={"n_seq": 1, "runs_heads": True},
                **values,
            )

        def of_blocks(target: Path, variant: tiny_kinds.Variant = "dflash", **values: Any) -> Pair:
            file = tiny_kinds.write_dflash(
                folder / f"{variant}-{target.name}", variant=variant, from_features=True
            )
            block = block_of(read_header(file))
            return Pair(
                (opened(target), opened(file)),
                make_drafter=lambda *contexts, **_: DflashDrafter(*contexts, block),
                options={"n_seq": 1},
                **values,
            )

        def of_model(target: Path, **values: Any) -> Pair:
            draft = tiny_kinds.write_llama(folder / f"for-{target.name}", wrong=0.25)
            return Pair(
                (opened(target), opened(draft)),
                make_drafter=lambda target, draft, **_: ModelDrafter(draft, target.model.n_vocab),
                forgets_at_once=False,
                options={"n_seq": 1},
                **values,
            )

        llama = tiny_kinds.write_llama(folder / "llama.gguf", mix=0.2)
        hybrid = opened(tiny.write_hybrid_target(folder / "hybrid.gguf"))
        shifting = opened(tiny.write_target(folder / "blind.gguf", looks_back=False))
        mixed = {"mix": 0.15, "token_weight": 0.6}
        yield {
            "eagle3, dense": Pair((opened(tiny.write_target(folder / "dense.gguf")), draft)),
            "eagle3, hybrid": Pair((hybrid, draft), drafts=None),
            "eagle3, shifting": Pair((shifting, draft), SMALL),
            "mtp, dense": of_heads(
                tiny_kinds.write_hy_v3(folder / "hy_v3.gguf", **mixed), "hy_v3", drafts=counts
            ),
            "mtp, hybrid": of_heads(
                tiny_kinds.write_qwen35(folder / "qwen35.gguf", **mixed), "qwen35", drafts=counts
            ),
            "mtp, shifting": of_heads(
                tiny_kinds.write_hy_v3(folder / "heads.gguf", wrong=0.25), "hy_v3", n_ctx=SMALL
            ),
            "two heads, dense": of_heads(
                tiny_kinds.write_hy_v3(folder / "two.gguf", heads=2, **mixed),
                "hy_v3",
                n_heads=2,
                drafts=counts,
            ),
            "dflash, dense": of_blocks(llama, drafts=counts),
            "dspark, dense": of_blocks(llama, "dspark", drafts=counts),
            "dflash2, dense": of_blocks(llama, "dflash2", drafts=counts),
            "model, dense": of_model(llama, drafts=counts),
            "model, shifting": of_model(tiny_kinds.write_llama(folder / "same.gguf"), n_ctx=SMALL),
            "dflash, shifting": of_blocks(
                tiny_kinds.write_llama(folder / "cycle.gguf"), n_ctx=SMALL
            ),
        }


def counts(reply: Reply) -> list[int]:
    """Tokens accepted in each round."""
    return [round_.n_accepted for round_ in reply.rounds]


@pytest.mark.parametrize(
    "ngram",
    [pytest.param(False, id="alone", marks=pytest.mark.slow), pytest.param(True, id="both")],
)
@pytest.mark.parametrize(
    "name",
    [
        "eagle3, dense",
        "mtp, hybrid",
        "dflash, shifting",
        "model, shifting",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                *("eagle3, hybrid", "eagle3, shifting", "mtp, dense", "mtp, shifting"),
                *("two heads, dense", "dflash, dense", "dspark, dense", "dflash2, dense"),
                *("model, dense",),
            )
        ),
    ],
)
def test_a_pair_with_a_past_is_as_good_as_new(
    pairs: dict[str, Pair], *, ngram: bool, name: str
) -> None:
    run_state_machine_as_test(lambda: Chats(pairs[name], ngram=ngram), settings=STEPS)
