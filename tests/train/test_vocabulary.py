"""A draft that goes on over other tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch", reason="training needs the extra train")

from eaglechat import cli
from eaglechat.engine.llama.bindings import Floats
from eaglechat.hub.convert.target import read_target
from eaglechat.train.draft_file import TrainableDraft
from eaglechat.train.preparation import with_vocabulary
from eaglechat.train.target import HEAD, VocabularyMatrices, shape_of

pytestmark = pytest.mark.torch


class Matrices(VocabularyMatrices):
    """Of a target with 64 tokens and a hidden size of 8, in memory."""

    def __init__(self) -> None:
        self.rows = np.random.default_rng(1).normal(size=(64, 8)).astype(np.float32)

    def head(self, tokens: npt.NDArray[np.int64]) -> Floats:
        return self.rows[tokens]


def test_rows_it_had_stay_and_new_ones_follow_the_same_map(tiny_files: tuple[Path, Path]) -> None:
    matrices = Matrices()
    to_draft = np.random.default_rng(2).normal(size=(8, 8)).astype(np.float32)
    had = np.arange(0, 64, 2)
    head = matrices.head(had) @ to_draft
    draft = TrainableDraft(shape_of(read_target(tiny_files[0])), (0, 1, 2), had, {HEAD: head})
    wanted = np.arange(40)

    other = with_vocabulary(draft, wanted, matrices)

    assert other.d2t.tolist() == wanted.tolist()
    assert np.array_equal(other.weights[HEAD][::2], head[:20])
    np.testing.assert_allclose(
        other.weights[HEAD], matrices.head(wanted) @ to_draft, rtol=1e-3, atol=1e-4
    )


def test_a_head_type_that_cannot_be_is_refused(
    tiny_files: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "draft.gguf"
    of_head = ("-o", str(out), "--head-type", "q9_9")

    assert cli.main(["train", "--target", str(tiny_files[0]), *of_head]) == 2
    assert "q9_9 is not a type; known are f32" in capsys.readouterr().err
