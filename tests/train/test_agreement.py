"""The draft that is trained is the one the engine runs: same tokens, same probabilities."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the extra train")

from eaglechat.engine.drafters.eagle3 import Eagle3Drafter, Norms, norms_of
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama.objects import Batch, Model
from eaglechat.gguf.header import read_header
from eaglechat.train.attention import chain_attention
from eaglechat.train.batches import assemble
from eaglechat.train.corpus import Sample
from eaglechat.train.draft_file import read_draft
from eaglechat.train.features import FeatureReader, FeatureStore
from eaglechat.train.loss import head_loss
from eaglechat.train.network import Unrolled
from eaglechat.train.preparation import Scales, setup_for, to_training
from eaglechat.train.settings import Recipe
from eaglechat.train.target import HEAD, VocabularyMatrices
from tests.engine.rig import decode, open_contexts

pytestmark = pytest.mark.torch

LENGTH, N_DRAFT = 40, 5
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
PUBLISHED: dict[str, dict[str, Any]] = {
    "own embeddings": {"embeddings": True},
    "no head": {"lm_head": False},
    "norm before fc": {"norm_before_fc": True},
    "norm before residual": {"norm_before_residual": True},
    "half of each head turned": {"partial_rotary_factor": 0.5},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama3": {"rope_scaling": LLAMA3},
    "yarn": {"rope_scaling": YARN},
    "yarn's other figures, which llama.cpp ignores": {
        "rope_scaling": {**YARN, "beta_fast": 0.2, "beta_slow": 0.1, "attention_factor": 1.5}
    },
    "three positions": {"rope_scaling": {"rope_type": "default", "mrope_section": [2, 3, 3]}},
    "norm of each layer, EAGLE-3.1": {"fc_norm": True},
    "norm of what is read again, EAGLE-3.1": {"norm_output": True},
    "narrower than its target": {"embeddings": True, "hidden_size": 16},
    "all at once": {
        "embeddings": True, "norm_before_fc": True, "norm_before_residual": True,
        "norm_output": True,
        "rope_scaling": YARN,
    },
}  # fmt: skip
"""What drafts on the Hub have, as their config.json says it."""


def test_a_chain_says_what_the_engine_drafts(
    tiny_files: tuple[Path, Path], tiny_target: Model
) -> None:
    """From every position of a text: draft tokens and probabilities of five steps.

    The chain goes on with the engine's own tokens, as the engine does.
    """
    text = np.random.default_rng(5).integers(0, 26, LENGTH).tolist()
    with Model(tiny_files[1]) as draft:
        drafted = _engine_drafts(tiny_target, draft, text, Norms())
    ours = {base: _chain(tiny_files, tiny_target, text[: base + 2] + drafted[base][0], base)
            for base in drafted}  # fmt: skip

    for base, (tokens, probabilities) in drafted.items():
        assert ours[base][0] == tokens
        np.testing.assert_allclose(ours[base][1], probabilities, rtol=5e-3)
    # The draft says different things at different positions, else equality shows little.
    assert len({tuple(tokens) for tokens, _ in drafted.values()}) > LENGTH // 4


@pytest.mark.parametrize("features", PUBLISHED.values(), ids=PUBLISHED)
def test_so_does_a_chain_of_a_published_draft(
    features: dict[str, Any],
    publish: Callable[..., Path],
    tiny_files: tuple[Path, Path],
    tiny_target: Model,
) -> None:
    path = publish(tiny_files[0], **features)
    text = np.random.default_rng(5).integers(0, 26, LENGTH).tolist()
    with Model(path) as draft:
        drafted = _engine_drafts(tiny_target, draft, text, norms_of(read_header(path)))

    for base in range(1, LENGTH - 2, 4):
        tokens, probabilities = drafted[base]
        # Of two tokens as likely as each other, rounding decides.
        _, shares = _chain((tiny_files[0], path), tiny_target, text[: base + 2] + tokens, base)
        np.testing.assert_allclose(shares, probabilities, rtol=5e-3)


def _engine_drafts(
    target: Model, draft: Model, text: list[int], norms: Norms
) -> dict[int, tuple[list[int], list[float]]]:
    """By base: the draft after `text` up to and with the token behind the base."""
    found = {}
    with open_contexts(target, draft) as (target_context, draft_context):
        for base in range(1, LENGTH - 2):
            with (
                closing(Eagle3Drafter(target_context, draft_context, norms=norms)) as drafter,
                Batch(target_context) as batch,
            ):
                decode(target_context, batch, text[: base + 1], 0)
                drafter.see(batch)
                proposal = drafter.propose(base + 1, text[base + 1], Limits(N_DRAFT))
                found[base] = (proposal.ids, proposal.probabilities)
                target_context.forget(0, 0)
                draft_context.forget(0, 0)
    return found


def _chain(
    files: tuple[Path, Path], model: Model, tokens: list[int], base: int
) -> tuple[list[int], list[float]]:
    """The chain from `base` on: its likeliest tokens, and what the text's own have as their share
    among the ten likeliest."""
    target = read_header(files[0])
    matrices = VocabularyMatrices(target)
    draft = read_draft(files[1], target, matrices, longest=64)
    random = np.random.default_rng(9)
    scales = Scales(random.uniform(0.5, 5, 3 * 32).astype(np.float32), np.ones(32, np.float32))
    setup = setup_for(
        draft, target, matrices, scales, Recipe(), dtype=torch.float32, device=torch.device("cpu")
    )
    weights = to_training(draft, setup)
    sample = Sample(np.array(tokens, dtype=np.int32), ((base + 2, len(tokens)),))
    reader = FeatureReader(model, draft.layers, longest=64, n_threads=1)
    features = FeatureStore(files[0].parent / "features", 32)
    features.fill([sample], reader, lambda _: None, lambda: False)
    reader.close()
    batch = assemble([sample], features, setup.draft_ids, N_DRAFT)
    unrolled = Unrolled(weights, setup, batch)
    step = unrolled.first()
    said, shares = [], []
    for number in range(1, N_DRAFT + 1):
        logits = (step.normed[:1] @ weights[HEAD].T)[0]
        said.append(int(draft.d2t[int(logits.argmax())]))
        own = logits[setup.draft_ids[tokens[base + 1 + number]]]
        shares.append(float((own - logits.topk(10).values.logsumexp(-1)).exp()))
        if number < N_DRAFT:
            step = unrolled.following(number + 1, step, torch.tensor([0]))
    return said, shares


def test_attention_and_its_gradient_are_those_of_a_mask_over_all_keys() -> None:
    """Against the plain softmax over the text's keys up to the base and the chain's own."""
    torch.manual_seed(1)
    lengths, heads, kv_heads, size, steps = (5, 600), 4, 2, 6, 2
    bases = torch.tensor([1, 3, *range(6, 605, 2)])
    n, rows = len(bases), sum(lengths)
    shapes = [(n, heads, size), (rows, kv_heads, size), (rows, kv_heads, size),
              (steps, n, kv_heads, size), (steps, n, kv_heads, size)]  # fmt: skip
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    wanted = torch.randn(n, heads, size, dtype=torch.float64)

    q, *text_and_chain = inputs
    text, chain = tuple(text_and_chain[:2]), tuple(text_and_chain[2:])
    ours = chain_attention(q, text, chain, bases, lengths)
    plain = _plain_attention(*inputs, bases, [0] * 2 + [5] * (n - 2))

    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    for one, other in zip(
        torch.autograd.grad((ours * wanted).sum(), inputs),
        torch.autograd.grad((plain * wanted).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def _plain_attention(q, k, v, chain_k, chain_v, bases, starts):  # type: ignore[no-untyped-def]  # noqa: PLR0917
    group = q.shape[1] // k.shape[1]
    outputs = []
    for index, head in itertools.product(range(len(q)), range(q.shape[1])):
        keys = slice(starts[index], int(bases[index]) + 1)
        seen_k = torch.cat([k[keys, head // group], chain_k[:, index, head // group]])
        seen_v = torch.cat([v[keys, head // group], chain_v[:, index, head // group]])
        weights = torch.softmax(seen_k @ q[index, head] / q.shape[2] ** 0.5, 0)
        outputs.append(weights @ seen_v)
    return torch.stack(outputs).view(q.shape)


def test_the_loss_and_its_gradient_are_those_of_a_cross_entropy() -> None:
    """Over more rows than one chunk, with weights of nought among them."""
    torch.manual_seed(2)
    n, vocabulary, size, rows = 1100, 40, 8, 300
    states = torch.randn(n, size, requires_grad=True)
    head = torch.randn(vocabulary, size, requires_grad=True)
    teacher = torch.softmax(3 * torch.randn(rows, vocabulary), -1)
    teacher_rows = torch.randint(rows, (n,))
    weights = torch.rand(n) * (torch.rand(n) < 0.9)
    labels = torch.randint(vocabulary, (n,))

    loss, hits = head_loss(states, head, (teacher, teacher_rows), weights, labels)
    ours = torch.autograd.grad(3 * loss, (states, head))
    logits = states @ head.T
    entropies = -(teacher[teacher_rows] * torch.log_softmax(logits, -1)).sum(-1)
    plain = (weights * entropies).sum()

    torch.testing.assert_close(loss, plain)
    assert torch.equal(hits, logits.argmax(-1) == labels)
    for one, other in zip(ours, torch.autograd.grad(3 * plain, (states, head)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
