"""`Eagle3Session`, the library's face: its checks, its counts, and several sequences at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from eaglechat.engine.drafters.base import ProcessError
from eaglechat.engine.drafters.eagle3 import Eagle3Drafter, norms_of
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.eagle3_session import (
    BadSeqIdError,
    Eagle3Session,
    Eagle3SessionConfig,
    InitError,
    InvalidConfigError,
)
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.gguf.header import read_header
from eaglechat.gguf.preflight import NORM_OUTPUT
from tests import tiny
from tests.engine.drafters.by_hand import Driver, Models, by_hand, prompt_of, verified
from tests.engine.rig import decode, open_contexts

PROMPTS = (
    "Write a quicksort algorithm in Python. Write code only.",
    "Plan a 1 day trip to DC, with museums.",
)


@dataclass
class Conversation:
    """Drives one sequence of a session, greedily."""

    session: Eagle3Session
    target: Context
    batch: Batch
    seq_id: int = 0
    n_past: int = 0
    id_last: int = 0

    def prefill(self, prompt: Sequence[int]) -> None:
        decode(self.target, self.batch, prompt[:-1], 0, seq_id=self.seq_id, output=False)
        self.session.process(self.batch)
        self.session.begin(self.seq_id, prompt[:-1])
        self.n_past, self.id_last = len(prompt) - 1, prompt[-1]

    def round(self) -> tuple[list[int], int]:
        """The tokens drafted in a round, and how many of them the target accepted."""
        drafted = self.session.draft(self.seq_id, self.n_past, self.id_last)
        decode(self.target, self.batch, [self.id_last, *drafted], self.n_past, seq_id=self.seq_id)
        self.session.process(self.batch)
        n_accepted, self.id_last = verified(self.target, drafted)
        self.session.accept(self.seq_id, n_accepted)
        self.n_past += 1 + n_accepted
        self.target.forget(self.seq_id, self.n_past)
        return drafted, n_accepted


@contextmanager
def conversations(models: Models, n_seq: int = 1) -> Iterator[list[Conversation]]:
    """One for each sequence of a session."""
    config = Eagle3SessionConfig(n_seq, n_draft_max=3)
    with (
        open_contexts(*models, n_ctx=512, n_seq=n_seq) as contexts,
        Batch(contexts[0]) as batch,
        closing(Eagle3Session(*contexts, config)) as session,
    ):
        yield [Conversation(session, contexts[0], batch, seq_id) for seq_id in range(n_seq)]


@pytest.fixture
def one(tiny_models: Models) -> Iterator[Conversation]:
    """A conversation that has been read."""
    with conversations(tiny_models) as (conversation,):
        conversation.prefill(prompt_of(tiny_models[0]))
        yield conversation


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_seq": 0}, "n_seq must be 1 to 256, got 0"),
        ({"n_draft_max": -1}, "n_draft_max must be 0 to 16, got -1"),
        ({"n_draft_max": 99}, "0 to 16, got 99"),
        ({"n_min": -1}, "n_min must be 0 to 16, got -1"),
        ({"p_min": 1.01}, "p_min must be 0 to 1, got 1.01"),
        ({"p_min": float("nan")}, "p_min must be 0 to 1, got nan"),
    ],
)
def test_a_parameter_out_of_range_is_named(change: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        Eagle3SessionConfig(**{"n_seq": 1, "n_draft_max": 3, **change})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (None, "draft.gguf is no EAGLE-3 draft"),
        ({"layers": (1, 2, 5)}, "the input of layer 5 of its target, .* layers 0 to 3"),
    ],
)
def test_contexts_that_make_no_pair_are_refused_as_a_load_refuses_them(
    tiny_models: Models,
    tmp_path: Path,
    options: dict[str, Any] | None,
    message: str,
) -> None:
    path = tmp_path / "draft.gguf"
    if options is None:
        tiny.write_target(path)
    else:
        tiny.write_draft(path, **options)
    with (
        Model(path) as draft,
        open_contexts(tiny_models[0], draft, n_seq=1) as contexts,
        pytest.raises(InitError, match=message),
    ):
        Eagle3Session(*contexts, Eagle3SessionConfig(1, 3))


def test_contexts_with_too_few_sequences_are_refused(tiny_models: Models) -> None:
    with (
        open_contexts(*tiny_models, n_seq=1) as contexts,
        pytest.raises(InitError, match="wants 2 sequences, the contexts have 1"),
    ):
        Eagle3Session(*contexts, Eagle3SessionConfig(n_seq=2, n_draft_max=3))


def test_the_norms_of_a_draft_are_those_that_the_loop_reads(
    tiny_models: Models, tmp_path: Path
) -> None:
    path = tiny.write_draft(tmp_path / "draft.gguf", flags=[NORM_OUTPUT])
    prompt = prompt_of(tiny_models[0], "the cat sat on the mat " + "and the dog " * 12)
    with Model(path) as draft:
        models, norms = (tiny_models[0], draft), norms_of(read_header(path))
        with by_hand(models, norms=norms) as driver, conversations(models) as (one,):
            driver.prefill(prompt)
            one.prefill(prompt)
            assert [one.round() for _ in range(12)] == [driver.round() for _ in range(12)]


def test_the_lengths_may_be_set_between_rounds(one: Conversation) -> None:
    for most, least, length in ((0, 0, 0), (5, 0, 5), (5, 6, 0)):
        one.session.config = replace(one.session.config, n_draft_max=most, n_min=least)
        assert len(one.round()[0]) == length


@pytest.mark.parametrize("seq_id", [-1, 1])
def test_a_sequence_out_of_range_is_named_by_every_call(one: Conversation, seq_id: int) -> None:
    session = one.session
    one.batch.seq_ids[:] = [seq_id] * len(one.batch)
    calls: list[Callable[[], object]] = [
        lambda: session.process(one.batch),
        lambda: session.begin(seq_id, [1]),
        lambda: session.draft(seq_id, 1, 1),
        lambda: session.accept(seq_id, 0),
    ]
    for call in calls:
        with pytest.raises(BadSeqIdError, match=f"no sequence {seq_id} of"):
            call()


def test_a_prompt_that_was_not_processed_is_noticed(one: Conversation) -> None:
    with pytest.raises(ProcessError, match=f"seen {one.n_past} of the prompt's 99"):
        one.session.begin(0, [1] * 99)


def test_no_more_than_was_drafted_can_be_accepted(one: Conversation) -> None:
    drafted = one.session.draft(0, one.n_past, one.id_last)
    decode(one.target, one.batch, [one.id_last, *drafted], one.n_past)
    one.session.process(one.batch)

    for n_accepted in (-1, len(drafted) + 1):
        with pytest.raises(ProcessError, match=f"{n_accepted} accepted of a draft of 3"):
            one.session.accept(0, n_accepted)


def test_what_another_drafter_proposed_can_be_accepted(one: Conversation) -> None:
    decode(one.target, one.batch, [one.id_last, 1, 2, 3], one.n_past)
    one.session.process(one.batch)
    one.session.accept(0, 2)

    one.session.begin(0, [1] * (one.n_past + 3))
    stats = one.session.stats
    assert (stats.drafted, stats.tested, stats.accepted, stats.tokens) == (3, 3, 2, 3)


def test_a_sequence_begins_another_conversation(one: Conversation) -> None:
    prompt = prompt_of(one.target.model, "the dog sat on the mat and the cat")
    drafted = []
    for _ in range(2):
        one.target.forget(0, 0)
        one.session.begin(0, [])
        one.prefill(prompt)
        drafted.append([one.round() for _ in range(6)])
    assert drafted[0] == drafted[1]
    assert sum(n_accepted for _, n_accepted in drafted[0]) > 0


def test_stats_count_what_happened(one: Conversation) -> None:
    rounds = [one.round() for _ in range(40)]

    stats = one.session.stats
    accepted = [n_accepted for _, n_accepted in rounds]
    assert sum(accepted) > 0
    assert (stats.rounds, stats.verify_steps) == (40, 40)
    assert stats.drafted == sum(len(drafted) for drafted, _ in rounds)
    assert stats.accepted == sum(accepted)
    assert stats.accepted_at == tuple(sum(n > i for n in accepted) for i in range(3))
    assert stats.tested_at == tuple(sum(n + 1 > i for n in accepted) for i in range(3))


def test_two_interleaved_sequences_draft_as_each_alone(tiny_models: Models) -> None:
    prompts = [prompt_of(tiny_models[0], text) for text in PROMPTS]
    alone = []
    for prompt in prompts:
        with conversations(tiny_models) as (one,):
            one.prefill(prompt)
            alone.append([one.round() for _ in range(12)])
    assert sum(n_accepted for rounds in alone for _, n_accepted in rounds) > 4

    together: list[list[tuple[list[int], int]]] = [[], []]
    with conversations(tiny_models, n_seq=2) as both:
        for one, prompt in zip(both, prompts, strict=True):
            one.prefill(prompt)
        for _ in range(12):
            for rounds, one in zip(together, both, strict=True):
                rounds.append(one.round())

    assert together == alone


# --- the drafter below ---


def test_closing_again_or_after_the_target_is_harmless_and_use_after_it_an_error(
    tiny_models: Models,
) -> None:
    with open_contexts(*tiny_models) as (target, draft), Batch(target) as batch:
        drafter = Eagle3Drafter(target, draft)
        driver = Driver(target, draft, drafter, batch, Limits(3))
        driver.prefill(prompt_of(target.model))
        drafter.close()
        drafter.close()
        with pytest.raises(RuntimeError, match="closed"):
            driver.propose()
        draft.close()
        target.close()
        drafter.close()


def test_encoder_time_is_counted_once(tiny_models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that stands still but for the encoder, which takes a second."""
    with by_hand(tiny_models, n_batch_draft=32) as driver:
        encodes: list[int] = []
        encode = driver.draft.encode
        monkeypatch.setattr(
            driver.draft, "encode", lambda batch: encodes.append(len(batch)) or encode(batch)
        )
        monkeypatch.setattr(time, "perf_counter", lambda: float(len(encodes)))
        driver.prefill(prompt_of(driver.target.model, "the quick brown fox " * 12))
        driver.round()
        driver.round()

    assert len(encodes) > 2
    assert driver.drafter.process_ms == len(encodes) * 1000.0
