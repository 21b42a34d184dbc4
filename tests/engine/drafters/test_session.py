from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from eaglechat.engine.drafters.eagle3.session import Eagle3Session
from eaglechat.engine.drafters.eagle3.session_config import Eagle3SessionConfig
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.wire.errors import (
    BadSeqIdError,
    Eagle3SessionError,
    InitError,
    InvalidConfigError,
    ProcessError,
)
from tests import tiny
from tests.engine.drafters.session_rig import Bench, Driver, Models, bench, prompt_of
from tests.engine.rig import N_THREADS, decode, open_contexts

PROMPTS = (
    "Write a quicksort algorithm in Python. Write code only.",
    "Plan a 1 day trip to DC, with museums.",
)


@pytest.fixture
def tiny_bench(tiny_models: Models) -> Iterator[Bench]:
    with bench(tiny_models) as here:
        yield here


# --- configuration ---


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_seq": 0}, "n_seq must be at least 1, got 0"),
        ({"n_draft_max": 0}, "at least 1, got 0"),
        ({"n_draft_max": -1}, "at least 1, got -1"),
        ({"n_draft_max": 99}, "0 to 16, got 99"),
        ({"n_min": -1}, "n_min must be 0 to 16, got -1"),
        ({"p_min": 1.01}, "p_min must be 0 to 1, got 1.01"),
        ({"p_min": float("nan")}, "p_min must be 0 to 1, got nan"),
    ],
)
def test_a_parameter_out_of_range_is_named(change: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        Eagle3SessionConfig(**{"n_seq": 1, "n_draft_max": 3, **change})


@pytest.mark.parametrize("value", [-1, 17, 99])
def test_n_draft_max_is_checked_when_it_is_set(tiny_bench: Bench, value: int) -> None:
    with pytest.raises(InvalidConfigError, match=f"0 to 16, got {value}"):
        tiny_bench.session.n_draft_max = value

    assert tiny_bench.session.n_draft_max == 3


def test_every_error_is_a_session_error() -> None:
    for kind in (InitError, ProcessError, BadSeqIdError, InvalidConfigError):
        assert issubclass(kind, Eagle3SessionError)


# --- the two contexts ---


@pytest.fixture
def model_of(tmp_path: Path, tiny_models: Models) -> Iterator[Callable[[Path], Model]]:
    opened: list[Model] = []

    def open_model(path: Path) -> Model:
        opened.append(Model(path))
        return opened[-1]

    yield open_model
    for model in opened:
        model.close()


def refusal(target: Model, draft: Model, *, n_seq: int = 1, n_seq_made: int = 1) -> str:
    config = Eagle3SessionConfig(n_seq=n_seq, n_draft_max=3)
    with (
        Context(target, n_ctx=256, n_batch=64, n_threads=N_THREADS, n_seq=n_seq_made) as one,
        Context(
            draft, n_ctx=256, n_batch=64, n_threads=N_THREADS, n_seq=n_seq_made, other=one
        ) as other,
        pytest.raises(InitError) as error,
    ):
        Eagle3Session(one, other, config)
    return str(error.value)


def test_contexts_that_make_no_pair_are_refused_with_both_values(
    tiny_models: Models, model_of: Callable[[Path], Model], tmp_path: Path
) -> None:
    target, draft = tiny_models
    for_64 = model_of(tiny.write_draft(tmp_path / "64.gguf", target_hidden_size=64))
    deep = model_of(tiny.write_draft(tmp_path / "deep.gguf", layers=(1, 2, 5)))

    assert "not eagle3" in refusal(target, target)
    assert "hidden size 64, the target has 32" in refusal(target, for_64)
    assert "reads layer 5, the target has 4 layers" in refusal(target, deep)
    assert "wants 2 sequences, the target context was made for 1" in refusal(target, draft, n_seq=2)


def test_a_draft_with_another_vocabulary_is_refused(
    tiny_models: Models,
    model_of: Callable[[Path], Model],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiny, "TOKENS", [*tiny.TOKENS, "zz"])
    wide = model_of(tiny.write_draft(tmp_path / "wide.gguf", shared=False))

    assert "a vocabulary of 33 tokens, the target one of 32" in refusal(tiny_models[0], wide)


# --- the life cycle ---


@pytest.mark.parametrize("seq_id", [-1, 1, 99])
def test_a_sequence_out_of_range_is_named_by_every_call(tiny_bench: Bench, seq_id: int) -> None:
    session = tiny_bench.session
    calls: list[Callable[[], object]] = [
        lambda: session.begin(seq_id, [1]),
        lambda: session.draft(seq_id, 1, 1),
        lambda: session.accept(seq_id, 0),
        lambda: session.probabilities(seq_id),
        lambda: session.rewind(seq_id, 0),
        lambda: session.known_length(seq_id),
    ]

    for call in calls:
        with pytest.raises(BadSeqIdError, match=f"sequence {seq_id} is out of range"):
            call()


def test_a_batch_of_a_sequence_the_session_does_not_have_is_refused(tiny_models: Models) -> None:
    config = Eagle3SessionConfig(n_seq=1, n_draft_max=3)
    with (
        open_contexts(*tiny_models, n_seq=2) as (target, draft),
        Batch(target) as batch,
        Eagle3Session(target, draft, config) as session,
    ):
        decode(target, batch, [1, 2], 0, seq_id=1)

        with pytest.raises(BadSeqIdError, match="sequence 1 is out of range"):
            session.process(batch)


def test_a_decode_that_was_not_processed_is_noticed(tiny_bench: Bench) -> None:
    target, session, batch = tiny_bench.target, tiny_bench.session, tiny_bench.batch
    prompt = prompt_of(target.model)
    decode(target, batch, prompt[:4], 0)
    session.process(batch)
    decode(target, batch, prompt[4:8], 4)

    with pytest.raises(ProcessError, match="saw 4 positions of a prompt of 8"):
        session.begin(0, prompt[:8])
    with pytest.raises(ProcessError, match=r"saw 4 positions .* needs 8"):
        session.draft(0, 8, prompt[8])
    decode(target, batch, prompt[8:10], 8)
    with pytest.raises(ProcessError, match=r"saw 4 positions .* goes on at 8"):
        session.process(batch)


def test_no_more_than_was_drafted_can_be_accepted(tiny_bench: Bench) -> None:
    driver = tiny_bench.driver()
    driver.prefill(prompt_of(tiny_bench.target.model))
    drafted = tiny_bench.session.draft(0, driver.n_past, driver.id_last)
    decode(tiny_bench.target, tiny_bench.batch, [driver.id_last, *drafted], driver.n_past)
    tiny_bench.session.process(tiny_bench.batch)

    for n_accepted in (-1, len(drafted) + 1):
        with pytest.raises(ProcessError, match=f"{n_accepted} accepted of a draft of 3"):
            tiny_bench.session.accept(0, n_accepted)


def test_what_another_drafter_proposed_can_be_accepted_and_is_not_counted(
    tiny_bench: Bench,
) -> None:
    driver = tiny_bench.driver()
    driver.prefill(prompt_of(tiny_bench.target.model))
    decode(tiny_bench.target, tiny_bench.batch, [driver.id_last, 1, 2, 3], driver.n_past)
    tiny_bench.session.process(tiny_bench.batch)
    tiny_bench.session.accept(0, 2)

    assert tiny_bench.session.known_length(0) == driver.n_past + 3
    assert tiny_bench.session.stats().n_accepted == 0


def test_n_draft_max_changes_between_rounds_and_0_keeps_the_draft_in_step(
    tiny_models: Models,
) -> None:
    with bench(tiny_models) as here:
        driver = here.driver()
        driver.prefill(prompt_of(here.target.model))
        lengths = []
        for n_draft_max in (3, 1, 0, 0, 16, 2):
            here.session.n_draft_max = n_draft_max
            lengths.append(len(driver.round()[0]))
        assert lengths == [3, 1, 0, 0, 16, 2]
        interrupted = driver.session.draft(0, driver.n_past, driver.id_last)
        history = driver.n_past, driver.id_last

    with bench(tiny_models) as here:
        driver = here.driver()
        driver.prefill(prompt_of(here.target.model))
        here.session.n_draft_max = 2
        while driver.n_past < history[0]:
            here.session.n_draft_max = min(2, history[0] - driver.n_past - 1)
            driver.round()
        here.session.n_draft_max = 2
        assert (driver.n_past, driver.id_last) == history
        assert driver.session.draft(0, driver.n_past, driver.id_last) == interrupted


def test_p_min_ends_a_draft_before_the_first_token_below_it(tiny_models: Models) -> None:
    with bench(tiny_models, n_draft_max=16) as here:
        driver = here.driver()
        driver.prefill(prompt_of(here.target.model))
        here.session.draft(0, driver.n_past, driver.id_last)
        free = here.session.probabilities(0)
    p_min = sorted(free)[8]
    first_below = next(i for i, p in enumerate(free) if p < p_min)

    with bench(tiny_models, n_draft_max=16, p_min=p_min) as here:
        driver = here.driver()
        driver.prefill(prompt_of(here.target.model))
        drafted = here.session.draft(0, driver.n_past, driver.id_last)
        assert len(drafted) == first_below
        assert here.session.probabilities(0) == pytest.approx(free[:first_below])
        assert all(0 < p <= 1 for p in free)

    with bench(tiny_models, n_draft_max=16, p_min=p_min, n_min=first_below + 1) as here:
        driver = here.driver()
        driver.prefill(prompt_of(here.target.model))
        assert here.session.draft(0, driver.n_past, driver.id_last) == []
        assert here.session.probabilities(0) == []


def test_the_probability_is_the_draft_s_softmax_over_its_top_ten(
    tiny_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tiny_bench.driver()
    driver.prefill(prompt_of(tiny_bench.target.model))
    seen = []
    # Whole graphs, which leave the logits where they are looked at here.
    monkeypatch.setattr(tiny_bench.draft.head, "is_last", False)
    monkeypatch.setattr(tiny_bench.session._likeliest, "_head", None)
    logits_of = tiny_bench.draft.logits
    monkeypatch.setattr(
        tiny_bench.draft, "logits", lambda row: seen.append(np.array(logits_of(row))) or seen[-1]
    )

    drafted = tiny_bench.session.draft(0, driver.n_past, driver.id_last)

    assert len(drafted) == len(seen) == 3
    for logits, token, probability in zip(
        seen, drafted, tiny_bench.session.probabilities(0), strict=True
    ):
        top = np.exp(np.sort(logits)[::-1][:10] - logits.max())
        assert token == logits.argmax()
        assert token in tiny.DRAFT_VOCABULARY
        assert probability == pytest.approx(1 / top.sum())


def test_stats_count_what_happened(tiny_bench: Bench) -> None:
    driver = tiny_bench.driver()
    driver.prefill(prompt_of(tiny_bench.target.model))

    rounds = [driver.round() for _ in range(40)]

    stats = tiny_bench.session.stats()
    accepted = [n_accepted for _, n_accepted in rounds]
    assert sum(accepted) > 0
    assert stats.n_drafts == 40
    assert stats.n_drafted == sum(len(drafted) for drafted, _ in rounds)
    assert stats.n_accepted == sum(accepted)
    assert stats.n_drafts_accepted == sum(n > 0 for n in accepted)
    assert stats.accepted_at[:3] == tuple(sum(n > i for n in accepted) for i in range(3))
    assert stats.draft_ms > 0
    assert stats.process_ms > 0


def test_needs_are_those_of_layers_before_the_last(tiny_bench: Bench) -> None:
    assert tiny_bench.session.need_embd is False
    assert tiny_bench.session.need_embd_pre_norm is False


def test_closing_again_or_after_the_target_is_harmless_and_use_after_it_an_error(
    tiny_models: Models,
) -> None:
    config = Eagle3SessionConfig(n_seq=1, n_draft_max=3)
    with open_contexts(*tiny_models) as (target, draft), Batch(target) as batch:
        session = Eagle3Session(target, draft, config)
        driver = Driver(target, session, batch, 0)
        driver.prefill(prompt_of(target.model))
        session.close()
        session.close()
        with pytest.raises((Eagle3SessionError, RuntimeError), match="closed"):
            session.draft(0, driver.n_past, driver.id_last)
        draft.close()
        target.close()
        session.close()


def test_a_broken_draft_says_so_instead_of_drafting_nonsense(
    tiny_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tiny_bench.driver()
    driver.prefill(prompt_of(tiny_bench.target.model))
    n_vocab = len(tiny.TOKENS)
    monkeypatch.setattr(
        tiny_bench.draft, "logits", lambda _row: np.full(n_vocab, np.nan, dtype=np.float32)
    )

    with pytest.raises(ProcessError, match="no finite"):
        tiny_bench.session.draft(0, driver.n_past, driver.id_last)


def test_encoder_time_is_counted_once(tiny_models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that stands still but for the encoder, which takes a second."""
    with bench(tiny_models, n_batch_draft=32) as here:
        encodes = []
        encode = here.draft.encode
        monkeypatch.setattr(
            here.draft, "encode", lambda batch: encodes.append(len(batch)) or encode(batch)
        )
        monkeypatch.setattr(
            "eaglechat.engine.drafters.eagle3.session.time.perf_counter",
            lambda: float(len(encodes)),
        )
        driver = here.driver()
        driver.prefill(prompt_of(here.target.model, "the quick brown fox " * 12))
        driver.round()
        driver.round()

    assert len(encodes) > 2
    assert here.session.stats().process_ms == len(encodes) * 1000.0
    assert here.session.stats().draft_ms == 0.0


# --- the built-in pair ---


@pytest.mark.real
def test_two_interleaved_sequences_draft_as_each_alone(real_models: Models) -> None:
    prompts = [prompt_of(real_models[0], text) for text in PROMPTS]
    alone = []
    for prompt in prompts:
        with bench(real_models) as here:
            driver = here.driver()
            driver.prefill(prompt)
            alone.append([driver.round() for _ in range(12)])
    assert sum(n_accepted for rounds in alone for _, n_accepted in rounds) > 4

    together: list[list[tuple[list[int], int]]] = [[], []]
    with bench(real_models, n_seq=2) as here:
        drivers = [here.driver(0), here.driver(1)]
        for driver, prompt in zip(drivers, prompts, strict=True):
            driver.prefill(prompt)
        for _ in range(12):
            for rounds, driver in zip(together, drivers, strict=True):
                rounds.append(driver.round())

    assert together == alone


@pytest.mark.real
def test_the_real_draft_reads_its_layers_and_needs_no_final_state(real_models: Models) -> None:
    with bench(real_models) as here:
        assert here.session.layers == (2, 15, 27)
        assert not here.session.need_embd_pre_norm
