"""Targets with a recurrent state: rejected tokens are taken back by its snapshots, a chat goes on
from a saved state, and what the template drops costs no reading."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from unittest.mock import Mock, call

import pytest

from eaglechat.engine import pair
from eaglechat.engine.cache import Checkpoints
from eaglechat.engine.drafters.base import Drafter
from eaglechat.engine.drafters.guard import GuardedDrafters
from eaglechat.engine.llama.objects import Context, Model
from eaglechat.engine.loop import Live
from eaglechat.engine.pair import LoadedPair
from eaglechat.engine.process import rendered, write_reply
from eaglechat.engine.prompt import Prompter
from eaglechat.engine.sequences import common_prefix
from eaglechat.gguf.pairing import check_pair
from eaglechat.wire.errors import DecodeError
from eaglechat.wire.protocol import (
    AUTO,
    AnyEvent,
    Chat,
    Done,
    LoadOptions,
    Message,
    Render,
    Speculation,
)
from eaglechat.wire.worker import cancelled_by
from tests import tiny
from tests.engine.kind_pairs import Write, cycle
from tests.engine.rig import GREEDY, Rig, drafts_of, fresh_reply, open_rig


def test_auto_never_reads_all_again_for_the_draft_to_see_more(
    tmp_path: Path, tiny_models: tuple[Model, Model]
) -> None:
    """Though a window of 8 positions has left the draft with next to nothing of them."""
    live = Live(Speculation(n_draft_max=AUTO), 0.0)
    with (
        Model(tiny.write_hybrid_target(tmp_path / "target.gguf")) as hybrid,
        open_rig(hybrid, tiny_models[1], draft_window=8) as rig,
    ):
        prompt = rig.prompt("the quick brown fox " * 30)
        rig.reply(prompt, live=live, max_tokens=20)
        held = tuple(rig.generator.cache.tokens)
        longer = [*held, *rig.prompt("and then")[1:]]
        assert rig.reply(longer, live=live).end.timings.reused_tokens == len(held)


@contextmanager
def all_or_nothing(monkeypatch: pytest.MonkeyPatch, target: Context) -> Iterator[None]:
    """The target's memory drops nothing but everything."""
    forget = Context.forget

    def refuse(context: Context, seq_id: int, start: int, end: int = -1) -> bool:
        return (context is not target or start == 0) and forget(context, seq_id, start, end)

    with monkeypatch.context() as patched:
        patched.setattr(Context, "forget", refuse)
        yield


def test_a_memory_that_cannot_drop_the_end_is_read_anew(
    rig: Rig, tiny_models: tuple[Model, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.reply(rig.prompt("the quick brown fox"), max_tokens=40)
    other = rig.prompt("the quick red fox")
    with all_or_nothing(monkeypatch, rig.target):
        reply = rig.reply(other, n_draft_max=0, max_tokens=40)
    assert reply.end.timings.reused_tokens == 0
    assert reply.tokens == fresh_reply(tiny_models, other, max_tokens=40).tokens


def test_rejected_tokens_that_stay_are_an_error_and_the_next_reply_starts_anew(
    rig: Rig, tiny_models: tuple[Model, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = rig.prompt("the quick brown fox")
    with (
        all_or_nothing(monkeypatch, rig.target),
        pytest.raises(DecodeError, match="cannot take back"),
    ):
        rig.reply(prompt, n_draft_max=16, max_tokens=200)
    assert not rig.generator.cache.tokens
    again = rig.reply(prompt, max_tokens=40)
    assert again.tokens == fresh_reply(tiny_models, prompt, max_tokens=40).tokens


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_loaded_pair_with_such_a_target_drafts_chains_where_there_are_snapshots(
    write: Write, monkeypatch: pytest.MonkeyPatch, snapshots: bool
) -> None:
    if not snapshots:
        monkeypatch.setattr(pair, "N_ROLLBACK", 0)
    with write("qwen35, eagle3").loaded() as loaded:
        reply = loaded.reply(cycle(20), drafter="eagle3", shape="tree")
        off, chains_only = loaded.loaded.info.speculation_off, loaded.loaded.info.chains_only

    assert any(drafts_of(reply)) is snapshots
    assert not any(round_.is_tree for round_ in reply.rounds)
    if snapshots:
        assert off is None
        assert "cannot follow several paths at once" in str(chains_only)
    else:
        assert "cannot take back rejected tokens" in str(off)
        assert chains_only is None


# --- checkpoints ---


DROPS_REASONING = (
    "{% for m in messages %}x {{ m['role'] }} {{ m['content'] }} z "
    "{% endfor %}{% if add_generation_prompt %}x assistant qq {% endif %}"
)
"""The prompt begins the reasoning (qq), which later prompts do not have."""


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("checkpoints") / "hybrid.gguf"
    with Model(tiny.write_hybrid_target(path, DROPS_REASONING)) as model:
        yield model


def live(*, enabled: bool) -> Live:
    return Live(Speculation(enabled=enabled, n_draft_max=3, ngram=True), 0.0)


class Talk:
    """A chat in which every reply is compared with a fresh pair's, and no turn reads more tokens
    than the prompt has behind those that it shares with the prompt before."""

    def __init__(self, rig: Rig, *, enabled: bool) -> None:
        self.rig, self.enabled = rig, enabled
        self.messages: list[Message] = []
        self.prompt: tuple[int, ...] = ()

    def ask(self, question: str) -> None:
        self.messages.append(Message(role="user", content=question))
        asked = self.rig.prompter.conversation(self.messages)
        before, self.prompt = self.prompt, asked.tokens
        settings = live(enabled=self.enabled)
        reply = self.rig.reply(asked, live=settings, max_tokens=24)
        assert reply.offs == []
        with open_rig(self.rig.target.model, self.rig.draft.model, n_batch=64) as fresh:
            again = fresh.reply(self.prompt, live=settings, max_tokens=24)
        assert again.tokens == reply.tokens
        assert drafts_of(again) == drafts_of(reply)
        self.messages.append(Message(role="assistant", content="the cat sat"))
        new = len(self.prompt) - 1 - common_prefix(before, self.prompt)
        assert reply.end.timings.prefill_tokens <= new


@pytest.mark.parametrize("enabled", [True, False])
def test_a_turn_reads_no_more_than_is_new_since_the_boundary(
    hybrid: Model, tiny_models: tuple[Model, Model], *, enabled: bool
) -> None:
    with open_rig(hybrid, tiny_models[1], n_batch=64) as rig:
        talk = Talk(rig, enabled=enabled)
        for turn in range(8):
            talk.ask(f"the quick brown fox {'and the dog ' * (turn % 3)}")
        # The seventh question is edited: what stands before it is not read again.
        del talk.messages[12:]
        talk.ask("a red fox")


def test_a_cancelled_prompt_costs_no_more_than_itself(
    hybrid: Model, tiny_models: tuple[Model, Model]
) -> None:
    with open_rig(hybrid, tiny_models[1], n_batch=64) as rig:
        talk = Talk(rig, enabled=True)
        talk.ask("the quick brown fox")
        question = "and the dog " * 60
        asked = [*talk.messages, Message(role="user", content=question)]
        seen: list[object] = []
        calls = count()
        stream = rig.stream(rig.prompter.conversation(asked), live=live(enabled=True))
        # First asked between two batches, then in the midst of one.
        with cancelled_by(lambda: len(seen) > 2 and next(calls) > 0):
            for event in stream:
                seen.append(event)
        assert next(calls) > 1
        talk.ask(question)


@pytest.mark.parametrize("mib", [1, 0])
def test_a_loaded_pair_goes_on_from_a_checkpoint_and_says_what_they_cost(
    tmp_path: Path, tiny_files: tuple[Path, Path], mib: int
) -> None:
    target = tiny.write_hybrid_target(tmp_path / "target.gguf", DROPS_REASONING)
    headers = check_pair(target, tiny_files[1])
    options = LoadOptions(n_ctx=512, n_threads=1, checkpoints_mib=mib)
    messages: tuple[Message, ...] = ()
    reads = []
    with closing(LoadedPair(headers, options)) as pair:
        for question in ("the quick brown fox", "and the dog"):
            messages = (*messages, Message(role="user", content=question))
            said: list[AnyEvent] = []
            request = Chat(id=1, messages=messages, sampling=GREEDY, max_tokens=8)
            write_reply(request, pair, live(enabled=True), said.append)
            [done] = [event for event in said if isinstance(event, Done)]
            reads.append(done.end.timings.reused_tokens)
            messages = (*messages, Message(role="assistant", content="the cat sat"))
        seen = rendered(Render(id=2, messages=messages[:3]), pair)
    assert (reads[1] > 0) is (mib > 0)
    assert (seen.checkpoints > 0) is (mib > 0)


def test_a_template_that_refuses_the_next_turn_answers_this_one(tmp_path: Path) -> None:
    template = "{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}"
    path = tiny.write_hybrid_target(tmp_path / "target.gguf", template + DROPS_REASONING)
    with Model(path) as model:
        turns = Prompter(model).conversation([Message(role="user", content="the fox")])
        assert len(turns.boundaries()) == 1
        assert Prompter(model).conversation([]).boundaries() == ()


def test_the_oldest_go_first_and_what_is_too_large_is_not_saved() -> None:
    kept = Checkpoints(100)
    for length in (10, 20, 30):
        kept.save(length, 40, {}, lambda: bytes(40))
    assert [one.length for one in kept.up_to(30)] == [30, 20]
    assert kept.n_bytes == 80
    kept.save(40, 101, {}, lambda: bytes(101))
    assert len(kept) == 2
    kept.cut(25)
    assert [one.length for one in kept.up_to(30)] == [20]
    nothing = Checkpoints(0)
    nothing.save(10, 40, {}, lambda: bytes(40))
    assert len(nothing) == 0


def test_what_another_draft_model_needs_is_nothing_for_this_one() -> None:
    eagle3, mtp = Mock(spec=Drafter), Mock(spec=Drafter)
    eagle3.name, mtp.name = "eagle3", "mtp"
    drafters = GuardedDrafters([eagle3, mtp], can_draft=True)
    kept = Checkpoints(100)

    for choice in ("mtp", "eagle3", "mtp"):
        drafters.new_reply(Speculation(drafter=choice))
        for known in kept.up_to(10):
            drafters.restore(10, known.marks)
        kept.save(10, 40, {}, lambda: bytes(40))
        kept.save(10, 40, drafters.marks(), lambda: bytes(40))
        (own,) = kept.up_to(10)
        drafters.restore(10, own.marks)

    # What the first needs is still there after the other has drafted.
    assert mtp.restore.call_args_list == [call(10, mtp.mark.return_value)] * 3
    eagle3.restore.assert_called_once_with(10, eagle3.mark.return_value)
