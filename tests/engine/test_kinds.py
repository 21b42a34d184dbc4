"""Every kind of drafter in the whole engine: a loaded pair writes what plain decoding writes, and
drafts as a pair that has seen nothing else, whatever came before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from eaglechat.engine.auto import calibration
from eaglechat.engine.drafters import pairing
from eaglechat.engine.drafters.base import Limits, Proposal
from eaglechat.engine.drafters.dflash import DflashDrafter
from eaglechat.engine.drafters.pairing import check_pair, why_no_heads
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Batch, Context, Model
from eaglechat.gguf.header import read_header
from eaglechat.gguf.preflight import PreflightError
from eaglechat.links.llama_server.probe import SPEC_TYPES
from eaglechat.wire.errors import DecodeError, ModelLoadError
from eaglechat.wire.protocol import AUTO, DrafterChoice, DrafterKind, Set
from eaglechat.wire.records import Prefill, Round
from tests import tiny_kinds
from tests.engine.kind_pairs import (
    Kind,
    Turns,
    Write,
    all_drafters,
    all_kinds,
    counts,
    cycle,
    plain,
)
from tests.engine.rig import N_THREADS, Reply, decode
from tests.tiny_kinds import accepted


@pytest.fixture(scope="module", autouse=True)
def _quickly() -> Iterator[None]:
    """A load does not time drafts: the lengths that auto chooses are not this file's matter."""
    backend.start_backend(backend.LOG_ERRORS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calibration, "BUDGET_S", 0.0)
        yield


def test_no_table_lacks_a_kind() -> None:
    known = {*get_args(DrafterKind)}
    assert known == {*pairing.KINDS} == {*SPEC_TYPES}
    assert {"auto", *known, "ngram", "none"} == {*get_args(DrafterChoice)}


# --- a conversation ---


@all_drafters
def test_a_conversation_is_written_as_by_plain_decoding(
    write: Write, kind: str, drafter: str
) -> None:
    """Turns, a cancel, an edit, a length of none and back, and auto. Each reply drafts as that of
    a pair which has seen nothing else."""
    files = write(kind, mixed=True)
    drafted = n_accepted = 0
    with plain(files.target) as target, files.loaded() as pair:

        def turn(held: list[int], **options: Any) -> list[int]:
            nonlocal drafted, n_accepted
            prompt, wanted = target.ask(held)
            reply = pair.reply(
                prompt, drafter=drafter, boundaries=lambda: [len(held) + 10], **options
            )
            assert reply.offs == []
            assert reply.tokens == wanted[: len(reply.tokens)]
            assert len(reply.tokens) == 24 or "rounds" in options
            if options.get("n") != AUTO:
                with files.loaded() as fresh:
                    assert counts(fresh.reply(prompt, drafter=drafter, **options)) == counts(reply)
            check_reads_nothing_twice(reply)
            drafted += sum(len(round_.drafted) for round_ in reply.rounds)
            n_accepted += sum(counts(reply))
            assert {one.drafter for round_ in reply.rounds for one in round_.drafted} <= {drafter}
            return [*prompt, *reply.tokens]

        held = turn([])
        held = turn(held)
        assert pair.loaded.generator.cached == tuple(held[:-1])
        held = turn(held[:-30])
        held = turn(held, rounds=4, n=2)
        held = turn(held, n=0)
        held = turn(held, n=7)
        held = turn(held, n=AUTO)
        turn(held[:50])
    assert 0.1 * drafted < n_accepted < 0.95 * drafted


def check_reads_nothing_twice(reply: Reply) -> None:
    """A drafter that falls behind would have the target decode again in mid-reply."""
    kinds = [type(event) for event in reply.events]
    assert Prefill not in kinds[kinds.index(Round) :]


@all_drafters
def test_a_reply_drafts_as_long_as_asked(write: Write, kind: str, drafter: str) -> None:
    files = write(kind)
    longest = files.kind.longest(drafter)
    with files.loaded() as pair:
        for n in (16, 0, 1, 3):
            reply = pair.reply(cycle(20), drafter=drafter, n=n, length=40)
            assert reply.offs == []
            assert reply.tokens == cycle(60)[20:]
            assert max(len(round_.drafted) for round_ in reply.rounds) == min(n, longest)
            check_counts(reply, files.kind, drafter, cycle(20)[-1])
            check_reads_nothing_twice(reply)


@all_drafters
def test_the_smallest_batch_is_large_enough(write: Write, kind: str, drafter: str) -> None:
    """For a prompt in several batches, and for the longest draft that is verified."""
    files = write(kind)
    with files.loaded(n_batch=32) as pair:
        reply = pair.reply(cycle(100), drafter=drafter, n=16, length=40)
    assert reply.offs == []
    assert reply.tokens == cycle(140)[100:]
    assert max(len(round_.drafted) for round_ in reply.rounds) == files.kind.longest(drafter)
    check_counts(reply, files.kind, drafter, cycle(100)[-1])


def check_counts(reply: Reply, kind: Kind, drafter: str, id_last: int) -> None:
    """What a pair that is not mixed accepts is what its weights say."""
    wrong = (
        kind.wrong_after(drafter) if drafter in kind.drafters else frozenset(range(tiny_kinds.N))
    )
    for round_ in reply.rounds:
        assert round_.n_accepted == accepted(id_last, len(round_.drafted), wrong)
        id_last = round_.tokens[-1].id


@all_drafters
@pytest.mark.parametrize("without", [Set(enabled=False), Set(n_draft_max=0)], ids=["off", "0"])
def test_drafting_goes_off_and_on_again_within_a_reply(
    write: Write, kind: str, drafter: str, without: Set
) -> None:
    files = write(kind)
    changes = {1: without, 6: Set(enabled=True, n_draft_max=2)}
    with files.loaded() as pair:
        for _ in range(2):
            reply = pair.reply(cycle(20), drafter=drafter, n=2, changes=changes, length=40)
            assert reply.offs == []
            assert reply.tokens == cycle(60)[20:]
            drafted = [len(round_.drafted) for round_ in reply.rounds]
            assert drafted[:9] == [2, 2, 0, 0, 0, 0, 0, 2, 2]
            check_counts(reply, files.kind, drafter, cycle(20)[-1])
            if without.n_draft_max == 0:
                # The drafter has seen it all.
                check_reads_nothing_twice(reply)


@all_drafters
def test_drafting_goes_on_when_the_context_is_full(write: Write, kind: str, drafter: str) -> None:
    files, prompt = write(kind), cycle(200)
    with files.loaded(n_ctx=256) as pair:
        reply = pair.reply(prompt, drafter=drafter, turns=Turns(prompt, 40), length=150)
        held = [*pair.loaded.generator.cached, reply.tokens[-1]]
        again = pair.reply(held, drafter=drafter)
    assert [window.kv_kept for window in reply.windows][:1] == [not files.kind.is_hybrid]
    assert reply.offs == again.offs == []
    assert reply.tokens == cycle(350)[200:]
    check_counts(reply, files.kind, drafter, prompt[-1])
    check_counts(again, files.kind, drafter, held[-1])
    assert again.tokens == cycle(25, held[-1])[1:]


@all_drafters
@pytest.mark.parametrize("meanwhile", ["none", "ngram"])
def test_a_drafter_hears_of_turns_that_leave_while_it_is_not_asked(
    write: Write, kind: str, drafter: str, meanwhile: str
) -> None:
    files = write(kind)
    with files.loaded(n_ctx=256) as pair:
        first = pair.reply(cycle(200), drafter=drafter, length=20)
        prompt = cycle(240)
        reply = pair.reply(prompt, drafter=meanwhile, turns=Turns(prompt, 40), length=30)
        # Behind what moved down, and long enough before the end.
        held = pair.loaded.generator.cached[:120]
        again = pair.reply(held, drafter=drafter)
    assert len(reply.windows) == 1
    assert first.offs == reply.offs == again.offs == []
    assert reply.tokens == cycle(270)[240:]
    assert again.tokens == cycle(25, held[-1])[1:]
    check_counts(again, files.kind, drafter, held[-1])


@all_drafters
def test_n_grams_are_ahead_of_a_drafter(write: Write, kind: str, drafter: str) -> None:
    """They know what has been written before, where the drafter is wrong."""
    files = write(kind)
    with files.loaded() as pair:
        reply = pair.reply(cycle(80), drafter=drafter, n=7, ngram=True, length=40)
    assert reply.tokens == cycle(120)[80:]
    drafters = [token.drafter for round_ in reply.rounds for token in round_.drafted]
    assert set(drafters) == {"ngram"}
    assert sum(counts(reply)) > 30


# --- who drafts ---


@all_kinds
def test_the_drafter_is_switched_between_replies_in_every_order(write: Write, kind: str) -> None:
    files = write(kind)
    choices = [*files.kind.drafters, "ngram", "none", "auto", "eagle3"]
    # Each after each other.
    order = [choices[0]]
    for one in choices:
        for other in choices:
            order += [one, other]
    held = cycle(20, 7)
    with files.loaded() as pair:
        for index, choice in enumerate(order):
            prompt = [*held, *cycle(3, 11 * index % tiny_kinds.N)]
            reply = pair.reply(prompt, drafter=choice, length=12)
            assert reply.offs == []
            assert reply.tokens == cycle(13, prompt[-1])[1:]
            check_reads_nothing_twice(reply)
            name = files.kind.drafters[0] if choice == "auto" else choice
            if name in files.kind.drafters:
                assert len(reply.rounds[0].drafted) > 0
                check_counts(reply, files.kind, name, prompt[-1])
            names = {token.drafter for round_ in reply.rounds for token in round_.drafted}
            assert names <= {name}
            held = [*prompt, *reply.tokens]
            if len(held) > 400:
                held = held[:150]


@pytest.mark.parametrize(
    ("drafter", "between"), [("mtp", "none"), ("dflash", "ngram"), ("mtp", "dflash")]
)
def test_a_hybrid_reads_again_what_another_drafter_has_not_seen(
    write: Write, drafter: str, between: str
) -> None:
    """And nothing else."""
    files = write("qwen35, dflash", mixed=True)
    with plain(files.target) as target, files.loaded() as pair:
        held: list[int] = []
        reused = []
        for name in (drafter, drafter, between, drafter, drafter):
            prompt, wanted = target.ask(held)
            reply = pair.reply(prompt, drafter=name)
            assert reply.tokens == wanted
            reused.append(reply.prefills[0].reused)
            held = [*prompt, *wanted]
    # A question of 20 tokens, a reply of 24: the last token that was sampled is not held.
    assert reused[:2] == [0, 43]
    # None of these needs a draft's cache. The draft goes on behind the last question that it saw.
    assert reused[2:] == ([87, 63, 175] if between in ("none", "ngram") else [0, 0, 175])


# --- failures ---

BROKEN = "the draft failed: RuntimeError: broken; load the pair again to try it again"


@all_drafters
def test_a_drafter_that_fails_leaves_the_reply_to_n_grams_and_is_out_until_the_next_load(
    write: Write, kind: str, drafter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, prompt = write(kind), cycle(20, 3)
    with files.loaded() as pair:
        drafters = pair.loaded.generator._drafters
        (model,) = [one for one in drafters.working if one.name == drafter]
        broken = iter([False, False, True])
        propose = model.propose

        def fails(n_past: int, id_last: int, limits: Limits) -> Proposal:
            if next(broken, False):
                raise RuntimeError("broken")
            return propose(n_past, id_last, limits)

        monkeypatch.setattr(model, "propose", fails)
        reply = pair.reply(prompt, drafter=drafter, ngram=True, length=100)
        again = pair.reply([*prompt, *reply.tokens[:15]], drafter=drafter, length=40)

    assert [off.reason for off in reply.offs] == [off.reason for off in again.offs] == [BROKEN]
    assert reply.tokens == cycle(120, 3)[20:]
    before = reply.events.index(reply.offs[0])
    of = [
        {token.drafter for round_ in Reply(events).rounds for token in round_.drafted}
        for events in (reply.events[:before], reply.events[before:])
    ]
    assert of == [{drafter}, {"ngram"}]
    assert again.tokens == cycle(75, 3)[35:]
    assert not any(round_.drafted for round_ in again.rounds)


def test_the_other_drafter_takes_over_from_one_that_fails(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is said of the failure of one that is not asked."""
    files, prompt = write("qwen35, dflash"), cycle(20)
    with files.loaded() as pair:

        def fails(*_: object) -> Proposal:
            raise RuntimeError("broken")

        with monkeypatch.context() as patched:
            patched.setattr(DflashDrafter, "propose", fails)
            replies = [
                pair.reply(prompt, drafter=drafter)
                for drafter in ("dflash", "dflash", "mtp", "auto", "dflash")
            ]
    assert [bool(reply.offs) for reply in replies] == [True, True, False, False, True]
    for index in (2, 3):
        check_counts(replies[index], files.kind, "mtp", prompt[-1])
        assert sum(counts(replies[index])) > 10


@pytest.mark.parametrize("kind", ["hy_v3", "qwen35, dflash"])
def test_heads_without_a_context_are_named_and_the_pair_runs(
    write: Write, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = Context.__init__

    def too_large(self: Context, *args: Any, runs_heads: bool = False, **options: Any) -> None:
        if runs_heads:
            raise ModelLoadError("llama.cpp cannot make a context")
        init(self, *args, **options)

    monkeypatch.setattr(Context, "__init__", too_large)
    files = write(kind)
    with files.loaded() as pair:
        info = pair.loaded.info
        reply = pair.reply(cycle(20), ngram=True)
        asked = pair.reply(cycle(20), drafter="mtp")
    assert info.undrafted == {"mtp": "llama.cpp cannot make a context"}
    assert [one.kind for one in info.drafters] == [
        one for one in files.kind.drafters if one != "mtp"
    ]
    assert info.speculation_off is None
    assert reply.offs == asked.offs == []
    assert reply.tokens == asked.tokens == cycle(44)[20:]
    assert not any(round_.drafted for round_ in asked.rounds)


# --- what ends the process is refused from the headers ---


@pytest.mark.parametrize("target", ["hy_v3", "qwen35", "gemma4_assistant", "dflash"])
def test_a_drafter_is_no_target(tmp_path: Path, target: str) -> None:
    write = getattr(tiny_kinds, f"write_{target}")
    options = {"mtp_only": True} if target in ("hy_v3", "qwen35") else {}
    with pytest.raises(PreflightError, match="give it as the draft, with its own target"):
        check_pair(write(tmp_path / "drafter.gguf", **options), None)


def test_heads_are_not_run_unless_they_are_as_declared_and_llama_cpp_has_a_graph_of_them(
    tmp_path: Path,
) -> None:
    header = read_header(tiny_kinds.write_hy_v3(tmp_path / "hy_v3.gguf"))
    more = replace(header, fields={**header.fields, "hy_v3.nextn_predict_layers": 2})
    assert why_no_heads(more) == "its file declares 2 MTP heads and has 1"
    other = replace(header, fields={**header.fields, "general.architecture": "deepseek4"})
    assert why_no_heads(other) == "llama.cpp cannot run the MTP heads of deepseek4 models"


def test_inputs_that_were_not_exported_are_not_read(tmp_path: Path) -> None:
    with (
        Model(tiny_kinds.write_llama(tmp_path / "llama.gguf")) as model,
        Context(model, n_ctx=256, n_batch=32, n_threads=N_THREADS) as target,
        Batch(target) as batch,
    ):
        for exports in (False, True, False):
            target.extract_layer_inputs((1, 2), exports)
            decode(target, batch, cycle(4), 0)
            target.forget(0, 0)
            if exports:
                assert target.layer_inputs(2, 4).shape == (4, model.n_embd)
            else:
                with pytest.raises(DecodeError, match="did not export the inputs of layer 2"):
                    target.layer_inputs(2, 4)
        target.extract_layer_inputs((1, 2), True)
        with pytest.raises(DecodeError, match="did not export the inputs of layer 1"):
            target.layer_inputs(1, 4)


def test_a_block_drafter_is_not_opened_for_a_target_that_it_cannot_read(tmp_path: Path) -> None:
    draft = tiny_kinds.write_dflash(tmp_path / "draft.gguf", layers=(2, 3, 4))
    with pytest.raises(PreflightError, match="does not export layer inputs"):
        check_pair(tiny_kinds.write_hy_v3(tmp_path / "hy_v3.gguf"), draft)
    with pytest.raises(PreflightError, match="the state after the last layer"):
        check_pair(tiny_kinds.write_llama(tmp_path / "llama.gguf"), draft)
    # There llama.cpp would export the state behind the output norm.
    with pytest.raises(PreflightError, match=r"after the last layer \(4\).* offers .* 0 to 3"):
        check_pair(tiny_kinds.write_qwen35(tmp_path / "qwen35.gguf"), draft)


def test_a_model_that_drafts_for_itself_is_always_right(write: Write) -> None:
    files = write("llama, model", mixed=True)
    with replace(files, draft=files.target).loaded() as pair:
        reply = pair.reply(cycle(20, 7), drafter="model", n=5, length=25)
    assert reply.offs == []
    assert all(round_.n_accepted == len(round_.drafted) for round_ in reply.rounds)
    assert sum(counts(reply)) >= 20
