"""What auto keeps on disk from one start to the next."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from eaglechat import paths
from eaglechat.engine.auto import kept
from eaglechat.engine.auto.controller import Controller
from eaglechat.engine.auto.kept import Kept, Learnt
from eaglechat.engine.auto.planner import Planner
from eaglechat.engine.drafters.guard import GuardedDrafters
from eaglechat.engine.drafters.proposal import Proposal
from eaglechat.engine.loop import Live
from eaglechat.engine.pair import LoadedPair
from eaglechat.engine.process import write_reply
from eaglechat.gguf.pairing import check_pair
from eaglechat.wire.protocol import AUTO, Chat, LoadOptions, Message, Sampling, Speculation
from tests.engine.auto.pairs import calibrated, on_steps
from tests.engine.auto.simulated_pair import write

PAIR = on_steps("F16", 0.75, 1)
DAY = 86_400.0


@pytest.fixture
def file() -> Path:
    return paths.state_dir() / "auto.json"


@pytest.fixture(scope="module")
def learnt() -> Learnt:
    controller = Controller(calibrated(PAIR))
    write(PAIR, 160, controller)
    found = controller.learnt()
    assert found is not None
    return found


def test_what_was_learnt_is_recalled_for_the_same_pair_and_drafter_alone(learnt: Learnt) -> None:
    Kept("a").keep("eagle3", learnt)
    found = Kept("a").recall("eagle3")
    assert found is not None
    assert msgspec.structs.replace(found, certainty=1.0) == learnt
    assert Kept("a").recall("mtp") is None
    assert Kept("b").recall("eagle3") is None


def test_it_counts_less_the_older_it_is(learnt: Learnt, monkeypatch: pytest.MonkeyPatch) -> None:
    Kept("a").keep("", learnt)
    now, certainties = time.time(), []
    for days in (-1.0, 0.0, 30.0, 3_000_000.0):
        monkeypatch.setattr(time, "time", lambda days=days: now + days * DAY)
        found = Kept("a").recall("")
        assert found is not None
        Controller(calibrated(PAIR), found)
        certainties.append(found.certainty)
    assert certainties[0] == pytest.approx(certainties[1], rel=0.01)
    assert certainties[2] == pytest.approx(certainties[1] / 2.0, rel=0.01)
    assert 0.0 < certainties[3] < 0.001


def test_the_file_has_the_latest_pairs_alone(learnt: Learnt, file: Path) -> None:
    for n in range(kept._MOST + 3):
        Kept(str(n)).keep("", learnt)
    Kept("4").keep("", learnt)
    known = [n for n in range(kept._MOST + 3) if Kept(str(n)).recall("") is not None]
    assert known == list(range(3, kept._MOST + 3))
    Kept("new").keep("", learnt)
    assert Kept("3").recall("") is None
    assert Kept("4").recall("") is not None
    assert file.stat().st_size < 4_000 * kept._MOST


@pytest.mark.parametrize(
    "content",
    [b"", b"[{", b"\xff\xfe", b"{}", b"[" * 100_000, b'[{"key": "a ", "at": 0, "learnt": {}}]'],
    ids=range(6),
)
def test_a_damaged_file_counts_as_empty_and_is_replaced(
    content: bytes, file: Path, learnt: Learnt
) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    assert Kept("a").recall("") is None
    Kept("a").keep("", learnt)
    assert Kept("a").recall("") is not None


def test_a_folder_that_cannot_be_written_keeps_nothing(learnt: Learnt, file: Path) -> None:
    file.parent.parent.mkdir(parents=True, exist_ok=True)
    file.parent.write_bytes(b"")
    Kept("a").keep("", learnt)
    assert Kept("a").recall("") is None


@pytest.mark.parametrize(
    "damage",
    [{"verify": (1.0,)}, {"draft": ()}, {"doubts": (0.1,) * 16}, {"draft": (-1.0,) * 4}],
    ids=str,
)
def test_values_that_do_not_fit_are_not_recalled(damage: dict[str, object], learnt: Learnt) -> None:
    Kept("a").keep("", msgspec.structs.replace(learnt, **damage))
    assert Kept("a").recall("") is None


def test_counts_of_other_drafts_make_one_reply_plain(learnt: Learnt) -> None:
    Kept("a").keep("", msgspec.structs.replace(learnt, counts=learnt.counts[1:]))
    drafters = GuardedDrafters((), can_draft=True)
    planner = Planner(drafters, {"": calibrated(PAIR)}, Kept("a"))
    asked, states, failures = Speculation(n_draft_max=AUTO), [], []
    for _ in range(2):
        planner.new_reply(asked, goes_on=False)
        states.append(planner.choose(asked, Proposal(), 8, 9).state)
        failures.append(drafters.failure())
    assert [state is None for state in states] == [True, False]
    assert "the automatic draft length failed" in str(failures[0])
    assert failures[1] is None


def test_a_chat_keeps_what_it_learnt_and_the_next_load_of_the_pair_recalls_it(
    tiny_files: tuple[Path, Path], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recalled, recall = [], Kept.recall

    def noted(self: Kept, drafter: str) -> Learnt | None:
        recalled.append(recall(self, drafter) is not None)
        return recall(self, drafter)

    monkeypatch.setattr(Kept, "recall", noted)
    messages = (Message(role="user", content="the cat sat on the mat"),)
    for n_threads, is_known in ((1, False), (1, True), (2, False)):
        options = LoadOptions(n_ctx=256, n_threads=n_threads)
        with closing(LoadedPair(check_pair(*tiny_files), options)) as pair:
            request = Chat(
                id=1, messages=messages, sampling=Sampling(temperature=0.0), max_tokens=120
            )
            write_reply(request, pair, Live(Speculation(n_draft_max=AUTO), 0.0), lambda _: None)
        assert recalled.pop() is is_known
        assert not recalled
        assert file.exists()
