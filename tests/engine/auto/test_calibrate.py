"""What is timed when a pair is loaded, on the tiny pair."""

from __future__ import annotations

import time

import pytest

from eaglechat.engine.auto import calibration
from eaglechat.engine.auto.calibration import NOT_CALIBRATED, calibrate
from eaglechat.engine.drafters.base import ProcessError
from eaglechat.engine.drafters.eagle3 import Eagle3Drafter
from eaglechat.engine.drafters.proposal import Limits, Proposal
from eaglechat.engine.llama.objects import Batch, Context
from eaglechat.wire.errors import Cancelled
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT
from eaglechat.wire.worker import cancelled_by
from tests.engine.kind_pairs import KINDS, Write
from tests.engine.rig import Rig, check_bookkeeping


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, no time is up."""
    monkeypatch.setattr(calibration, "BUDGET_S", float("inf"))


@pytest.mark.usefixtures("unhurried")
def test_each_width_up_to_nine_rows_is_timed_and_a_draft(rig: Rig) -> None:
    seen = calibrate(rig.target, rig.drafter)
    assert [width for width, _ in seen.verify] == [*range(1, 10), N_DRAFT_MAX_LIMIT + 1]
    assert seen.draft is not None
    assert all(ms > 0.0 for ms in (*(ms for _, ms in seen.verify), seen.draft))
    prompt = rig.prompt("the cat sat on the mat")
    check_bookkeeping(rig.reply(prompt), prompt)


def test_on_a_slow_machine_one_token_and_one_draft_decide(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances only in decodes, by half a second a row."""
    now, rows = [0.0], []

    def slow(context: Context, batch: Batch) -> int:
        if context is rig.target:
            rows.append(len(batch))
            now[0] += 0.5 * len(batch)
        return decode(context, batch)

    decode = Context.decode
    monkeypatch.setattr(Context, "decode", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    seen = calibrate(rig.target, rig.drafter)
    assert rows == [1, 2]
    assert [width for width, _ in seen.verify] == [1, 2]
    assert seen.draft is not None


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("n_measures", [0, 1, 5])
def test_a_cancelled_load_is_not_timed_any_further(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, n_measures: int
) -> None:
    n_decodes = 0

    def counted(context: Context, batch: Batch) -> int:
        nonlocal n_decodes
        n_decodes += context is rig.target
        return decode(context, batch)

    decode = Context.decode
    monkeypatch.setattr(Context, "decode", counted)
    with cancelled_by(lambda: n_decodes >= n_measures), pytest.raises(Cancelled):
        calibrate(rig.target, rig.drafter)
    assert n_decodes == n_measures
    assert rig.drafter.known == 0


def test_a_pair_that_fails_is_not_calibrated(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ProcessError("no memory")

    monkeypatch.setattr(Eagle3Drafter, "propose", fail)
    assert calibrate(rig.target, rig.drafter) == NOT_CALIBRATED
    assert rig.drafter.known == 0


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(
    ("kind", "lengths"),
    [
        ("llama, dflash", (3, 7)),
        ("llama, dspark", (3, 8)),
        ("llama, dspark-bonus", (3, 7)),
        ("llama, dflash2", (3, 7)),
        ("hy_v3", (3, N_DRAFT_MAX_LIMIT)),
        ("hy_v3, 2 heads", (2, 2)),
        ("qwen35", (3, N_DRAFT_MAX_LIMIT)),
    ],
)
def test_a_drafter_is_timed_at_what_it_can_draft(
    write: Write, monkeypatch: pytest.MonkeyPatch, kind: str, lengths: tuple[int, int]
) -> None:
    """That is the length of the drafts, and that of the longest."""
    (name,), drafted = KINDS[kind].drafters, []
    with write(kind).opened(name) as pair:
        propose = pair.drafter.propose

        def noted(n_past: int, id_last: int, limits: Limits) -> Proposal:
            proposal = propose(n_past, id_last, limits)
            drafted.append(len(proposal))
            return proposal

        monkeypatch.setattr(pair.drafter, "propose", noted)
        seen = calibrate(pair.target, pair.drafter)
        assert pair.drafter.known == 0
    assert (*set(drafted), seen.longest) == lengths
    assert seen.in_one_pass is (name != "mtp")
    assert (seen.draft or 0.0) > 0.0
