"""What `norm_output` means is measured where a checkpoint leaves it open: two drafts whose trainers
meant different things by the same config.json."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eaglechat.engine.drafters.eagle3.norms import norms_of
from eaglechat.gguf.header import read_header
from eaglechat.hub.convert import ConversionProgress, ConversionReport, convert, readings
from tests import tiny
from tests.convert.checkpoints import Variant, draft, nested, write_target

pytestmark = pytest.mark.slow


def trained(fed_back: str, **features: object) -> Variant:
    """A draft that says what follows the token in a pair. Its attention takes the state in the pair
    out of the sum of both, which it can only if the state has the size of its training."""
    own_size = 2.0
    output_norm = 20.0 if fed_back == "plain" else 0.05
    size = own_size if fed_back == "plain" else output_norm
    n = tiny.N_EMBD
    variant = draft(
        vocab=len(tiny.TOKENS),
        heads=tiny.N_HEADS,
        kv_heads=tiny.N_HEADS,
        full_vocabulary=True,
        lm_head=False,
        **{"norm_output": True, "eagle_aux_hidden_state_layer_ids": [0, 2, 3], **features},
    )
    token, state = np.eye(n, 2 * n), np.eye(n, 2 * n, n)
    values = {
        "q_proj": 10 * token, "k_proj": 10 * token,
        "v_proj": own_size * token - size * state,
        "o_proj": np.eye(n),
        "down_proj": np.zeros((n, 2 * n)), "fc": np.zeros((n, 3 * n)),
        "layernorm": np.ones(n), "hidden_norm": np.ones(n), "norm": np.full(n, output_norm),
    }  # fmt: skip
    for name in variant.tensors:
        found = [part for part in values if name.removesuffix(".weight").endswith(part)]
        if found:
            variant.tensors[name] = ("F32", values[found[0]])
    return variant


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tiny.write_target(tmp_path / "target.gguf", looks_back=False)


def converted(variant: Variant, target: Path) -> ConversionReport:
    folder = target.parent
    return convert(variant.save(folder / "draft"), target, folder / "draft.gguf", "f32")


@pytest.mark.parametrize(
    ("fed_back", "fc_norm"), [("plain", False), ("plain", True), ("normed", False)]
)
def test_the_better_reading_is_kept_and_said(fed_back: str, fc_norm: bool, target: Path) -> None:
    variant = trained(fed_back, fc_norm=fc_norm)
    for third in range(3 if fc_norm else 0):
        variant.put(f"fc_norm.{third}.weight", tiny.N_EMBD)
    report = converted(variant, target)
    is_plain = fed_back == "plain"
    norms = norms_of(read_header(report.path))
    assert (norms.output is None, norms.features) == (is_plain, fc_norm)
    (said,) = (note for note in report.notes if "norm_output" in note)
    assert f"norm_output is read as {'plain EAGLE-3' if is_plain else 'EAGLE-3.1'}: " in said
    runs_elsewhere = not any("whose norms llama.cpp does not have" in one for one in report.notes)
    assert runs_elsewhere == (is_plain and not fc_norm)


def test_a_target_that_cannot_run_leaves_it_at_eagle_3_1(tmp_path: Path) -> None:
    without_weights = write_target(tmp_path / "target.gguf")
    report = converted(draft(norm_output=True), without_weights)
    assert norms_of(read_header(report.path)).output is not None
    assert "could not be measured (llama.cpp cannot load " in report.notes[-2]
    assert "an EAGLE-3.1 draft" in report.notes[-1]


def test_only_what_is_open_is_measured(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "_measured", None)
    of_vllm = trained("normed", architectures=["Eagle3LlamaForCausalLM"])
    of_speculators = nested(trained("normed"), "Eagle3DraftModel")
    without = trained("plain")
    del without.config["norm_output"]
    for variant, is_31 in ((of_vllm, True), (of_speculators, True), (without, False)):
        report = converted(variant, target)
        assert (norms_of(read_header(report.path)).output is not None) == is_31
        assert not any("norm_output" in note for note in report.notes)


class StopError(Exception):
    pass


def test_measuring_can_be_stopped(target: Path) -> None:
    seen: list[str] = []

    def stop(progress: ConversionProgress) -> None:
        seen.append(progress.stage)
        if progress.stage == "measuring":
            raise StopError

    checkpoint = trained("plain").save(target.parent / "draft")
    (target.parent / "out").mkdir()
    with pytest.raises(StopError):
        convert(checkpoint, target, target.parent / "out" / "draft.gguf", "f32", stop)
    assert seen[-1] == "measuring"
    assert list((target.parent / "out").iterdir()) == []
