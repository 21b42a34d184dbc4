"""The built-in pair at temperature 0: the same text as plain decoding. Its counts are held against
llama.cpp's in tests/links/http/test_llama_server.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.wire.protocol import Message
from eaglechat.wire.records import FinishReason
from tests.engine.rig import N_THREADS, Reply, decode, open_rig, plainly
from tests.engine.ties import TIE, first_fork, same_unless_tie

pytestmark = pytest.mark.real

MAX_TOKENS = 128
QUESTIONS = {
    "quicksort": "Write a quicksort algorithm in Python. Write code only.",
    "Pythagoras": "Explain the Pythagorean theorem",
    "DC": "Plan a 1 day trip to DC",
}


@dataclass(frozen=True)
class Run:
    """Plain and speculative replies to one prompt."""

    prompt: tuple[int, ...]
    plain: Reply
    speculative: Reply


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.slow] * (name != "quicksort")) for name in QUESTIONS
    ],
)
def run(request: pytest.FixtureRequest, real_models: tuple[Model, Model]) -> Run:
    with open_rig(*real_models) as rig:
        prompt = rig.prompt(QUESTIONS[request.param])
        plain = rig.reply(prompt, live=plainly(), max_tokens=MAX_TOKENS)
        speculative = rig.reply(prompt, n_draft_max=3, max_tokens=MAX_TOKENS)
        return Run(prompt, plain, speculative)


# --- the text ---


def test_speculation_writes_the_text_of_plain_decoding_up_to_a_tie(
    run: Run, real_models: tuple[Model, Model]
) -> None:
    assert len(run.plain.tokens) > 100

    same_unless_tie(real_models[0], run.prompt, run.plain.tokens, run.speculative.tokens)

    if first_fork(run.plain.tokens, run.speculative.tokens) is None:
        assert run.speculative.text == run.plain.text


@pytest.mark.slow
@pytest.mark.parametrize("run", ["Pythagoras"], indirect=True)
def test_a_fork_that_is_no_tie_is_noticed(run: Run, real_models: tuple[Model, Model]) -> None:
    """Forks made by hand at one token: with the runner-up, and with a token out of the blue."""
    model, plain = real_models[0], run.plain.tokens[:50]
    assert first_fork(plain, plain) is None
    with (
        Context(model, n_ctx=1024, n_batch=512, n_threads=N_THREADS) as context,
        Batch(context) as batch,
    ):
        decode(context, batch, [*run.prompt, *plain[:-1]], 0)
        rows = [np.array(context.logits(len(run.prompt) + at - 1)) for at in range(len(plain))]
    # A batch of another width may have chosen otherwise where two tokens are nearly equal.
    clear = [at for at, row in enumerate(rows) if np.diff(np.sort(row)[-2:]).item() > 10 * TIE]
    at = next(at for at in clear if at >= 10)
    order = np.argsort(rows[at])
    runner_up, unlikely = int(order[-2]), int(order[0])
    assert plain[at] == int(order[-1])

    with pytest.raises(AssertionError, match=f"fork at {at}"):
        same_unless_tie(model, run.prompt, plain, [*plain[:at], unlikely])
    with pytest.raises(AssertionError, match="one reply ends"):
        same_unless_tie(model, run.prompt, plain, plain[:at])
    with pytest.raises(AssertionError, match="logits"):
        same_unless_tie(model, run.prompt, plain, [*plain[:at], runner_up])


# --- chatting ---


def test_a_second_turn_does_not_read_the_first_again(real_models: tuple[Model, Model]) -> None:
    questions = ("What is the capital of France? Answer in one sentence.", "And of Italy?")
    with open_rig(*real_models) as rig:
        first_prompt = rig.prompt(questions[0])
        first = rig.reply(first_prompt, max_tokens=60)
        asked = rig.prompter.conversation([Message(role="user", content=questions[0])])
        asked.note_reply(first.tokens)
        prompt = rig.prompt(questions[0], first.text, questions[1])
        assert len(prompt) > len(first_prompt) + len(first.tokens)
        second = rig.reply(prompt, max_tokens=30)

    timings = second.end.timings
    assert first.end.finish_reason is FinishReason.STOP
    assert timings.reused_tokens >= len(first_prompt) + len(first.tokens) - 4
    assert timings.prefill_tokens == len(prompt) - 1 - timings.reused_tokens < 24

    with open_rig(*real_models) as rig:
        fresh = rig.reply(prompt, max_tokens=30)
    same_unless_tie(real_models[0], prompt, fresh.tokens, second.tokens)
    if first_fork(fresh.tokens, second.tokens) is None:
        drafts = [[r.drafted for r in reply.rounds] for reply in (second, fresh)]
        agreeing = sum(
            [t.id for t in one] == [t.id for t in other]
            for one, other in zip(*drafts, strict=False)
        )
        assert agreeing >= 0.8 * len(drafts[1])
