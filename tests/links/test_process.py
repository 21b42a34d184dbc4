"""What an engine process of ours does beside what every link does (test_contract.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from eaglechat.links.base import Died, Ready
from eaglechat.wire import protocol as p
from eaglechat.wire.records import FinishReason
from tests import tiny
from tests.links.processes import USER, Client, of, process_of


def test_a_session_from_hello_to_shutdown(
    start: Callable[..., Client], tiny_files: tuple[Path, Path]
) -> None:
    client = start()
    assert "llama-cpp-python" in client.until(Ready)[-1].hello.llama_cpp

    *loading, loaded = client.load(tiny_files, n_ctx=512)
    assert loading[-1].fraction == 1.0
    pair = loaded.pair
    assert (pair.n_ctx, pair.n_threads, pair.speculation_off) == (512, 1, None)
    assert pair.target_layers == tiny.TARGET_LAYERS

    client.chat(speculation=p.Speculation(n_draft_max=2))
    events = client.until(p.Done)
    rounds = [event.round for event in of(events, p.RoundDone)]
    done = events[-1]
    assert done.stats.accepted > 0

    reply = "".join(round_.text for round_ in rounds) + done.end.tail
    answer = p.Message(role="assistant", content="x" + reply)
    client.chat(messages=(USER, answer, p.Message(role="user", content="and")))
    timings = client.until(p.Done)[-1].end.timings
    assert timings.reused_tokens > 40
    assert timings.prefill_tokens < 12

    process = process_of(client)
    client.engine.hand_over(p.Shutdown())
    died = client.until(Died)[-1]
    assert died.exit_status == 0
    assert not process.is_running()


def test_a_conversation_beyond_the_context_says_which_turns_are_in_it(
    start: Callable[..., Client], tiny_files: tuple[Path, Path]
) -> None:
    client = start()
    client.load(tiny_files, n_ctx=256)
    messages = tuple(
        p.Message(role="assistant" if index % 2 else "user", content="the quick brown fox")
        for index in range(41)
    )
    client.chat(messages=messages)
    events = client.until(p.Done)

    assert isinstance(events[0], p.WindowMoved)
    assert (events[0].id, events[0].window.kv_kept) == (client.request_id, False)
    assert 10 < events[0].window.first_turn < 20
    assert events[-1].end.finish_reason is FinishReason.LENGTH


def test_a_template_that_never_ends_can_be_cancelled(
    start: Callable[..., Client], tmp_path: Path
) -> None:
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    asked = "{% if 'endlessly' in messages[-1].content %}" + endless + "{% endif %}"
    target = tiny.write_target(tmp_path / "endless.gguf", template=asked + tiny.TEMPLATE)
    client = start()
    client.load((target, None))
    client.chat(messages=(p.Message(role="user", content="endlessly"),))
    client.engine.send(p.Cancel())
    assert client.until((p.Done, p.Error))[-1].end.finish_reason is FinishReason.CANCELLED
    client.chat()
    assert client.until((p.Done, p.Error))[-1].end.finish_reason is FinishReason.LENGTH


def test_bad_requests_are_answered_in_a_sentence_and_the_engine_lives_on(
    start: Callable[..., Client], tiny_files: tuple[Path, Path], tmp_path: Path
) -> None:
    client = start()
    process = process_of(client)
    text = tmp_path / "text.gguf"
    text.write_text("Once upon a time")

    missing = client.load((tmp_path / "missing.gguf", None))[-1]
    assert (missing.id, missing.code) == (client.request_id, "preflight")
    assert "does not exist" in missing.message
    nobody = client.load((Path("~nobody-of-this-name/x.gguf"), None))[-1]
    assert nobody.code == "preflight"
    assert "not a GGUF" in client.load((text, None))[-1].message
    assert "swapped" in client.load((tiny_files[1], tiny_files[0]))[-1].message

    client.load(tiny_files, n_ctx=256)
    client.chat(messages=(p.Message(role="user", content="long " * 400),))
    too_long = client.until(p.Error)[-1]
    assert (too_long.code, "the context holds 256" in too_long.message) == ("prompt", True)
    client.chat()
    client.until(p.Done)
    assert process.is_running()


def test_a_load_can_be_cancelled(
    start: Callable[..., Client], real_files: tuple[Path, Path]
) -> None:
    client = start()
    client.until(Ready)
    target, draft = map(str, real_files)
    client.request(p.Load(target=target, draft=draft))
    client.engine.send(p.Cancel())

    error = client.until((p.Error, p.Loaded))[-1]

    assert (error.id, error.code) == (client.request_id, "cancelled")
