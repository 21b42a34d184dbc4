"""Targets with a recurrent state: rejected tokens are taken back by its snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eaglechat.engine import pair
from eaglechat.engine.llama.objects import Context, Model
from eaglechat.engine.loop import Live
from eaglechat.wire.errors import DecodeError
from eaglechat.wire.protocol import AUTO, Speculation
from tests import tiny
from tests.engine.kind_pairs import Write, cycle
from tests.engine.rig import Rig, drafts_of, fresh_reply, open_rig


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
