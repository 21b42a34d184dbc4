"""A program drafts with what the pair has, and the records say who did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from eaglechat.gguf.header import read_header
from eaglechat.gguf.pairing import pairings
from eaglechat.links.llama_server.program import server_options
from eaglechat.wire import protocol as p
from eaglechat.wire.protocol import LoadOptions
from eaglechat.wire.records import Origin
from tests import tiny_kinds
from tests.engine_client import Client
from tests.engine_client import load as load_of
from tests.links.engines import chat as chat_of
from tests.links.llama_server.program import started

pytestmark = pytest.mark.slow

Start = Callable[[str], Client]


USER = p.Message(role="user", content="abc")


def load(target: Path, draft: Path | None = None) -> p.Load:
    return load_of((target, draft), n_ctx=1024)


def chat(n: int = 3, *, enabled: bool = True) -> p.Chat:
    speculation = p.Speculation(n_draft_max=n, enabled=enabled)
    return chat_of(messages=(USER,), speculation=speculation, max_tokens=16)


def loaded(client: Client, asked: p.Load) -> p.PairInfo:
    return client.expect(p.Loaded, asked).pair


def done(client: Client, asked: p.Chat) -> p.Done:
    return client.expect(p.Done, asked)


def drafters(client: Client) -> set[str | None]:
    """Who drafted what was accepted in the latest reply, by its records."""
    tokens = [token for round_ in client.latest.rounds for token in round_.tokens]
    assert {token.drafter for token in tokens if token.origin is not Origin.ACCEPTED} == {None}
    return {token.drafter for token in tokens if token.origin is Origin.ACCEPTED}


@pytest.mark.parametrize("write", [tiny_kinds.write_hy_v3, tiny_kinds.write_qwen35])
def test_heads_in_the_targets_file_draft(
    start: Start, tmp_path: Path, write: Callable[..., Path]
) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    info = loaded(client, load(write(tmp_path / "target.gguf")))
    assert info.drafters == (p.DrafterInfo(kind="mtp"),)
    assert info.speculation_off is None

    end = done(client, chat())
    assert set(end.stats.by_drafter) == {"mtp"}
    assert end.stats.accepted == end.stats.drafted > 8
    assert drafters(client) == {"mtp"}
    text = client.latest.text
    assert done(client, chat(enabled=False)).stats.drafted == 0
    assert client.latest.text == text
    drafting, plain = (" ".join(options) for options in started(tmp_path))
    assert "--spec-type draft-mtp --spec-draft-n-max 3" in drafting
    assert "-md" not in drafting
    assert "--spec-type" not in plain


def _hy_v3(folder: Path) -> tuple[Path, Path]:
    target = tiny_kinds.write_hy_v3(folder / "target.gguf", strip=True)
    return target, tiny_kinds.write_hy_v3(folder / "heads.gguf", mtp_only=True)


def _qwen35(folder: Path) -> tuple[Path, Path]:
    target = tiny_kinds.write_qwen35(folder / "target.gguf")
    return target, tiny_kinds.write_qwen35(folder / "heads.gguf", mtp_only=True)


def _gemma4(folder: Path) -> tuple[Path, Path]:
    target = tiny_kinds.write_gemma4(folder / "target.gguf")
    return target, tiny_kinds.write_gemma4_assistant(folder / "heads.gguf")


@pytest.mark.parametrize("write", [_hy_v3, _qwen35, _gemma4])
def test_heads_in_a_file_of_their_own_draft(
    start: Start, tmp_path: Path, write: Callable[[Path], tuple[Path, Path]]
) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    target, heads = write(tmp_path)
    info = loaded(client, load(target, heads))
    (drafter,) = info.drafters
    assert (drafter.kind, drafter.file and drafter.file.path) == ("mtp", str(heads))
    assert info.undrafted == {}

    stats = done(client, chat()).stats
    assert set(stats.by_drafter) == {"mtp"}
    assert stats.accepted == stats.drafted > 8
    (options,) = started(tmp_path)
    assert options[options.index("-md") + 1] == str(heads)
    assert options[options.index("--spec-type") + 1] == "draft-mtp"


def test_wrong_heads_are_counted_as_such(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    loaded(client, load(tiny_kinds.write_hy_v3(tmp_path / "target.gguf", wrong=0.5)))
    stats = done(client, chat()).stats
    assert 0 < stats.accepted < stats.drafted
    assert stats.by_drafter["mtp"].accepted == stats.accepted


@pytest.mark.parametrize(
    ("variant", "kind", "word"),
    [
        ("dflash", "dflash", "draft-dflash"),
        ("dspark", "dspark", "draft-dspark"),
        ("dspark-bonus", "dspark", "draft-dspark"),
        ("dflash2", "dflash2", "draft-dflash"),
    ],
)
def test_a_block_drafter_drafts(
    start: Start, tmp_path: Path, variant: tiny_kinds.Variant, kind: p.DrafterKind, word: str
) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    draft = tiny_kinds.write_dflash(tmp_path / "draft.gguf", variant=variant)
    info = loaded(client, load(tiny_kinds.write_llama(tmp_path / "target.gguf"), draft))
    (drafter,) = info.drafters
    assert (drafter.kind, drafter.layers) == (kind, (1, 2, 3))
    assert drafter.file is not None
    assert drafter.file.path == str(draft)

    stats = done(client, chat()).stats
    assert set(stats.by_drafter) == {kind}
    assert stats.accepted == stats.drafted > 8
    assert drafters(client) == {kind}
    (options,) = started(tmp_path)
    assert options[options.index("--spec-type") + 1] == word


def test_a_smaller_model_drafts(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    draft = tiny_kinds.write_llama(tmp_path / "draft.gguf", wrong=0.25)
    info = loaded(client, load(tiny_kinds.write_llama(tmp_path / "target.gguf"), draft))
    assert [drafter.kind for drafter in info.drafters] == ["model"]
    stats = done(client, chat()).stats
    assert 0 < stats.by_drafter["model"].accepted < stats.drafted
    (options,) = started(tmp_path)
    assert options[options.index("--spec-type") + 1] == "draft-simple"


def test_a_block_bounds_the_draft(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    draft = tiny_kinds.write_dflash(tmp_path / "draft.gguf", block_size=5)
    loaded(client, load(tiny_kinds.write_llama(tmp_path / "target.gguf"), draft))
    assert done(client, chat(12)).stats.accepted > 8
    assert max(len(round_.drafted) for round_ in client.latest.rounds) == 4


def test_a_request_chooses_between_a_draft_and_the_heads(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    draft = tiny_kinds.write_dflash(tmp_path / "draft.gguf")
    info = loaded(client, load(tiny_kinds.write_qwen35(tmp_path / "target.gguf"), draft))
    assert [drafter.kind for drafter in info.drafters] == ["dflash", "mtp"]
    for asked, expected in (("auto", "dflash"), ("mtp", "mtp"), ("none", None)):
        speculation = p.Speculation(n_draft_max=3, drafter=asked)
        stats = done(client, msgspec.structs.replace(chat(), speculation=speculation)).stats
        assert set(stats.by_drafter) == {expected} - {None}
        assert stats.accepted == stats.drafted


def test_a_draft_that_the_program_is_too_old_for_is_refused(start: Start, tmp_path: Path) -> None:
    client = start("june")
    draft = tiny_kinds.write_dflash(tmp_path / "draft.gguf", variant="dspark")
    failed = client.expect(p.Error, load(tiny_kinds.write_llama(tmp_path / "target.gguf"), draft))
    assert failed.code == "program"
    assert failed.message.endswith("is too old to draft with DSpark: install a newer one")
    assert not (tmp_path / "started").exists()


def test_dspark_without_a_head_for_it_has_no_least_probability(tmp_path: Path) -> None:
    header = read_header(tiny_kinds.write_dflash(tmp_path / "draft.gguf", variant="dspark"))
    tensors = tuple(one for one in header.tensors if one.name != "conf_proj.weight")
    target = read_header(tiny_kinds.write_llama(tmp_path / "target.gguf"))
    asked = p.Speculation(n_draft_max=3, p_min=0.5)
    for draft, p_min in ((header, "0.5"), (replace(header, tensors=tensors), "0")):
        (drafter,) = pairings(target, draft)
        options = server_options(Path("t.gguf"), drafter, asked, LoadOptions())
        assert options[options.index("--spec-draft-p-min") + 1] == p_min


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("june", "is too old to draft with MTP heads: install a newer one"),
        ("headless", "with MTP heads, the models did not load: llama-server ended (exit status 1)"),
    ],
)
def test_heads_that_the_program_cannot_run_do_not_fail_the_load(
    start: Start, tmp_path: Path, kind: str, why: str
) -> None:
    pytest.importorskip("xllamacpp")
    client = start(kind)
    info = loaded(client, load(tiny_kinds.write_hy_v3(tmp_path / "target.gguf")))
    assert info.drafters == ()
    assert why in (info.speculation_off or "")
    assert info.undrafted == {"mtp": info.speculation_off}
    assert done(client, chat()).stats.drafted == 0
    assert client.latest.text


def test_heads_that_are_declared_and_missing_are_not_asked_to_draft(
    start: Start, tmp_path: Path
) -> None:
    """llama.cpp would end the program."""
    pytest.importorskip("xllamacpp")
    client = start("real")
    info = loaded(client, load(tiny_kinds.write_hy_v3(tmp_path / "target.gguf", strip=True)))
    assert info.drafters == ()
    assert info.speculation_off == "no draft is loaded"
    assert info.undrafted == {"mtp": "its MTP heads were stripped, but its header still declares 1"}
    assert done(client, chat()).stats.drafted == 0


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("june", "is too old to draft with MTP heads: install a newer one"),
        ("headless", "failed to create MTP context"),
    ],
)
def test_heads_that_were_chosen_are_not_replaced(
    start: Start, tmp_path: Path, kind: str, why: str
) -> None:
    client = start(kind)
    asked = load(tiny_kinds.write_hy_v3(tmp_path / "target.gguf"))
    speculation = p.Speculation(n_draft_max=3, drafter="mtp")
    failed = client.expect(p.Error, msgspec.structs.replace(asked, speculation=speculation))
    assert failed.message.endswith(why)
