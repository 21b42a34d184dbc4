"""DFlash, DSpark and DFlash2 on tiny models whose acceptance is known by construction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eaglechat.engine.drafters import pairing
from eaglechat.engine.drafters.base import Limits, Opening
from eaglechat.engine.drafters.dflash import DflashDrafter, open_drafter
from eaglechat.engine.live import Live
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.engine.loop import Generator
from eaglechat.gguf.header import read_header
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import Speculation
from eaglechat.wire.records import KvType, Round
from tests import tiny_kinds
from tests.engine.drafters.by_hand import Driver
from tests.engine.rig import GREEDY, N_THREADS, Reply, drafts_of
from tests.tiny_kinds import F, accepted, repaired_tokens, wrong_tokens

VARIANTS: tuple[tiny_kinds.Variant, ...] = ("dflash", "dspark", "dspark-bonus", "dflash2")
NAMES = {"dspark-bonus": "dspark"}
MIX = {"llama": 0.3, "qwen35": 0.25}
RANDOM = np.random.default_rng(226).integers(0, tiny_kinds.N, 400).tolist()
LENGTH = 16
"""Regular tokens, and the length of a reply to some of them. With these, the likeliest token is
always ahead by 0.03 or more, ten times what another batch or another CPU changes in a logit."""


def cycle(length: int, first: int = 0) -> list[int]:
    """Tokens in the order that a target without `mix` has."""
    tokens = [first]
    while len(tokens) < length:
        tokens.append(F[tokens[-1]])
    return tokens


@pytest.fixture(scope="module", autouse=True)
def _backend() -> None:
    backend.start_backend(backend.LOG_ERRORS)


@dataclass(frozen=True)
class Pair:
    """A target, its block drafter and the loop over them; closed by `opened`."""

    target: Context
    draft: Context
    drafter: DflashDrafter
    block: pairing.Block
    generator: Generator

    def reply(
        self, prompt: Sequence[int], *, n: int = 16, length: int = 40, **options: Any
    ) -> Reply:
        p_min, changes = options.pop("p_min", 0.0), options.pop("changes", {})
        live = Live(Speculation(n_draft_max=n, p_min=p_min), 0.0)
        events = []
        for event in self.generator.reply(
            prompt, GREEDY, live, seed=1, max_tokens=length, **options
        ):
            events.append(event)
            if isinstance(event, Round) and event.index in changes:
                live.apply(changes[event.index])
        return Reply(tuple(events))

    def driver(self, batch: Batch, n_max: int = 7) -> Driver:
        return Driver(self.target, self.draft, self.drafter, batch, Limits(n_max))


@dataclass(frozen=True)
class Files:
    target: Path
    draft: Path


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes a target and a block drafter; options are those of `write_dflash`."""

    def written(
        variant: tiny_kinds.Variant, *, target: str = "llama", mix: float = 0.0, **options: Any
    ) -> Files:
        make = getattr(tiny_kinds, f"write_{target}")
        return Files(
            make(tmp_path / "target.gguf", mix=mix),
            tiny_kinds.write_dflash(tmp_path / "draft.gguf", variant=variant, **options),
        )

    return written


@contextmanager
def opened(
    files: Files,
    *,
    n_ctx: int = 512,
    n_batch: int = 128,
    n_ubatch: int = 64,
    n_ubatch_target: int = 128,
    **block: Any,
) -> Iterator[Pair]:
    """`block` replaces what the draft's header says of its block."""
    target_header, draft_header = read_header(files.target), read_header(files.draft)
    pairing.check_headers(target_header, draft_header)
    the_block = replace(pairing.block_of(draft_header), **block)
    with ExitStack() as stack:
        models = [stack.enter_context(Model(path)) for path in (files.target, files.draft)]
        sizes = {"n_ctx": n_ctx, "n_batch": n_batch, "n_threads": N_THREADS}
        target = stack.enter_context(
            Context(models[0], **sizes, n_ubatch=n_ubatch_target, n_rollback=8)
        )
        draft = stack.enter_context(Context(models[1], **sizes, n_ubatch=n_ubatch, other=target))
        drafter = stack.enter_context(closing(DflashDrafter(target, draft, the_block)))
        generator = stack.enter_context(closing(Generator(target, [drafter])))
        yield Pair(target, draft, drafter, the_block, generator)


def probabilities(reply: Reply) -> list[list[float]]:
    return [[token.probability for token in round_.drafted] for round_ in reply.rounds]


# --- what is drafted ---


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("from_features", [False, True])
@pytest.mark.parametrize("wrong", [0.0, 0.25])
def test_a_round_accepts_what_the_weights_say(
    write: Any, variant: tiny_kinds.Variant, *, from_features: bool, wrong: float
) -> None:
    files = write(variant, wrong=wrong, from_features=from_features)
    wrong_after = set(wrong_tokens(wrong))
    if variant != "dflash":
        wrong_after -= repaired_tokens(wrong)
    prompt = cycle(20)
    with opened(files) as pair:
        reply = pair.reply(prompt, length=60)
        assert pair.drafter.name == NAMES.get(variant, variant)

    assert reply.offs == []
    assert reply.tokens == cycle(80)[20:]
    id_last = prompt[-1]
    for round_ in reply.rounds:
        n = len(round_.drafted)
        assert round_.n_accepted == accepted(id_last, n, wrong_after)
        assert {token.drafter for token in round_.drafted} <= {NAMES.get(variant, variant)}
        id_last = round_.tokens[-1].id
    assert max(len(round_.drafted) for round_ in reply.rounds) == pair.drafter.longest
    assert all(0 < p <= 1 for of_round in probabilities(reply) for p in of_round)


# --- how long a block is ---


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("block_size", "n_ubatch"), [(4, 64), (8, 64), (8, 5)])
def test_no_block_is_longer_than_trained_or_than_a_ubatch(
    write: Any,
    monkeypatch: pytest.MonkeyPatch,
    variant: tiny_kinds.Variant,
    block_size: int,
    n_ubatch: int,
) -> None:
    """The features come in pieces of a ubatch too."""
    files = write(variant, block_size=block_size, from_features=True)
    longest = min(block_size, n_ubatch) - (variant != "dspark")
    first = 9 - block_size
    with opened(files, n_ubatch=n_ubatch) as pair, Batch(pair.target) as batch:
        assert pair.drafter.longest == longest
        blocks: list[int] = []
        run = pair.draft.decode
        monkeypatch.setattr(
            pair.draft, "decode", lambda batch: blocks.append(len(batch)) or run(batch)
        )
        driver = pair.driver(batch)
        driver.prefill(cycle(40, first))
        for n_max in (16, 1, 3, 0):
            driver.limits = Limits(n_max)
            drafted, n_accepted = driver.round()
            assert len(drafted) == n_accepted == min(n_max, longest)
        assert max(blocks) <= n_ubatch


def test_a_draft_length_that_the_block_lacks_is_not_drafted(write: Any) -> None:
    with opened(write("dflash2", block_size=4)) as pair:
        reply = pair.reply(cycle(20), n=16)
    assert [len(round_.drafted) for round_ in reply.rounds[:3]] == [3, 3, 3]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_target_may_decode_in_small_pieces(write: Any, variant: tiny_kinds.Variant) -> None:
    files = write(variant, mix=MIX["llama"], from_features=True)

    def drafts(n_ubatch: int) -> Reply:
        with opened(files, n_ubatch_target=n_ubatch) as pair:
            return pair.reply(RANDOM[:60], length=LENGTH)

    small, large = drafts(4), drafts(128)
    assert small.offs == []
    assert small.tokens == large.tokens
    assert drafts_of(small) == drafts_of(large)


# --- probabilities ---


@pytest.mark.parametrize("variant", ["dspark", "dspark-bonus"])
def test_dspark_s_confidence_cuts_what_would_be_rejected(
    write: Any, variant: tiny_kinds.Variant
) -> None:
    files = write(variant, wrong=0.25)

    def counts(p_min: float) -> tuple[int, int]:
        with opened(files) as pair:
            rounds = pair.reply(cycle(20), length=60, p_min=p_min).rounds
        return sum(len(one.drafted) for one in rounds), sum(one.n_accepted for one in rounds)

    drafted, n_accepted = counts(0.5)
    assert drafted == n_accepted > 20
    drafted, n_accepted = counts(0.0)
    assert drafted > n_accepted > 20


def test_without_a_confidence_head_a_token_has_its_share_among_the_likeliest(write: Any) -> None:
    files = write("dspark", wrong=0.25)
    with opened(files, has_confidence=False) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch, 8)
        driver.prefill(cycle(20))
        shares = driver.propose()
    with opened(files) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch, 8)
        driver.prefill(cycle(20))
        confidences = driver.propose()

    assert shares.ids == confidences.ids
    assert {round(p, 3) for p in confidences.probabilities} <= {0.0, 1.0}
    assert shares.probabilities[0] > shares.probabilities[2] > 0.1


@pytest.mark.parametrize("variant", ["dflash", "dflash2"])
def test_p_min_ends_a_draft_before_the_first_token_below_it(
    write: Any, variant: tiny_kinds.Variant
) -> None:
    with opened(write(variant)) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch)
        driver.prefill(cycle(20))
        free = driver.propose().probabilities
        driver.limits = Limits(7, p_min=0.5)
        cut = driver.propose().probabilities

    assert free == sorted(free, reverse=True)
    assert 0 < len(cut) < len(free) == 7
    assert cut == pytest.approx([p for p in free if p >= 0.5])


@pytest.mark.parametrize("causal", [None, True, False])
def test_a_row_sees_the_whole_block_unless_the_header_says_causal(
    write: Any, *, causal: bool | None
) -> None:
    files = write("dflash", blur=True, causal=causal)

    def likelihood_of_first(n_max: int) -> float:
        with opened(files) as pair, Batch(pair.target) as batch:
            driver = pair.driver(batch, n_max)
            driver.prefill(cycle(20))
            return driver.propose().probabilities[0]

    alone, of_seven = likelihood_of_first(1), likelihood_of_first(7)
    assert (abs(alone - of_seven) < 1e-6) is bool(causal)


def test_a_draft_with_positions_of_several_numbers_drafts(write: Any) -> None:
    """Its KV cache cannot shift."""
    with opened(write("dflash", from_features=True, mrope=True)) as pair:
        reply = pair.reply(cycle(20))
        assert not pair.draft.can_shift
        pair.drafter.shift(5, 9)
        assert pair.drafter.known == 5
    assert all(len(one.drafted) == one.n_accepted for one in reply.rounds)


def test_no_more_rows_wait_than_a_batch_has(write: Any) -> None:
    with opened(write("dflash", from_features=True)) as pair:
        reply = pair.reply(cycle(300), n=0, length=2)
        assert pair.drafter.waiting <= 128
        assert pair.drafter.known == 301
        assert len(pair.reply([*cycle(300), *reply.tokens]).rounds) < 10


def test_another_drafter_of_the_same_contexts_begins_anew(write: Any) -> None:
    with opened(write("dflash2", from_features=True)) as pair, Batch(pair.target) as batch:
        driver = pair.driver(batch)
        driver.prefill(RANDOM[:30])
        driver.round()
        pair.drafter.close()
        pair.drafter.close()
        pair.target.forget(0, 0)
        with closing(DflashDrafter(pair.target, pair.draft, pair.block)) as again:
            driver = Driver(pair.target, pair.draft, again, batch, Limits(7))
            driver.prefill(cycle(30))
            assert driver.round()[1] == 7


@pytest.mark.parametrize("draft_kv_type", ["f16", "q8_0"])
def test_it_is_opened_for_a_target(write: Any, draft_kv_type: KvType) -> None:
    files = write("dspark-bonus", from_features=True)
    options = LoadOptions(n_batch=64, draft_kv_type=draft_kv_type)
    with ExitStack() as owned:
        models = [owned.enter_context(Model(path)) for path in (files.target, files.draft)]
        target = owned.enter_context(
            Context(models[0], n_ctx=256, n_batch=64, n_threads=N_THREADS, n_seq=16)
        )
        opening = Opening(owned, target, models[1], read_header(files.draft), options, N_THREADS)
        drafter = open_drafter(opening)
        assert (drafter.name, drafter.longest, drafter.grows_trees) == ("dspark", 7, False)
        generator = owned.enter_context(closing(Generator(target, [drafter])))
        live = Live(Speculation(n_draft_max=7), 0.0)
        reply = Reply(tuple(generator.reply(cycle(30), GREEDY, live, seed=1, max_tokens=24)))
    assert reply.tokens == cycle(54)[30:]
    assert [one.n_accepted for one in reply.rounds] == [7, 7, 7]
