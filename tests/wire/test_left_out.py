from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.wire.left_out import LADDER, chosen_by_user, crash, next_step, starts_again, without
from eaglechat.wire.load_options import LeaveOut, LoadOptions

possibilities = st.sets(st.sampled_from(tuple(LADDER))).map(
    lambda chosen: tuple(one for one in LADDER if one in chosen)
)
options = st.builds(
    LoadOptions,
    flash_attention=st.sampled_from(("auto", "on", "off")),
    n_gpu_layers=st.sampled_from((-1, 0, 12)),
    kv_type=st.sampled_from(("f16", "q8_0")),
    split_mode=st.sampled_from(("layer", "row")),
)


@given(possibilities, options)
def test_each_step_leaves_out_one_thing_more_and_the_last_leaves_what_the_user_chose(
    possible: tuple[LeaveOut, ...], chosen: LoadOptions
) -> None:
    steps: list[tuple[LeaveOut, ...]] = [()]
    while (step := next_step(steps[-1], possible, chosen)) is not None:
        steps.append(step)

    for before, after in pairwise(steps):
        assert after[:-1] == before
    end = steps[-1]
    assert set(end) <= set(possible)
    assert ("amx" in end, "extra_buffers" in end) == (
        "amx" in possible,
        "extra_buffers" in possible,
    )
    kept = set(possible) - set(end)
    if "flash_attention" in kept:
        assert chosen.flash_attention != "auto" or chosen.kv_type == "q8_0"
    if "gpu" in kept:
        assert chosen.n_gpu_layers != -1 or chosen.split_mode != "layer"
    for setting in chosen_by_user(possible, chosen):
        name, _, value = setting.removeprefix("engine.").partition(" = ")
        assert str(getattr(chosen, name)) == value


@pytest.mark.skipif(sys.platform == "win32", reason="the exit statuses of POSIX")
@pytest.mark.parametrize(
    ("status", "name"),
    [(-11, "SIGSEGV"), (-4, "SIGILL"), (-6, "SIGABRT"), (139, "SIGSEGV"), (134, "SIGABRT")],
)
def test_a_crash_is_named(status: int, name: str) -> None:
    assert crash(status) == name


@pytest.mark.parametrize("status", [None, 0, 1, 3, -9, -15, 137, 143, 255, -999])
def test_an_end_that_somebody_wanted_is_no_crash(status: int | None) -> None:
    assert crash(status) is None


def test_the_sentences() -> None:
    assert without(("amx",)) == "without AMX"
    assert without(("amx", "extra_buffers", "gpu")) == "without AMX, repacked weights and the GPU"
    assert starts_again("SIGILL", ("amx", "extra_buffers")) == (
        "llama.cpp crashed (SIGILL): trying again without repacked weights"
    )
