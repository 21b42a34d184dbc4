"""Drafting with MTP heads, beside what holds of every drafter (test_laws): found in the file as a
pair is loaded, counted, or named as missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from eaglechat.engine.drafters import mtp
from eaglechat.engine.drafters.proposal import Limits
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Batch
from eaglechat.gguf.header import read_header
from eaglechat.gguf.memory import memory_need
from eaglechat.gguf.pairing import check_pair
from eaglechat.wire.errors import ModelLoadError
from eaglechat.wire.protocol import KvType
from tests import tiny_kinds
from tests.engine.kind_pairs import KINDS, RANDOM, Files, Write, cycle
from tests.engine.rig import decode


def test_rows_without_output_may_have_to_go_in_a_batch_of_their_own(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with architectures that do not let rows of both kinds be in one."""
    drafts = []
    for merged in (True, False):
        with monkeypatch.context() as patched:
            if not merged:
                patched.setattr(mtp, "STATES_OF_ALL_ROWS", ())
            with (
                write("hy_v3", mixed=True).opened("mtp") as pair,
                Batch(pair.target) as batch,
            ):
                driver = pair.driver(batch, 7)
                driver.prefill(RANDOM[:20])
                drafts.append([driver.round() for _ in range(8)])
    assert drafts[0] == drafts[1]


def test_an_assistant_waits_until_the_keys_it_reads_have_shifted(write: Write) -> None:
    """llama.cpp moves the target's keys in the target's next decode."""
    with write("gemma4, assistant", mixed=True).opened("mtp") as pair, Batch(pair.target) as batch:
        drafter, text = pair.drafter, RANDOM[:20]
        decode(pair.target, batch, text, 0, output=False)
        drafter.see(batch)
        pair.target.shift(0, 5, 10)
        drafter.shift(5, 10)
        # The last position is decoded once more.
        assert drafter.known == 14
        assert drafter.resume([*text[:5], *text[10:]]) == 14
        pair.target.forget(0, 14)
        decode(pair.target, batch, text[19:], 14, output=False)
        drafter.see(batch)
        at_once = drafter.propose(15, 3, Limits(7))
        decode(pair.target, batch, [9], 15, output=False)
        pair.target.forget(0, 15)
        later = drafter.propose(15, 3, Limits(7))
        drafter.shift(12, 20)
        assert drafter.known == 11

    assert at_once.ids == later.ids
    assert at_once.probabilities == pytest.approx(later.probabilities, abs=0.001)


def test_a_prompt_that_is_asked_for_again_costs_no_more(write: Write) -> None:
    """A reply may be cancelled before the position to be seen again was decoded."""
    with write("hy_v3").opened("mtp") as pair, Batch(pair.target) as batch:
        decode(pair.target, batch, RANDOM[:20], 0, output=False)
        pair.drafter.see(batch)
        pair.drafter.take_in()
        for _ in range(3):
            assert pair.drafter.resume(RANDOM[:12]) == 11
        assert pair.drafter.resume(RANDOM[:5]) == 4
        assert pair.drafter.resume([]) == 0


# --- as a pair is loaded ---


MIB = 1 << 20
MTP = [name for name, kind in KINDS.items() if kind.drafters == ("mtp",)]


def test_heads_are_found_in_the_other_files_of_a_split_model(write: Write) -> None:
    whole = write("hy_v3, 2 heads")
    split = Files(whole.kind, split_in_two(whole.target), None)
    header = read_header(split.target)
    assert header.tensors_elsewhere
    assert header.n_mtp_heads == 2
    assert not any(tensor.name.endswith("eh_proj.weight") for tensor in header.tensors)
    with split.loaded() as pair:
        assert [drafter.kind for drafter in pair.loaded.info.drafters] == ["mtp"]
        assert pair.reply(cycle(20), n=2, length=40).tokens == cycle(60)[20:]


def split_in_two(path: Path) -> Path:
    """A copy of a model in two files, the first of which has most of the tensors."""
    reader = GGUFReader(path)
    architecture = reader.fields["general.architecture"].contents()
    most = len(reader.tensors) * 2 // 3
    out = path.with_name("split.gguf")
    writer = GGUFWriter(out, architecture, split_max_tensors=most)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            is_list = field.types[0] is GGUFValueType.ARRAY
            of = field.types[-1] if is_list else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=of)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file(out)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out.with_name("split-00001-of-00002.gguf")


@pytest.mark.parametrize("kind", MTP)
@pytest.mark.parametrize("size", [(512, "f16"), (600, "q8_0")], ids=str)
def test_kv_caches_are_as_large_as_llama_cpp_allocates(
    write: Write,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    kind: str,
    size: tuple[int, KvType],
) -> None:
    files, (n_ctx, kv_type) = write(kind), size
    backend.start_backend(backend.LOG_INFO)
    try:
        with files.opened("mtp", n_ctx=n_ctx, kv_type=kv_type) as pair:
            said = capfd.readouterr().err
            assert pair.reply(cycle(20)).tokens == cycle(44)[20:]
    finally:
        backend.start_backend(backend.LOG_ERRORS)
    allocated = [float(size) for size in re.findall(r"CPU KV buffer size = +([\d.]+) MiB", said)]
    headers = check_pair(files.target, files.draft)
    need = memory_need(*headers, n_ctx, kv_type, kv_type)
    caches = need.target_kv + need.draft_kv + need.heads_kv
    assert caches / MIB == pytest.approx(sum(allocated), abs=0.02)
    assert (need.draft_kv + need.heads_kv == 0) is (kind == "gemma4, assistant")
    # The heads have a context, and so buffers, of their own.
    stripped = tiny_kinds.write_hy_v3(tmp_path / "stripped.gguf", strip=True)
    assert need.compute > 1.9 * memory_need(read_header(stripped), None, n_ctx).compute


@pytest.mark.parametrize(("kind", "how"), [("hy_v3", "strip"), ("qwen35", "strip_block")])
def test_heads_that_were_stripped_leave_a_pair_that_runs_plainly(
    tmp_path: Path, kind: str, how: str
) -> None:
    target = getattr(tiny_kinds, f"write_{kind}")(tmp_path / "target.gguf", **{how: True})
    with Files(KINDS[kind], target, None).loaded() as pair:
        assert pair.loaded.info.drafters == ()
        assert pair.loaded.info.undrafted == {
            "mtp": "its MTP heads were stripped, but its header still declares 1"
        }
        written = pair.reply(cycle(20), length=40)
    assert written.tokens == cycle(60)[20:]
    assert not any(round_.drafted for round_ in written.rounds)


def test_what_llama_cpp_does_not_load_without_its_heads_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    """llama.cpp needs all of the head's block of qwen35, or none."""
    stripped = tiny_kinds.write_qwen35(tmp_path / "target.gguf", strip=True)
    with (
        pytest.raises(ModelLoadError, match=r"its MTP heads were stripped.* that has the heads"),
        Files(KINDS["qwen35"], stripped, None).loaded(),
    ):
        pass
