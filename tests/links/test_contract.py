"""What every link does: the real server over pipes, the engine in this process, the script.

What the app's tests see of the script is what its users see of the engine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from eaglechat.links.base import ENGINE_DIED
from eaglechat.links.http.openai import LlamaServer
from eaglechat.wire import protocol as p
from eaglechat.wire.protocol import OWN_ENGINE
from eaglechat.wire.records import FinishReason
from eaglechat.wire.worker import Died
from tests.engine_client import Client
from tests.links.engines import chat, endless
from tests.tui.scripted import ScriptedEngine


def is_http(client: Client) -> bool:
    return client.kind == "http"


# --- starting ---


def test_an_engine_starts_once_and_says_what_it_is_and_can_do(client: Client) -> None:
    assert client.link.hello is None
    hello = client.ready()
    client.link.start()
    client.link.pump()

    assert client.heard == [hello]
    can = LlamaServer.can if is_http(client) else OWN_ENGINE
    assert (hello.protocol, hello.can) == (p.PROTOCOL_VERSION, can)


def test_a_request_may_be_sent_before_the_engine_is_ready(client: Client) -> None:
    client.link.start()
    load = client.answer(client.load())

    assert isinstance(client.heard[0], p.Hello)
    assert isinstance(load.last, p.Loaded)


def test_nobody_is_told_before_the_client_looks(client: Client) -> None:
    client.ready()
    before = len(client.heard)
    client.ask(chat())
    assert len(client.heard) == before


def test_who_no_longer_watches_is_told_nothing(client: Client) -> None:
    told: list[object] = []
    unwatch = client.link.watch(told.append)
    unwatch()
    unwatch()
    client.ready()
    assert told == []


# --- loading ---


def test_a_load_reports_its_progress_and_ends_with_the_pair(client: Client) -> None:
    client.ready()
    load = client.answer(client.load())

    fractions = [event.fraction for event in load.of(p.Loading)]
    assert load.of(p.Loading)[0].stage == ("server" if is_http(client) else "target")
    assert fractions == sorted(fractions)
    pair = load.last.pair
    assert pair.speculation_off is None
    assert pair.target.path == str(client.files[0])
    # A server keeps to itself which draft it has.
    drafts = [one.file.path for one in pair.drafters if one.file is not None]
    assert drafts == ([] if is_http(client) else [str(client.files[1])])
    assert {event.id for event in load.events} == {load.id}


def test_a_new_load_cancels_the_one_it_replaces(client: Client) -> None:
    client.ready()
    first, second = client.ask(client.load()), client.ask(client.load(draft=False))
    client.end(first, second)

    # It may have been done before the cancel came; it never comes after what replaced it.
    assert first.last in (
        p.Error(id=first.id, code="cancelled", message="the load was cancelled"),
        *first.of(p.Loaded),
    )
    assert client.heard.index(first.last) < client.heard.index(second.events[0])
    assert second.last.pair.drafters == ()


def test_a_load_that_waits_can_be_cancelled_and_leaves_the_pair_loaded(loaded: Client) -> None:
    reply, load = loaded.ask(chat()), loaded.ask(loaded.load(draft=False))
    loaded.link.send(p.Cancel(id=load.id))
    loaded.end(reply, load)

    assert reply.last.end.finish_reason is FinishReason.LENGTH
    assert load.events == [p.Error(id=load.id, code="cancelled", message="the load was cancelled")]
    loaded.expect(p.Done, chat())


def test_files_that_are_refused_leave_the_pair_loaded(loaded: Client, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.gguf")
    if isinstance(loaded.link, ScriptedEngine):
        loaded.link.load_error = ("preflight", f"the target {missing} does not exist")
    *_, error = loaded.answer(p.Load(target=missing)).events

    if is_http(loaded):
        assert (error.code, f"no model named “{missing}”" in error.message) == ("missing", True)
    else:
        assert (error.code, "does not exist" in error.message) == ("preflight", True)
    loaded.expect(p.Done, chat())


def test_after_unload_there_is_no_pair(loaded: Client) -> None:
    assert loaded.answer(chat()).of(p.Round)
    unload = loaded.answer(p.Unload())
    assert unload.events == [p.Unloaded(id=unload.id)]

    for request in (chat(), chat(begun=(1,))):
        asked = loaded.answer(request)
        (error,) = asked.events
        assert (error.id, error.code) == (asked.id, "no_pair")


# --- the end ---


# One in this process lives as long as its client.
@pytest.mark.parametrize("client", ["process", "scripted"], indirect=True)
def test_a_dying_engine_answers_all_that_wait_and_starts_again(loaded: Client) -> None:
    assert loaded.kill is not None
    running, waiting = loaded.ask(endless(loaded)), loaded.ask(loaded.load())
    loaded.until(lambda: running.of(p.Round), "a round")
    loaded.kill()
    loaded.end(running, waiting)

    died = next(news for news in loaded.heard if isinstance(news, Died))
    reason = "the engine stopped by itself (signal 9)"
    assert (died.exit_status, died.why) == (-9, reason)
    assert died.log_tail
    assert loaded.link.hello is None
    for asked in (running, waiting):
        error = p.Error(id=asked.id, code=ENGINE_DIED, message=reason)
        assert asked.last == error
        assert loaded.heard.index(died) < loaded.heard.index(error)

    refused = loaded.answer(chat())
    assert refused.events == [
        p.Error(id=refused.id, code=ENGINE_DIED, message="the engine is not running")
    ]
    loaded.ready()
    # What was loaded died with it.
    assert loaded.answer(chat()).last.code == "no_pair"
    loaded.answer(loaded.load())
    loaded.expect(p.Done, chat())


def test_an_engine_that_is_closed_is_asked_no_more_and_heard_no_more(loaded: Client) -> None:
    running, waiting = loaded.ask(endless(loaded)), loaded.ask(chat())
    loaded.until(lambda: running.of(p.Round), "a round")
    loaded.link.close()
    heard = len(loaded.heard)
    loaded.link.pump(0.05)

    assert loaded.link.hello is None
    assert loaded.heard[heard:] == [
        p.Error(id=asked.id, code=ENGINE_DIED, message="the engine was closed")
        for asked in (running, waiting)
    ]
    loaded.link.send(p.Cancel())
    loaded.link.close()

    loaded.ready()
    loaded.answer(loaded.load())
    assert loaded.answer(chat()).last.end.finish_reason is FinishReason.LENGTH
    assert not any(isinstance(news, Died) for news in loaded.heard)
