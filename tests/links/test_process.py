"""What an engine process of ours does beside what every link does (test_contract.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from eaglechat.wire import protocol as p
from eaglechat.wire.records import FinishReason
from tests import tiny
from tests.engine_client import Client, load
from tests.links.engines import USER, chat


def test_a_session_from_hello_to_shutdown(
    start: Callable[..., Client], tiny_files: tuple[Path, Path]
) -> None:
    client = start()
    assert "llama-cpp-python" in client.ready().llama_cpp

    pair = client.expect(p.Loaded, load(tiny_files, n_ctx=512)).pair
    assert (pair.n_ctx, pair.n_threads, pair.speculation_off) == (512, 1, None)
    assert pair.drafter is not None
    assert pair.drafter.layers == tiny.TARGET_LAYERS

    reply = client.answer(chat(speculation=p.Speculation(n_draft_max=2)))
    assert reply.last.stats.accepted > 0

    answer = p.Message(role="assistant", content="x" + reply.text + reply.last.end.tail)
    messages = (USER, answer, p.Message(role="user", content="and"))
    timings = client.answer(chat(messages=messages)).last.end.timings
    assert timings.reused_tokens > 40
    assert timings.prefill_tokens < 12

    process = client.process
    client.link.hand_over(p.Shutdown())
    assert client.death().exit_status == 0
    assert not process.is_running()


def test_a_conversation_beyond_the_context_says_which_turns_are_in_it(
    start: Callable[..., Client], tiny_files: tuple[Path, Path]
) -> None:
    client = start()
    client.answer(load(tiny_files, n_ctx=256))
    messages = tuple(
        p.Message(role="assistant" if index % 2 else "user", content="the quick brown fox")
        for index in range(41)
    )
    reply = client.answer(chat(messages=messages))

    moved = reply.events[0]
    assert isinstance(moved, p.Progress)
    assert isinstance(moved.step, p.Window)
    assert (moved.id, moved.step.kv_kept) == (reply.id, False)
    assert 10 < moved.step.first_turn < 20
    assert reply.last.end.finish_reason is FinishReason.LENGTH


def test_a_template_that_never_ends_can_be_cancelled(
    start: Callable[..., Client], tmp_path: Path
) -> None:
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    asked = "{% if 'endlessly' in messages[-1].content %}" + endless + "{% endif %}"
    target = tiny.write_target(tmp_path / "endless.gguf", template=asked + tiny.TEMPLATE)
    client = start()
    client.answer(load((target, None)))
    reply = client.ask(chat(messages=(p.Message(role="user", content="endlessly"),)))
    client.link.send(p.Cancel())
    client.end(reply)
    assert reply.last.end.finish_reason is FinishReason.CANCELLED
    assert client.answer(chat()).last.end.finish_reason is FinishReason.LENGTH


def test_bad_requests_are_answered_in_a_sentence_and_the_engine_lives_on(
    start: Callable[..., Client], tiny_files: tuple[Path, Path]
) -> None:
    client = start()
    process = client.process
    for files, why in (
        ((Path("~nobody-of-this-name/x.gguf"), None), "does not exist"),
        ((tiny_files[1], tiny_files[0]), "swapped"),
    ):
        refused = client.answer(load(files)).last
        assert (refused.code, why in refused.message) == ("preflight", True)

    client.answer(load(tiny_files, n_ctx=256))
    long = (p.Message(role="user", content="long " * 400),)
    too_long = client.answer(chat(messages=long)).last
    assert (too_long.code, "the context holds 256" in too_long.message) == ("prompt", True)
    client.expect(p.Done, chat())
    assert process.is_running()
