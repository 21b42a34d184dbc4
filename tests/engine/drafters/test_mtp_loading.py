"""MTP heads as a pair is loaded: found in the file, counted, or named as missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader, GGUFValueType, GGUFWriter

from eaglechat.engine.drafters.pairing import check_pair
from eaglechat.engine.generation.live import Live
from eaglechat.engine.llama import backend
from eaglechat.engine.loading.pair import LoadedPair
from eaglechat.gguf.header import read_header
from eaglechat.gguf.memory import memory_need
from eaglechat.wire.errors import ModelLoadError
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.protocol import AUTO, Speculation
from tests import tiny_kinds
from tests.engine.drafters.mtp_pairs import IN_TARGET, KINDS, Files, cycle, opened, write
from tests.engine.rig import GREEDY, Reply

MIB = 1 << 20


@contextmanager
def loaded(files: Files, **options: Any) -> Iterator[LoadedPair]:
    headers = check_pair(files.target, files.draft)
    with closing(LoadedPair(headers, LoadOptions(n_ctx=512, n_threads=1, **options))) as pair:
        yield pair


def reply(pair: LoadedPair, speculation: Speculation, length: int = 40) -> Reply:
    events = pair.generator.reply(
        cycle(20), GREEDY, Live(speculation, 0.0), seed=1, max_tokens=length
    )
    return Reply(tuple(events))


@pytest.fixture(scope="module", autouse=True)
def _backend() -> None:
    backend.start_backend(backend.LOG_ERRORS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_finds_its_heads_and_drafts_with_them(tmp_path: Path, kind: str) -> None:
    with loaded(write(kind, tmp_path)) as pair:
        [drafter] = pair.info.drafters
        assert drafter.kind == "mtp"
        assert (drafter.file is None) is (kind in IN_TARGET)
        assert pair.info.speculation_off is None
        for speculation in (
            Speculation(n_draft_max=3, shape="tree"),
            Speculation(n_draft_max=AUTO),
        ):
            written = reply(pair, speculation)
            assert written.offs == []
            assert written.tokens == cycle(60)[20:]
            assert not any(round_.is_tree for round_ in written.rounds)
        reached = [len(one.drafted) for one in reply(pair, Speculation(n_draft_max=2)).rounds]
        assert reached[:5] == [2] * 5


def test_heads_are_found_in_the_other_files_of_a_split_model(tmp_path: Path) -> None:
    whole = write("hy_v3, 2 heads", tmp_path)
    split = Files(whole.kind, split_in_two(whole.target))
    header = read_header(split.target)
    assert header.tensors_elsewhere
    assert header.n_mtp_heads == 2
    assert not any(tensor.name.endswith("eh_proj.weight") for tensor in header.tensors)
    with loaded(split) as pair:
        assert [drafter.kind for drafter in pair.info.drafters] == ["mtp"]
        assert reply(pair, Speculation(n_draft_max=2)).tokens == cycle(60)[20:]


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_ctx", "kv_type"), [(512, "f16"), (600, "q8_0")])
def test_kv_caches_are_as_large_as_llama_cpp_allocates(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str, n_ctx: int, kv_type: Any
) -> None:
    files = write(kind, tmp_path)
    backend.start_backend(backend.LOG_INFO)
    try:
        with opened(files, n_ctx=n_ctx, kv_type=kv_type):
            said = capfd.readouterr().err
    finally:
        backend.start_backend(backend.LOG_ERRORS)
    allocated = [float(size) for size in re.findall(r"CPU KV buffer size = +([\d.]+) MiB", said)]
    headers = check_pair(files.target, files.draft)
    need = memory_need(*headers, n_ctx, kv_type, kv_type)
    caches = need.target_kv + need.draft_kv + need.heads_kv
    assert caches / MIB == pytest.approx(sum(allocated), abs=0.02)
    assert (need.draft_kv + need.heads_kv == 0) is (kind == "gemma4")
    # The heads have a context, and so buffers, of their own.
    stripped = tiny_kinds.write_hy_v3(tmp_path / "stripped.gguf", strip=True)
    assert need.compute > 1.9 * memory_need(read_header(stripped), None, n_ctx).compute


@pytest.mark.parametrize(("kind", "how"), [("hy_v3", "strip"), ("qwen35", "strip_block")])
def test_heads_that_were_stripped_leave_a_pair_that_runs_plainly(
    tmp_path: Path, kind: str, how: str
) -> None:
    with loaded(write(kind, tmp_path, **{how: True})) as pair:
        assert pair.info.drafters == ()
        assert pair.info.undrafted == {
            "mtp": "its MTP heads were stripped, but its header still declares 1"
        }
        written = reply(pair, Speculation(n_draft_max=3))
    assert written.tokens == cycle(60)[20:]
    assert not any(round_.drafted for round_ in written.rounds)


def test_what_llama_cpp_does_not_load_without_its_heads_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    """llama.cpp needs all of the head's block of qwen35, or none."""
    with (
        pytest.raises(ModelLoadError, match=r"its MTP heads were stripped.* that has the heads"),
        loaded(write("qwen35", tmp_path, strip=True)),
    ):
        pass
