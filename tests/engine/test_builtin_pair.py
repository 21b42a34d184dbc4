"""The built-in pair at temperature 0: the same text as plain decoding. Its counts are held against
llama.cpp's in tests/links/http/test_llama_server.py."""

from __future__ import annotations

import pytest

from eaglechat.engine.llama.objects import Model
from eaglechat.wire.protocol import Shape
from tests.engine.rig import open_rig, plainly
from tests.engine.ties import first_fork, same_unless_tie

pytestmark = pytest.mark.real

MAX_TOKENS = 64


@pytest.mark.parametrize(
    ("question", "shape", "n_draft_max"),
    [
        ("Write a quicksort algorithm in Python. Write code only.", "chain", 3),
        pytest.param("Plan a 1 day trip to DC", "tree", 8, marks=pytest.mark.slow),
    ],
)
def test_speculation_writes_the_text_of_plain_decoding_up_to_a_tie(
    real_models: tuple[Model, Model], question: str, shape: Shape, n_draft_max: int
) -> None:
    with open_rig(*real_models, shape=shape) as rig:
        prompt = rig.prompt(question)
        plain = rig.reply(prompt, live=plainly(), max_tokens=MAX_TOKENS)
        speculative = rig.reply(prompt, n_draft_max=n_draft_max, max_tokens=MAX_TOKENS)
    assert len(plain.tokens) > 50
    assert sum(round_.n_accepted for round_ in speculative.rounds) > 10
    same_unless_tie(real_models[0], prompt, plain.tokens, speculative.tokens)
    if first_fork(plain.tokens, speculative.tokens) is None:
        assert speculative.text == plain.text
