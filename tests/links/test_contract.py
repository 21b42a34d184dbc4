"""What every link does: the real server over pipes, the engine in this process, the script.

What the app's tests see of the script is what its users see of the engine.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from eaglechat.engine.process.local import LocalEngine
from eaglechat.links.base import ENGINE_DIED, Died, Ready, Starting
from eaglechat.links.http.link import HttpLink
from eaglechat.links.process import EngineProcess
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire import protocol as p
from eaglechat.wire.bench_records import BenchPrompt
from eaglechat.wire.capabilities import EVERYTHING, Capabilities
from eaglechat.wire.records import FinishReason
from eaglechat.wire.stats import stats_of
from tests.links.engines import ENGINE, ROOT, Client, chat
from tests.llama_server import llama_server
from tests.tui.scripted import ScriptedEngine

BENCH = p.Bench(prompts=(BenchPrompt("cat", "the cat sat"),), n=(2,), repeats=2, max_tokens=8)


OUR_OWN = ["process", "local", "scripted"]
of_our_own = pytest.mark.parametrize("client", OUR_OWN, indirect=True)
"""For what somebody else's server does not do."""


@pytest.fixture(scope="module")
def server_url(tiny_files: tuple[Path, Path]) -> Iterator[str]:
    pytest.importorskip("xllamacpp")
    target, draft = tiny_files
    with llama_server(target, draft=draft) as server:
        yield server.url


@pytest.fixture(params=[*OUR_OWN, "http"])
def client(
    request: pytest.FixtureRequest,
    tiny_files: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Client]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("EAGLECHAT_HOME", str(tmp_path / "home"))
    if request.param == "process":
        process = EngineProcess(ENGINE, tmp_path / "log")
        client = Client(process, tiny_files, kill=lambda: os.kill(_pid(process), signal.SIGKILL))
    elif request.param == "local":
        client = Client(LocalEngine(), tiny_files)
    elif request.param == "http":
        server = ServerSettings(name="box", url=request.getfixturevalue("server_url"))
        client = Client(HttpLink(server), tiny_files)
    else:
        script = ScriptedEngine()
        client = Client(script, tiny_files, kill=lambda: script.die("the end", exit_status=-9))
    yield client
    client.link.close()


def _is_http(client: Client) -> bool:
    return isinstance(client.link, HttpLink)


def _pid(engine: EngineProcess) -> int:
    assert engine._running is not None
    return engine._running.process.pid


@pytest.fixture
def loaded(client: Client) -> Client:
    client.ready()
    client.answer(client.load())
    return client


# --- starting ---


def test_an_engine_starts_once_and_says_what_it_is_and_can_do(client: Client) -> None:
    assert client.link.hello is None
    hello = client.ready()
    client.link.start()
    client.link.pump()

    assert client.heard == [Starting(), Ready(hello)]
    can = Capabilities(origins=True) if _is_http(client) else EVERYTHING
    assert (hello.protocol, hello.can) == (p.PROTOCOL_VERSION, can)


def test_a_request_may_be_sent_before_the_engine_is_ready(client: Client) -> None:
    client.link.start()
    load = client.answer(client.load())

    assert [type(news) for news in client.heard[:2]] == [Starting, Ready]
    assert isinstance(load.events[-1], p.Loaded)


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
    assert load.of(p.Loading)[0].stage == "target"
    assert fractions == sorted(fractions)
    pair = load.events[-1].pair
    assert pair.speculation_off is None
    assert pair.target.path == str(client.files[0])
    # A server keeps to itself which draft it has.
    assert pair.draft is None if _is_http(client) else pair.draft.path == str(client.files[1])
    assert {event.id for event in load.events} == {load.id}


def test_a_new_load_cancels_the_one_it_replaces(client: Client) -> None:
    client.ready()
    first, second = client.ask(client.load()), client.ask(client.load(draft=False))
    client.end(first, second)

    # It may have been done before the cancel came; it never comes after what replaced it.
    assert first.events[-1] in (
        p.Error(id=first.id, code="cancelled", message="the load was cancelled"),
        *first.of(p.Loaded),
    )
    assert client.heard.index(first.events[-1]) < client.heard.index(second.events[0])
    assert second.events[-1].pair.draft is None


def test_a_load_that_waits_can_be_cancelled_and_leaves_the_pair_loaded(loaded: Client) -> None:
    reply, load = loaded.ask(chat()), loaded.ask(loaded.load(draft=False))
    loaded.link.send(p.Cancel(id=load.id))
    loaded.end(reply, load)

    assert reply.events[-1].end.finish_reason is FinishReason.LENGTH
    assert load.events == [p.Error(id=load.id, code="cancelled", message="the load was cancelled")]
    assert isinstance(loaded.answer(chat()).events[-1], p.Done)


def test_files_that_are_refused_leave_the_pair_loaded(loaded: Client, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.gguf")
    if isinstance(loaded.link, ScriptedEngine):
        loaded.link.load_error = ("preflight", f"the target {missing} does not exist")
    *_, error = loaded.answer(p.Load(target=missing)).events

    if _is_http(loaded):
        assert (error.code, f"no model named “{missing}”" in error.message) == ("missing", True)
    else:
        assert (error.code, "does not exist" in error.message) == ("preflight", True)
    assert isinstance(loaded.answer(chat()).events[-1], p.Done)


def test_after_unload_there_is_no_pair(loaded: Client) -> None:
    assert loaded.answer(chat()).of(p.RoundDone)
    unload = loaded.answer(p.Unload())
    assert unload.events == [p.Unloaded(id=unload.id)]

    for request in (chat(), BENCH):
        asked = loaded.answer(request)
        (error,) = asked.events
        assert (error.id, error.code) == (asked.id, "no_pair")


# --- replies ---


def test_a_reply_is_prefill_rounds_and_done(loaded: Client) -> None:
    reply = loaded.answer(chat())

    kinds = [type(event) for event in reply.events]
    n_prefill = kinds.count(p.PrefillProgress)
    rounds = [event.round for event in reply.of(p.RoundDone)]
    assert kinds == [p.PrefillProgress] * n_prefill + [p.RoundDone] * len(rounds) + [p.Done]
    assert reply.events[n_prefill - 1].prefill.done == reply.events[0].prefill.total
    done = reply.events[-1]
    assert done.stats == stats_of(rounds)
    assert done.end.tokens == sum(len(round_.tokens) for round_ in rounds) == 40
    assert done.end.finish_reason is FinishReason.LENGTH
    assert [round_.index for round_ in rounds] == list(range(len(rounds)))


@of_our_own
def test_requests_are_answered_one_after_the_other(loaded: Client) -> None:
    asked = [loaded.ask(request) for request in (chat(), BENCH, chat(max_tokens=3), p.Unload())]
    assert len({one.id for one in asked}) == 4
    loaded.end(*asked)

    answers = [event for event in loaded.heard if hasattr(event, "id")]
    assert answers[-sum(len(one.events) for one in asked) :] == [
        event for one in asked for event in one.events
    ]
    assert [type(one.events[-1]) for one in asked] == [p.Done, p.BenchDone, p.Done, p.Unloaded]


@of_our_own
def test_changes_reach_a_running_reply_and_the_one_that_waits(loaded: Client) -> None:
    first, second = loaded.ask(chat(max_tokens=1000)), loaded.ask(chat(max_tokens=8))
    loaded.until(lambda: first.of(p.RoundDone), "a round")
    loaded.link.send(p.Set(n_draft_max=1))
    loaded.end(first, second)

    lengths = [event.round.n_draft_max for event in first.of(p.RoundDone)]
    assert (lengths[0], lengths[-1]) == (3, 1)
    assert lengths == sorted(lengths, reverse=True)
    assert {event.round.n_draft_max for event in second.of(p.RoundDone)} == {1}


def test_a_cancel_ends_the_request_that_it_names(loaded: Client) -> None:
    first, second, third = (loaded.ask(chat(max_tokens=length)) for length in (None, None, 8))
    loaded.until(lambda: first.of(p.RoundDone), "a round")
    loaded.link.send(p.Cancel(id=second.id))
    loaded.link.send(p.Cancel(id=first.id))
    loaded.end(first, second, third)

    reasons = [one.events[-1].end.finish_reason for one in (first, second, third)]
    assert reasons == [FinishReason.CANCELLED, FinishReason.CANCELLED, FinishReason.LENGTH]
    assert first.events[-1].end.tokens > 0
    assert second.events[-1].end.tokens == 0


@of_our_own
def test_a_cancel_that_names_none_ends_them_all(loaded: Client) -> None:
    asked = [loaded.ask(chat(max_tokens=None)), loaded.ask(BENCH)]
    loaded.link.send(p.Cancel())
    loaded.end(*asked)

    assert asked[0].events[-1].end.finish_reason is FinishReason.CANCELLED
    assert asked[1].events[-1] == p.BenchDone(id=asked[1].id, cancelled=True)


def test_a_cancel_of_what_is_over_is_nothing(loaded: Client) -> None:
    over = loaded.answer(chat())
    loaded.link.send(p.Cancel(id=over.id))
    assert loaded.answer(chat()).events[-1].end.finish_reason is FinishReason.LENGTH


def test_a_listener_may_ask_on(loaded: Client) -> None:
    heard: list[p.Answer] = []

    def go_on(event: p.Answer) -> None:
        heard.append(event)
        if isinstance(event, p.Done) and len(heard) < 100:
            loaded.link.request(p.Unload(), heard.append)

    loaded.link.request(chat(max_tokens=2), go_on)
    loaded.until(lambda: heard and isinstance(heard[-1], p.Unloaded), "the second request's end")


# --- prompts ---


@of_our_own
def test_a_prompt_is_shown_as_the_reply_reads_it(loaded: Client) -> None:
    render = p.Render(messages=chat().messages)
    (shown,) = loaded.answer(render).events

    assert isinstance(shown, p.Rendered)
    assert "the cat sat on the mat" in "".join(run.text for run in shown.runs)
    assert any(run.is_control for run in shown.runs)
    (prefill, *_) = loaded.answer(chat()).of(p.PrefillProgress)
    # All but the last token, which the first round decodes.
    assert prefill.prefill.total in (shown.tokens, shown.tokens - 1)


@of_our_own
def test_a_prompt_that_is_only_shown_changes_nothing(loaded: Client) -> None:
    first = loaded.answer(chat(max_tokens=2))
    other = (p.Message(role="user", content="something else altogether"),)
    for _ in range(12):
        loaded.answer(p.Render(messages=other))
    again = loaded.answer(chat(max_tokens=2)).of(p.PrefillProgress)[0].prefill
    assert again.reused >= again.total - 1 > 0
    assert first.events


@of_our_own
def test_without_a_pair_there_is_no_prompt(client: Client) -> None:
    client.ready()
    (error,) = client.answer(p.Render(messages=chat().messages)).events
    assert error.code == "no_pair"


# --- benches ---


@of_our_own
def test_a_bench_reports_each_run_and_its_end(loaded: Client) -> None:
    bench = loaded.answer(BENCH)

    runs = [event.run for event in bench.of(p.BenchRunDone)]
    assert sorted((run.setting, run.repeat) for run in runs) == [
        ("2", 0), ("2", 1), ("plain", 0), ("plain", 1),
    ]  # fmt: skip
    assert {run.tokens for run in runs} == {8}
    assert bench.events[-1] == p.BenchDone(id=bench.id, cancelled=False)


@of_our_own
def test_a_bench_goes_on_where_another_ended(loaded: Client) -> None:
    bench = loaded.answer(msgspec.structs.replace(BENCH, first_repeat=2, repeats=1))
    assert {event.run.repeat for event in bench.of(p.BenchRunDone)} == {2}


@of_our_own
def test_a_bench_by_turns_measures_the_same_replies(loaded: Client) -> None:
    by_turns = msgspec.structs.replace(BENCH, by_turns=True)
    counts = [
        sorted((e.run.setting, e.run.repeat, e.run.n_accepted) for e in asked.of(p.BenchRunDone))
        for asked in map(loaded.answer, (BENCH, by_turns, by_turns))
    ]
    assert counts[0] == counts[1] == counts[2]
    assert len(counts[0]) == 4
    assert isinstance(loaded.answer(chat()).events[-1], p.Done)


@of_our_own
def test_a_bench_can_tell_where_the_time_of_a_round_goes(loaded: Client) -> None:
    bench = loaded.answer(msgspec.structs.replace(BENCH, profile=True))
    assert [event.profile.setting for event in bench.of(p.BenchProfiled)] == ["plain", "2"]
    assert not bench.of(p.BenchRunDone)
    assert bench.events[-1] == p.BenchDone(id=bench.id, cancelled=False)


@of_our_own
def test_a_bench_without_a_draft_has_nothing_to_compare(client: Client) -> None:
    client.ready()
    client.answer(client.load(draft=False))
    (error,) = client.answer(BENCH).events
    assert (error.code, error.message) == (
        "bench",
        "there is nothing to compare: no draft is loaded",
    )


# --- the end ---


# One in this process lives as long as its client.
@pytest.mark.parametrize("client", ["process", "scripted"], indirect=True)
def test_a_dying_engine_answers_all_that_wait_and_starts_again(loaded: Client) -> None:
    assert loaded.kill is not None
    running, waiting = loaded.ask(chat(max_tokens=None)), loaded.ask(loaded.load())
    loaded.until(lambda: running.of(p.RoundDone), "a round")
    loaded.kill()
    loaded.end(running, waiting)

    died = next(news for news in loaded.heard if isinstance(news, Died))
    reason = "the engine stopped by itself (signal 9)"
    assert (died.exit_status, died.reason) == (-9, reason)
    assert died.log_tail
    assert loaded.link.hello is None
    for asked in (running, waiting):
        error = p.Error(id=asked.id, code=ENGINE_DIED, message=reason)
        assert asked.events[-1] == error
        assert loaded.heard.index(died) < loaded.heard.index(error)

    refused = loaded.answer(chat())
    assert refused.events == [
        p.Error(id=refused.id, code=ENGINE_DIED, message="the engine is not running")
    ]
    loaded.ready()
    # What was loaded died with it.
    assert loaded.answer(chat()).events[-1].code == "no_pair"
    loaded.answer(loaded.load())
    assert isinstance(loaded.answer(chat()).events[-1], p.Done)


def test_an_engine_that_is_closed_is_asked_no_more_and_heard_no_more(loaded: Client) -> None:
    running, waiting = loaded.ask(chat(max_tokens=None)), loaded.ask(chat())
    loaded.until(lambda: running.of(p.RoundDone), "a round")
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
    assert loaded.answer(chat()).events[-1].end.finish_reason is FinishReason.LENGTH
    assert not any(isinstance(news, Died) for news in loaded.heard)
