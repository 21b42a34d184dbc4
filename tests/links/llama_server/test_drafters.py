"""A program drafts with what the pair has, and the records say who did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from eaglechat.engine.auto.planner import PlainChecks
from eaglechat.wire import protocol as p
from eaglechat.wire.records import Origin
from tests import tiny_kinds
from tests.engine.kind_pairs import KINDS
from tests.engine_client import Client, engine_in_this_process
from tests.engine_client import load as load_of
from tests.links.engines import chat as chat_of
from tests.links.http.test_llama_server import compare
from tests.links.llama_server.program import started

pytestmark = pytest.mark.slow

Start = Callable[[str], Client]


USER = p.Message(role="user", content="abc")


def load(target: Path, draft: Path | None = None) -> p.Load:
    return load_of((target, draft), n_ctx=1024)


def chat(n: int = 3, *, enabled: bool = True, max_tokens: int = 16) -> p.Chat:
    speculation = p.Speculation(n_draft_max=n, enabled=enabled)
    return chat_of(messages=(USER,), speculation=speculation, max_tokens=max_tokens)


def loaded(client: Client, asked: p.Load) -> p.PairInfo:
    return client.expect(p.Loaded, asked).pair


def done(client: Client, asked: p.Chat) -> p.Done:
    return client.expect(p.Done, asked)


def drafters(client: Client) -> set[str | None]:
    """Who drafted what was accepted in the latest reply, by its records."""
    tokens = [token for round_ in client.latest.rounds for token in round_.tokens]
    assert {token.drafter for token in tokens if token.origin is not Origin.ACCEPTED} == {None}
    return {token.drafter for token in tokens if token.origin is Origin.ACCEPTED}


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("hy_v3", "draft-mtp"),
        ("qwen35", "draft-mtp"),
        ("hy_v3, sidecar", "draft-mtp"),
        ("qwen35, sidecar", "draft-mtp"),
        ("gemma4, assistant", "draft-mtp"),
        ("llama, dflash", "draft-dflash"),
        ("llama, dspark", "draft-dspark"),
        ("llama, dspark-bonus", "draft-dspark"),
        ("llama, dflash2", "draft-dflash"),
        ("llama, model", "draft-simple"),
    ],
)
def test_a_program_drafts_and_accepts_what_our_engine_does(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, word: str
) -> None:
    """With drafters that are wrong now and then."""
    pytest.importorskip("xllamacpp")
    made = KINDS[kind]
    target, draft = made.write(tmp_path)
    client = start("real")
    info = loaded(client, load(target, draft))
    (drafter,) = info.drafters
    assert (drafter.kind,) == made.drafters
    assert (drafter.file and drafter.file.path) == (str(draft) if draft else None)
    assert drafter.kind not in info.undrafted

    # llama-server plays no plain rounds.
    monkeypatch.setattr(PlainChecks, "is_due", lambda _checks, _length: False)
    own = Client(engine_in_this_process())
    own.ready()
    loaded(own, load(target, draft))
    theirs, ours = (one.answer(chat(max_tokens=40)) for one in (client, own))
    own.link.close()
    compare(theirs, ours)
    stats = theirs.last.stats
    assert stats.by_drafter[drafter.kind].accepted == stats.accepted < stats.drafted
    assert drafters(client) == {drafter.kind}
    (options,) = started(tmp_path)
    assert ("-md" in options) is (draft is not None)
    assert options[options.index("--spec-type") + 1] == word


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


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("june", "is too old to draft with MTP heads: install a newer one"),
        ("headless", "failed to create MTP context"),
    ],
)
def test_heads_that_the_program_cannot_run_fail_the_load_only_if_they_were_chosen(
    start: Start, tmp_path: Path, kind: str, why: str
) -> None:
    pytest.importorskip("xllamacpp")
    client = start(kind)
    asked = load(tiny_kinds.write_hy_v3(tmp_path / "target.gguf"))
    speculation = p.Speculation(n_draft_max=3, drafter="mtp")
    failed = client.expect(p.Error, msgspec.structs.replace(asked, speculation=speculation))
    assert failed.message.endswith(why)
    info = loaded(client, asked)
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
