"""What `eaglechat run` prints of a reply, and what the reply is asked with."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from eaglechat.chat.recording import Recording, Terms
from eaglechat.cli import run
from eaglechat.wire.protocol import OWN_ENGINE, PROTOCOL_VERSION, Done, Hello, Progress, Settled
from eaglechat.wire.records import (
    FinishReason,
    Origin,
    Part,
    ReplyEnd,
    ReplyTimings,
    Round,
    RoundTimings,
    Token,
)
from eaglechat.wire.stats import stats_of
from tests import tiny
from tests.cli.run.running import PROMPT, Runner
from tests.links.http.fault_server import Handler, fault_server
from tests.tui.scripted_reports import pair_info

SCHEMA = {
    "text": str,
    "reasoning": str,
    "tokens": int,
    "finish_reason": str,
    "error": type(None),
    "pair": str,
    "engine": str,
    "server": type(None),
    "left_out": list,
    "context": {"size": int, "used": int},
    "speculation": {
        "n_draft_max": int,
        "shape": str,
        "ngram": bool,
        "drafter": str,
        "rounds": int,
        "drafted": int,
        "tested": int,
        "accepted": int,
        "acceptance_rate": float,
        "mean_accepted_length": float,
        "per_position": list,
        "trees": int,
        "by_drafter": {"eagle3": {"rounds": int, "drafted": int, "tested": int, "accepted": int}},
    },
    "against_plain": type(None),
    "parts": {
        "answer": {
            "tokens": int,
            "tokens_per_second": float,
            "acceptance_rate": float,
            "mean_accepted_length": float,
        }
    },
    "timings": {
        "load_ms": float,
        "prefill_ms": float,
        "prefill_tokens": int,
        "generation_ms": float,
        "tokens_per_second": float,
        "draft_ms": float,
        "verify_ms": float,
    },
}


def shape(value: Any) -> Any:
    return {k: shape(v) for k, v in value.items()} if isinstance(value, dict) else type(value)


def test_a_reply_streams_to_stdout_and_the_summary_to_stderr(eaglechat: Runner) -> None:
    ended = eaglechat(PROMPT)

    assert ended.status == 0
    assert len(ended.out.strip()) > 20
    assert "40 tokens" in ended.err
    assert "accepted" in ended.err
    assert "token limit reached" in ended.err


def test_the_json_object_has_exactly_the_promised_shape(eaglechat: Runner) -> None:
    ended = eaglechat("--json", "--no-ngram", "--n-draft-max", "2", PROMPT)

    report = json.loads(ended.out)
    assert ended.out.count("\n") == 1
    against = report["against_plain"]
    assert list(against) == ["verdict", "speed_up", "error", "plain_tokens_per_second"]
    # How long a reply has to be until something is told depends on the machine.
    report["against_plain"] = None
    assert shape(report) == SCHEMA
    assert list(report) == list(SCHEMA)
    assert (report["tokens"], report["finish_reason"]) == (40, "length")
    assert report["pair"] == "target + draft"
    counts = report["speculation"]
    assert (counts["n_draft_max"], counts["shape"], counts["ngram"]) == (2, "auto", False)
    assert counts["accepted"] > 0
    assert report["text"] == eaglechat(PROMPT).out.removesuffix("\n")


def test_the_trace_holds_the_rounds_the_report_counts(eaglechat: Runner, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"

    report = json.loads(eaglechat("--json", "--trace", str(trace), PROMPT).out)

    rounds = [msgspec.json.decode(line, type=Round) for line in trace.read_bytes().splitlines()]
    stats, counts = stats_of(rounds), report["speculation"]
    assert [round_.index for round_ in rounds] == list(range(counts["rounds"]))
    assert "".join(round_.text for round_ in rounds) == report["text"]
    assert (stats.drafted, stats.tested) == (counts["drafted"], counts["tested"])
    assert stats.accepted == counts["accepted"]
    assert counts["acceptance_rate"] == stats.accepted / stats.tested
    assert counts["mean_accepted_length"] == 1 + stats.accepted / stats.verify_steps
    assert counts["per_position"] == list(stats.per_position)
    assert report["timings"]["verify_ms"] == pytest.approx(
        sum(round_.timings.verify_ms for round_ in rounds)
    )


@pytest.mark.parametrize(
    "plain", [["--no-speculation"], ["--n-draft-max", "0"]], ids=["off", "n_draft_max 0"]
)
def test_plain_decoding_writes_the_same_text_and_drafts_nothing(
    eaglechat: Runner, plain: list[str]
) -> None:
    drafted = json.loads(eaglechat("--json", PROMPT).out)
    report = json.loads(eaglechat("--json", *plain, PROMPT).out)

    assert report["text"] == drafted["text"]
    counts = report["speculation"]
    assert (counts["n_draft_max"], counts["drafted"], counts["tested"]) == (0, 0, 0)
    assert (counts["rounds"], counts["acceptance_rate"], counts["per_position"]) == (40, 0.0, [])
    assert report["timings"]["draft_ms"] == 0.0


def test_a_target_without_a_draft_speculates_from_its_own_words(
    eaglechat: Runner, tiny_files: tuple[Path, Path]
) -> None:
    counts = {}
    for flags in (("--n-draft-max", "8"), ("--n-draft-max", "8", "--no-ngram")):
        ended = eaglechat("--json", *flags, PROMPT, pair=("--target", str(tiny_files[0])))
        assert "speculation is off" not in ended.err
        counts[len(flags)] = json.loads(ended.out)["speculation"]
    assert counts[2]["accepted"] > 0
    assert counts[3]["drafted"] == 0


@pytest.mark.parametrize("shape", ["chain", "tree", "auto"])
def test_a_target_that_cannot_follow_several_paths_says_so_where_a_tree_is_asked_for(
    eaglechat: Runner, tiny_files: tuple[Path, Path], tmp_path: Path, shape: str
) -> None:
    target = tiny.write_hybrid_target(tmp_path / "hybrid.gguf")
    pair = ("--target", str(target), "--draft", str(tiny_files[1]), "--n-draft-max", "3")
    ended = eaglechat("--shape", shape, "--json", PROMPT, pair=pair)
    counts = json.loads(ended.out)["speculation"]
    assert (counts["shape"], counts["trees"], counts["drafted"] > 0) == ("chain", 0, True)
    assert ("drafts stay chains: the target is a recurrent" in ended.err) is (shape == "tree")


def test_stdin_system_prompt_and_seed_reach_the_reply(eaglechat: Runner) -> None:
    hot = ("--temperature", "1", "--json")

    def text(*arguments: str, stdin: bytes = b"") -> str:
        return str(json.loads(eaglechat(*hot, *arguments, stdin=stdin).out)["text"])

    assert text("--seed", "5", "-", stdin=PROMPT.encode()) == text("--seed", "5", PROMPT)
    assert text("--seed", "5", PROMPT) != text("--seed", "6", PROMPT)
    assert text("--seed", "5", PROMPT) != text("--seed", "5", "--system", "be brief", PROMPT)


def test_a_base_model_is_told_once(eaglechat: Runner, tmp_path: Path) -> None:
    base = tiny.write_model(tmp_path / "base.gguf", None, ())
    ended = eaglechat("Paris is", pair=("--target", str(base)))
    said = "the target's file has no chat template, so it is probably a base model"
    assert (ended.status, ended.err.count(said)) == (0, 1)


def test_a_role_counts_for_the_reply(eaglechat: Runner, home: Path) -> None:
    roles = home / "eaglechat" / "config" / "roles"
    roles.mkdir(parents=True)
    (roles / "pirate.toml").write_text('system_prompt = "be brief"')
    assert (
        eaglechat("--role", "pirate", PROMPT).out == eaglechat("--system", "be brief", PROMPT).out
    )
    assert "there is no role 'captain'" in eaglechat("--role", "captain", PROMPT).complaint


def test_the_context_s_end_is_a_finish_reason(eaglechat: Runner) -> None:
    report = json.loads(eaglechat("--json", "--ctx", "256", "--max-tokens", "9999", PROMPT).out)

    assert report["finish_reason"] == "context"


@pytest.mark.real
def test_the_built_in_pair_is_the_default_with_its_fixed_length(
    eaglechat: Runner, real_files: tuple[Path, Path], loaded_before: None
) -> None:
    report = json.loads(eaglechat("--json", "--max-tokens", "12", "Say hello.", pair=()).out)

    assert (report["pair"], report["speculation"]["n_draft_max"]) == ("smollm2-135m", 3)
    assert report["text"]


def test_a_server_s_prompt_is_counted_and_a_speed_that_nobody_knows_is_not_said(
    eaglechat: Runner,
) -> None:
    with fault_server() as server:
        server.chat = lambda handler: handler.reply("all at once")
        ran = eaglechat("hi", "--server", server.url, pair=(), own_engine=False)
        assert ran.err.startswith("eaglechat: 1 token, speculation not reported")
        ran = eaglechat("hi", "--json", "--server", server.url, pair=(), own_engine=False)
        assert json.loads(ran.out)["context"] == {"size": 2048, "used": 5 + 1}


def test_what_a_server_counts_of_a_whole_reply_is_said_and_no_more(eaglechat: Runner) -> None:
    details = {"accepted_prediction_tokens": 2, "rejected_prediction_tokens": 3}
    with fault_server() as server:
        server.chat = lambda handler: handler.reply(
            "one", " two", " three", usage={"completion_tokens_details": details}
        )
        ran = eaglechat("hi", "--server", server.url, pair=(), own_engine=False)
        assert "accepted 2 of 5 drafted tokens" in ran.err
        assert "not reported" not in ran.err
        ran = eaglechat("hi", "--json", "--server", server.url, pair=(), own_engine=False)
    counts = json.loads(ran.out)["speculation"]
    assert (counts["drafted"], counts["accepted"], counts["by_drafter"]) == (5, 2, {})
    names = ("rounds", "tested", "acceptance_rate", "mean_accepted_length", "n_draft_max")
    assert [counts[name] for name in names] == [None] * 5


def test_a_server_s_full_context_names_no_flag_of_ours(eaglechat: Runner) -> None:
    def fill(handler: Handler) -> None:
        handler.begin()
        handler.text("one")
        usage = {"prompt_tokens": 2047, "completion_tokens": 1}
        handler.event({"choices": [{"delta": {}, "finish_reason": "length"}], "usage": usage})
        handler.event("[DONE]")

    with fault_server() as server:
        server.chat = fill
        ran = eaglechat("hi", "--server", server.url, pair=(), own_engine=False)
    assert ran.err.endswith("context full, it holds 2,048 tokens\n")


def test_what_a_server_does_not_say_of_its_context_is_null(eaglechat: Runner) -> None:
    def write(handler: Handler) -> None:
        handler.begin()
        handler.text("one")
        handler.event("[DONE]")

    with fault_server() as server:
        server.chat, server.models = write, {"data": [{"id": "m"}]}
        ran = eaglechat("hi", "--json", "--server", server.url, pair=(), own_engine=False)
    assert json.loads(ran.out)["context"] == {"size": None, "used": None}


HELLO = Hello(
    protocol=PROTOCOL_VERSION, can=OWN_ENGINE, eaglechat="0", llama_cpp="scripted", devices=()
)
SAID = (
    ("", None),
    ("Two", Part.REASONING),
    (", two.", Part.REASONING),
    ("", None),
    ("4", Part.ANSWER),
)
ROUNDS = [
    Round(
        index, 0, (), 0, 0, (Token(index, text, Origin.PLAIN, None, part),), index,
        RoundTimings(0.0, 10.0, 0.0, 0.0, 10.0),
    )
    for index, (text, part) in enumerate(SAID)
]  # fmt: skip
END = ReplyEnd(
    FinishReason.STOP, 1, 5, ".", ReplyTimings(1.0, 3, 0, 50.0, 0.0, 50.0, 0.0, 0.0), Part.ANSWER
)
ANSWERS = [*(Progress(id=1, step=round_) for round_ in ROUNDS),
           Done(id=1, end=END, stats=stats_of(ROUNDS))]  # fmt: skip


@pytest.mark.parametrize("shows_reasoning", [False, True])
def test_the_answer_goes_to_one_stream_and_reasoning_to_the_other(shows_reasoning: bool) -> None:
    out, err = io.StringIO(), io.StringIO()
    written = {Part.ANSWER: run.ReplyStream(out)}
    if shows_reasoning:
        written[Part.REASONING] = run.ReplyStream(err)

    run.write_reply(ANSWERS, Recording(Terms()), trace=None, written=written)

    assert out.getvalue() == "4."
    assert err.getvalue() == ("Two, two.\n" if shows_reasoning else "")


def test_json_has_both_and_the_numbers_of_each_part() -> None:
    recording = Recording(Terms())
    run.write_reply(ANSWERS, recording, trace=None, written={})

    reply = run.FinishedReply(recording, "pair", pair_info("t", None, None), HELLO, None)
    report = msgspec.json.decode(msgspec.json.encode(reply.report()))

    assert (report["reasoning"], report["text"]) == ("Two, two.", "4.")
    assert report["parts"]["reasoning"]["tokens"] == 3
    assert report["parts"]["answer"]["tokens_per_second"] == pytest.approx(100.0)


def test_rounds_that_an_engine_settles_count_in_place_of_those_told_before() -> None:
    final = replace(ROUNDS[1], timings=replace(ROUNDS[1].timings, total_ms=20.0))
    answers = [Progress(id=1, step=ROUNDS[1]), Progress(id=1, step=Settled((final,))), ANSWERS[-1]]
    trace = io.BytesIO()

    recording = Recording(Terms())
    run.write_reply(answers, recording, trace=trace, written={})

    assert recording.reasoning == "Two"
    counted = recording.by_part[Part.REASONING]
    assert (counted.tokens, counted.ms) == (1, 20.0)
    written = [msgspec.json.decode(line, type=Round) for line in trace.getvalue().splitlines()]
    assert written == [ROUNDS[1], final]
