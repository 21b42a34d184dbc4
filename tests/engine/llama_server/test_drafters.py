"""A program drafts with what the pair has, and the records say who did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eaglechat.wire import protocol as p
from eaglechat.wire.load_options import LoadOptions
from eaglechat.wire.records import Origin
from tests import tiny_kinds
from tests.engine.llama_server.program import started
from tests.engine_client import Client

Start = Callable[[str], Client]
USER = p.Message(role="user", content="abc")


def load(target: Path, draft: Path | None = None) -> p.Load:
    options = LoadOptions(n_ctx=1024, n_threads=1)
    return p.Load(target=str(target), draft=str(draft) if draft else None, options=options)


def chat(n: int = 3, *, enabled: bool = True) -> p.Chat:
    return p.Chat(
        messages=(USER,),
        sampling=p.Sampling(temperature=0.0, seed=1),
        speculation=p.Speculation(n_draft_max=n, enabled=enabled),
        max_tokens=16,
    )


def loaded(client: Client, asked: p.Load) -> p.PairInfo:
    event = client.answer(asked).last
    assert isinstance(event, p.Loaded), event
    return event.pair


def done(client: Client, asked: p.Chat) -> p.Done:
    event = client.answer(asked).last
    assert isinstance(event, p.Done), event
    return event


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


def test_wrong_heads_are_counted_as_such(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    client = start("real")
    loaded(client, load(tiny_kinds.write_hy_v3(tmp_path / "target.gguf", wrong=0.5)))
    stats = done(client, chat()).stats
    assert 0 < stats.accepted < stats.drafted
    assert stats.by_drafter["mtp"].accepted == stats.accepted


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
    assert info.speculation_off is not None
    assert done(client, chat()).stats.drafted == 0
