"""A real llama-server, out of the wheel xllamacpp, beside our own engine on the same models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from eaglechat.engine.auto.planner import PlainChecks
from eaglechat.links.base import Link
from eaglechat.links.http.server import server_link
from eaglechat.settings.model import ServerSettings
from eaglechat.wire import protocol as p
from eaglechat.wire.records import Origin
from tests.engine_client import Asked, Client, engine_in_this_process
from tests.links.engines import chat
from tests.llama_server import N_DRAFT_MAX, LlamaServer, llama_server

pytest.importorskip("xllamacpp")

QUESTION = "What is the Pythagorean theorem?"


@pytest.fixture(scope="module")
def tiny_server(tiny_files: tuple[Path, Path]) -> Iterator[LlamaServer]:
    with llama_server(tiny_files[0], draft=tiny_files[1]) as server:
        yield server


def asked(link: Link, files: tuple[Path, Path], request: p.Chat) -> Asked:
    client = Client(link, files)
    try:
        client.ready()
        client.expect(p.Loaded, client.load())
        return client.answer(request)
    finally:
        link.close()


def served(server: LlamaServer, files: tuple[Path, Path], request: p.Chat) -> Asked:
    return asked(server_link(ServerSettings(name="box", url=server.url)), files, request)


def compare(theirs: Asked, ours: Asked) -> None:
    """The same text, drafted and accepted alike: but for one round, as the server drafts nothing
    for the first token, and no more than the reply may still be long."""
    assert theirs.text == ours.text
    stats, own = theirs.last.stats, ours.last.stats
    assert stats.verify_steps > 5
    assert abs(stats.verify_steps - own.verify_steps) <= 1
    assert abs(stats.accepted - own.accepted) <= N_DRAFT_MAX
    assert abs(stats.tested - own.tested) <= N_DRAFT_MAX


def test_it_drafts_and_accepts_what_our_engine_does(
    tiny_server: LlamaServer, tiny_files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # llama-server plays no plain rounds.
    monkeypatch.setattr(PlainChecks, "is_due", lambda _checks, _length: False)
    compare(
        served(tiny_server, tiny_files, chat()), asked(engine_in_this_process(), tiny_files, chat())
    )


def test_it_shows_the_prompt_and_goes_on_with_a_reply(
    tiny_server: LlamaServer, tiny_files: tuple[Path, Path]
) -> None:
    client = Client(server_link(ServerSettings(name="box", url=tiny_server.url)), tiny_files)
    try:
        client.ready()
        client.answer(p.Load(target=""))
        whole = client.answer(chat()).text
        begun = client.answer(chat(max_tokens=16)).text
        seen = client.answer(p.Render(messages=chat().messages)).last
        message = p.Message(role="assistant", content=begun)
        rest = client.answer(chat(max_tokens=24, messages=(*chat().messages, message)))
    finally:
        client.link.close()
    assert "the cat sat on the mat" in seen.runs[0].text
    assert seen.tokens > 5
    assert begun
    assert whole == begun + rest.text


def test_its_numbers_are_its_own(tiny_server: LlamaServer, tiny_files: tuple[Path, Path]) -> None:
    reply = served(tiny_server, tiny_files, chat())
    rounds = reply.rounds
    end = reply.last.end

    assert end.tokens == 40 == sum(len(round_.tokens) for round_ in rounds)
    tokens = [token for round_ in rounds for token in round_.tokens]
    assert Origin.UNKNOWN not in {token.origin for token in tokens}
    # But for the microsecond that the first token is given.
    assert sum(round_.timings.total_ms for round_ in rounds) == pytest.approx(
        end.timings.generation_ms, abs=0.01
    )
    assert end.timings.draft_ms is None
    assert rounds[-1].n_past == reply.of(p.Prefill)[-1].total + 40


@pytest.mark.slow
@pytest.mark.real
def test_the_built_in_pair_through_run_server(
    real_files: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from eaglechat.cli import main

    words = ["--temperature", "0", "--max-tokens", "24", "--json", QUESTION]
    with llama_server(real_files[0], draft=real_files[1]) as server:
        assert main(["run", "--server", server.url, *words]) == 0
    theirs = json.loads(capsys.readouterr().out)
    assert (theirs["engine"], theirs["server"]) == ("llama-server", server.url)
    asked_for = [theirs["speculation"][name] for name in ("n_draft_max", "shape", "ngram")]
    assert asked_for == [None] * 3

    # llama-server plays no plain rounds.
    monkeypatch.setattr(PlainChecks, "is_due", lambda _checks, _length: False)
    question = (p.Message(role="user", content=QUESTION),)
    speculation = p.Speculation(n_draft_max=N_DRAFT_MAX, shape="chain", ngram=False)
    request = chat(messages=question, speculation=speculation, max_tokens=24)
    ours = asked(engine_in_this_process(), real_files, request)
    # Rounding differs with the size of a batch, and may turn one token for another.
    assert theirs["text"][:60] == ours.text[:60]
    # Within one round, which is all that is drafted otherwise.
    for count in ("accepted", "tested"):
        difference = abs(theirs["speculation"][count] - getattr(ours.last.stats, count))
        assert difference <= N_DRAFT_MAX
