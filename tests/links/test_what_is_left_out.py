from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eaglechat.links.crashes import crash, likely_cause, starts_again, with_less, without
from eaglechat.wire.protocol import Load, LoadOptions

options = st.builds(
    LoadOptions,
    flash_attention=st.sampled_from(("auto", "on", "off")),
    n_gpu_layers=st.sampled_from((-1, 0, 12)),
    kv_type=st.sampled_from(("f16", "q8_0")),
    split_mode=st.sampled_from(("layer", "row")),
)
logs = st.lists(st.sampled_from(("", "CUDA error: out of memory", "GGML_ASSERT failed")))


@given(options, st.booleans(), st.lists(logs))
def test_a_load_is_tried_again_at_most_twice_each_time_with_less(
    chosen: LoadOptions, has_gpu: bool, crashes: list[list[str]]
) -> None:
    load = Load(target="model.gguf", options=chosen)
    tries = 0
    ran_out = False
    for log in crashes:
        again = with_less(load, "SIGABRT", log, has_gpu=has_gpu)
        if again is None:
            break
        tries += 1
        ran_out |= any("memory" in line for line in log)
        assert again.leave_out[: len(load.leave_out)] == load.leave_out
        assert len(set(again.leave_out)) == len(again.leave_out) > len(load.leave_out)
        # A lack of memory says nothing about the next load.
        assert again.crash == ("" if ran_out else "SIGABRT")
        load = again
    assert tries <= 2
    if "gpu" in load.leave_out:
        assert has_gpu
        assert chosen.n_gpu_layers in (-1, 0)
        assert chosen.split_mode == "layer"
    if "flash_attention" in load.leave_out:
        assert chosen.flash_attention != "on"
        assert chosen.kv_type == "f16"


@pytest.mark.skipif(sys.platform == "win32", reason="the exit statuses of POSIX")
@pytest.mark.parametrize(
    ("status", "name"),
    [
        *((-11, "SIGSEGV"), (-4, "SIGILL"), (-6, "SIGABRT"), (139, "SIGSEGV"), (134, "SIGABRT")),
        # Ends that somebody wanted.
        *((status, None) for status in (None, 0, 1, 3, -9, -15, 137, 143, 255, -999)),
    ],
)
def test_a_crash_is_named(status: int | None, name: str | None) -> None:
    assert crash(status) == name


def test_the_sentences() -> None:
    chosen = LoadOptions(flash_attention="on", n_gpu_layers=7)
    load = Load(target="m", options=chosen, leave_out=("extra_buffers",))
    assert likely_cause(load, []) == (
        ", without repacked weights too; the likely cause is a setting of yours: "
        "engine.flash_attention = on, engine.n_gpu_layers = 7"
    )
    assert without(("amx",)) == "without AMX"
    assert without(("amx", "extra_buffers", "gpu")) == "without AMX, repacked weights and the GPU"
    assert starts_again("SIGILL", ("extra_buffers",), "/log/engine-crash.log") == (
        "llama.cpp crashed (SIGILL, its log is /log/engine-crash.log): trying again without "
        "repacked weights"
    )
