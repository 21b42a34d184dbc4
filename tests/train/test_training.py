"""Training on tiny targets, through the command, up to what the engine measures."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the extra train")

from eaglechat.engine.llama.bindings import Floats
from eaglechat.gguf.header import GGUFHeader, read_header
from eaglechat.gguf.preflight import DRAFT_WINDOW, NORM_OUTPUT
from eaglechat.hub.convert.target import read_rows
from eaglechat.train.run import TrainingOutcome, TrainingRun
from eaglechat.train.settings import Budget, Recipe, RunSettings
from eaglechat.train.trainer import TrainingState
from tests import tiny
from tests.convert import checkpoints

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parent.parent.parent
LONGEST = 96


def settings(folder: Path, target: Path, **changes: Any) -> RunSettings:
    values: dict[str, Any] = {
        "target": target,
        "out": folder / "draft.gguf",
        "work": folder / "work",
        "self_written_tokens": 20_000,
        "longest": LONGEST,
        "draft_vocab": 24,
        # Two samples a batch: a draft learns by the batch, and time goes by the token.
        "budget": Budget(tokens=50_000),
        "recipe": Recipe(steps=4, batch_tokens=192, learning_rate=5e-3),
        "type": "f32",
        "n_threads": 1,
        "report_prompts": 12,
        "report_tokens": LONGEST,
    }
    return RunSettings(**{**values, **changes})


def trained(settings: RunSettings) -> TrainingOutcome:
    return TrainingRun(settings, lambda *_: None, lambda: False).go()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> TrainingOutcome:
    """A draft of a target whose greedy text follows from its last tokens."""
    folder = tmp_path_factory.mktemp("trained")
    target = tiny.write_target(folder / "target.gguf")
    # With less, what the target happens to write decides how good the draft is.
    more = {"self_written_tokens": 30_000, "budget": Budget(tokens=80_000)}
    return trained(settings(folder, target, **more))


def test_a_predictable_target_is_drafted_almost_without_fail(outcome: TrainingOutcome) -> None:
    assert [run.n_draft_max for run in outcome.after] == [3, 5]
    for run in outcome.after:
        assert run.stats.acceptance_rate is not None
        assert run.stats.acceptance_rate > 0.9


def test_the_file_says_what_it_is_and_how_it_was_made(outcome: TrainingOutcome) -> None:
    header = read_header(outcome.out)

    assert header.architecture == "eagle3"
    assert header.name == "Tiny EAGLE-3"
    assert header.get("general.base_model.0.name") == "Tiny"
    assert header.numbers("eagle3.target_layers") == outcome.layers
    assert header.number("eaglechat.training.tokens_seen") == outcome.state.tokens
    assert header.number("eaglechat.training.samples") == outcome.n_samples
    assert "chats" in header.get("eaglechat.training.data")


def test_killed_and_resumed_equals_uninterrupted(outcome: TrainingOutcome, tmp_path: Path) -> None:
    """Ctrl+C in the middle, a kill later, then the same command again: the same weights to the
    last bit."""
    target = outcome.out.parent / "target.gguf"
    chats = outcome.out.parent / "work" / "chats.jsonl"
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    for folder in (whole, parted):
        folder.mkdir()
    command = [sys.executable, "-m", "eaglechat", "train", "--target", str(target), "--chats",
               str(chats), "--longest", str(LONGEST), "--draft-vocab", "24", "--budget", "12000",
               "--batch", "512", "--threads", "1", "--report-prompts", "1"]  # fmt: skip

    subprocess.run([*command, "-o", str(whole / "draft.gguf")], cwd=ROOT, check=True)
    stopped = _stop_in_mid_training([*command, "-o", str(parted / "draft.gguf")], signal.SIGINT)
    assert stopped == 130
    state = msgspec.convert(_checkpoint(parted)["state"], TrainingState)
    assert 0 < state.tokens < 12_000
    _stop_in_mid_training([*command, "-o", str(parted / "draft.gguf")], signal.SIGKILL)
    subprocess.run([*command, "-o", str(parted / "draft.gguf")], cwd=ROOT, check=True)

    said = (parted / "draft.md").read_text()
    assert "to 1 held-out prompt:" in said
    row = r"^\| this one \| 3 \| \d+% .* \| \d\.\d\d \| \d+\.\d \| \d+\.\d \| \d+\.\d\dx \|$"
    assert re.search(row, said, re.M)
    one, other = (_checkpoint(folder) for folder in (whole, parted))
    assert one["state"]["tokens"] == other["state"]["tokens"] >= 12_000
    for name, weight in one["weights"].items():
        assert torch.equal(weight, other["weights"][name]), name


def _stop_in_mid_training(command: list[str], how: signal.Signals) -> int:
    """Send a signal some batches after the start of training; the exit status."""
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        tenths = (line for line in running.stderr if line.startswith("training: "))
        for _ in range(2):
            assert re.search(r"right( (\d+%|-)){4}, [\d,]+ tokens, [\d,]+ tok/s$", next(tenths))
        running.send_signal(how)
        running.stderr.read()
        return running.wait()


def _checkpoint(folder: Path) -> Any:
    return torch.load(folder / "draft.training" / "checkpoint.pt", weights_only=True)


def test_a_draft_learns_from_answers_to_given_prompts(
    outcome: TrainingOutcome, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(f"{a} {b} cat" for a in "abcdef" for b in "ghijkl"))
    stages = []
    run = TrainingRun(
        settings(
            tmp_path,
            outcome.out.parent / "target.gguf",
            self_written_tokens=0,
            prompts=(prompts,),
            budget=Budget(tokens=2_000),
            report_prompts=2,
        ),
        lambda stage, done, total, _: stages.append((stage, done, total)),
        lambda: False,
    )
    learnt = run.go()

    assert learnt.n_samples + learnt.n_held_out >= 36
    assert ("answering prompts", 36, 36) in stages
    assert "reading features" not in {stage for stage, _, _ in stages}


def test_going_on_from_a_draft_keeps_what_it_knows(
    outcome: TrainingOutcome, tmp_path: Path
) -> None:
    """A short run with almost no learning, from a good draft."""
    target = outcome.out.parent / "target.gguf"
    again = trained(
        settings(
            tmp_path,
            target,
            self_written_tokens=4_000,
            draft_vocab=None,
            init=outcome.out,
            budget=Budget(tokens=2_000),
            recipe=Recipe(batch_tokens=512, learning_rate=1e-6),
            name="Tiny drafter",
            type="q8_0",
        )
    )

    assert read_header(again.out).name == "Tiny drafter"
    assert (again.layers, again.draft_vocabulary) == (outcome.layers, outcome.draft_vocabulary)
    measured = again.before
    # Seven rounds each or so: one token more or less accepted moves the mean length by 0.14.
    for run in (*measured, *again.after):
        assert run.stats.mean_accepted_length == pytest.approx(
            1 + run.n_draft_max, abs=0.25 * run.n_draft_max
        )


def test_a_published_draft_goes_on_as_it_is(
    outcome: TrainingOutcome, publish: Callable[..., Path], tmp_path: Path
) -> None:
    """What training does not change stands in the new file as it did in the old one."""
    target = outcome.out.parent / "target.gguf"
    published = publish(
        target, embeddings=True, norm_before_fc=True, norm_before_residual=True,
        norm_output=True, rope_scaling=checkpoints.LLAMA3_SCALING,
        sliding_window=2048, use_sliding_window=True,
    )  # fmt: skip
    learnt = trained(
        settings(
            tmp_path,
            target,
            self_written_tokens=0,
            chats=(outcome.out.parent / "work" / "chats.jsonl",),
            draft_vocab=None,
            init=published,
            budget=Budget(tokens=8_000),
            report_prompts=1000,
        )
    )

    before, after = read_header(published), read_header(learnt.out)
    for key in ("eagle3.rope.", "eagle3.norm_", NORM_OUTPUT, DRAFT_WINDOW):
        kept = [{k: v for k, v in h.fields.items() if k.startswith(key)} for h in (before, after)]
        assert kept[0] == kept[1] != {}
    for name in ("rope_freqs.weight", "token_embd.weight"):
        assert np.array_equal(_tensor(before, name), _tensor(after, name))
    assert not np.array_equal(*(_tensor(h, "enc.output_norm.weight") for h in (before, after)))
    assert 0.05 < learnt.after[-1].stats.per_position[0] < 0.99


def _tensor(header: GGUFHeader, name: str) -> Floats:
    (found,) = (tensor for tensor in header.tensors if tensor.name == name)
    return read_rows(header.path, header.data_start, found)


def test_going_on_with_a_larger_vocabulary(outcome: TrainingOutcome, tmp_path: Path) -> None:
    """Tokens it had are drafted as before; the new ones are learnt; the head has its own type."""
    target = outcome.out.parent / "target.gguf"
    again = trained(
        settings(
            tmp_path,
            target,
            self_written_tokens=0,
            chats=(outcome.out.parent / "work" / "chats.jsonl",),
            draft_vocab=32,
            init=outcome.out,
            budget=Budget(tokens=2_000),
            recipe=Recipe(batch_tokens=512, learning_rate=1e-6),
            type="q8_0",
            head_type="q5_0",
        )
    )

    types = {tensor.name: tensor.type for tensor in read_header(again.out).tensors}
    assert (types["output.weight"], types["fc.weight"]) == ("Q5_0", "Q8_0")
    assert again.draft_vocabulary == 32
    measured = again.before
    for before, after in zip(measured, again.after, strict=True):
        assert before.stats.mean_accepted_length == pytest.approx(
            after.stats.mean_accepted_length, abs=0.25 * after.n_draft_max
        )
