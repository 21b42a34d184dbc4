"""The bench screen, on a scripted engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import DataTable, Input, SelectionList

from eaglechat.engine.bench.report import BenchReport, report_of
from eaglechat.engine.bench.verdict import Verdict, judge
from eaglechat.hub.local import pairs
from eaglechat.hub.local.pairs import PairLibrary
from eaglechat.hub.local.speeds import setup_of
from eaglechat.settings.model import EngineSettings
from eaglechat.tui.navigation import LoadInstead
from eaglechat.tui.screens.bench import BenchScreen, Chart
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.tui.texts.bench import length_labels, verdict_in_words
from eaglechat.wire import protocol
from eaglechat.wire.bench_records import BenchRun
from eaglechat.wire.protocol import AUTO
from tests.tui.driving import WIDE, Driver

Drive = Callable[..., Driver]


async def open_bench(user: Driver) -> None:
    await user.open_chat()
    await user.command("chat.bench", to=BenchScreen)


async def measure_quickly(user: Driver, runs: int | None = None) -> None:
    """Start a quick bench; let it finish, or stop the script after some runs."""
    user.engine.budget = runs
    await user.click("#quick")


async def test_a_bench_from_choosing_to_keeping(drive: Drive, tmp_path: Path) -> None:
    async with drive(size=(120, 36)) as user:
        await user.open_chat()
        await user.ask("hello")
        await user.type("not yet sent")
        await user.command("chat.bench", to=BenchScreen)
        screen = user.app.screen
        await user.sees("Up to 4 minutes: 56 replies of at most 128 tokens")
        screen.query_one("#prompts", SelectionList).deselect_all()
        await user.sees("Choose at least one prompt.")
        screen.query_one("#prompts", SelectionList).select(2)
        screen.query_one("#lengths", Input).value = "0, 3, 17"
        await user.sees("A draft length is 0 to 16 or auto, not 17.")
        screen.query_one("#lengths", Input).value = "0, 3, auto"
        screen.query_one("#prompts", SelectionList).select(4)
        screen.query_one("#minutes", Input).value = "3"
        await user.sees("Up to 3 minutes: 8 replies of")
        user.engine.budget = 3
        await user.command("chat.bench")
        await user.sees("Pass 1, reply 4 of 8: mathematics, n = auto")
        assert screen.query_one(DataTable).row_count == 1

        user.engine.budget = None
        await user.sees("Worth it: 1.30x ±0.01 as fast as plain with 3 tokens a round.")
        await user.sees("mathematics  1.30x")
        assert "Details" in user.text
        assert "accepted" not in user.text
        await user.press("shift+tab", "enter")
        request = user.engine.requests(protocol.Bench)[-1]
        assert [prompt.name for prompt in request.prompts] == ["mathematics", "translation"]
        assert (request.n, request.repeats, request.max_tokens) == ((0, 3, "auto"), 1, 128)
        await user.sees("accepted")
        await user.press("tab", "tab", "enter", to=ChatScreen)
        await user.sees("smollm2-135m starts with n_draft_max 3 from now on.")
        assert user.chat.controls.n_draft_max == 3
        assert user.prompt.text == "not yet sent"
        assert len(user.messages) == 2
        await user.press("enter")
        await user.idle()
        assert len(user.messages) == 4
    library, pair = PairLibrary(tmp_path / "state"), pairs.builtin_pair()
    assert library.kept_length(pair) == 3
    setup = setup_of(pair, EngineSettings())
    for length, speed_up in ((3, 1.3), (AUTO, 1.25)):
        gain = library.speeds.gain(setup, length)
        assert gain is not None
        assert (gain.speed_up, gain.by) == (pytest.approx(speed_up, abs=0.01), "bench")


async def test_what_a_pair_keeps_can_be_forgotten(drive: Drive) -> None:
    async with drive(size=(120, 36)) as user:
        user.app.services.pairs.keep_length(pairs.builtin_pair(), 0)
        await open_bench(user)
        await user.sees("This pair starts with n_draft_max 0.")
        await user.click("#forget")
        await user.until(lambda: "This pair starts" not in user.text, "nothing kept")
        assert user.app.services.pairs.kept_length(pairs.builtin_pair()) is None


async def test_escape_stops_at_once_and_then_leaves(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await open_bench(user)
        await measure_quickly(user, runs=7)
        await user.sees("Pass 1, reply 8 of 40")
        await user.press("escape")
        await user.sees("Stopped early.")
        assert len(user.engine.requests(protocol.Cancel)) == 1
        await user.sees("with 3 tokens a round")
        await user.press("escape", to=ChatScreen)


async def test_stopped_before_anything_was_measured_there_is_nothing_to_keep(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await open_bench(user)
        await measure_quickly(user, runs=0)
        await user.press("escape")
        await user.sees("Stopped early.")
        assert "Use 3" not in user.text
        again = user.app.screen.query_one("#again")
        await user.until(lambda: again.has_focus, "the focus on Again")
        await user.press("enter")
        await user.sees("40 replies of")


async def test_no_bench_while_a_reply_is_written_and_none_without_a_draft(drive: Drive) -> None:
    async with drive() as user:
        await user.open_chat()
        await user.ask("hello", rounds=2)
        await user.command("chat.bench")
        await user.sees("A reply is being written")
        assert isinstance(user.app.screen, ChatScreen)
    async with drive() as user:
        user.engine.speculation_off = "the target cannot take back tokens"
        await user.open_chat()
        await user.command("chat.bench")
        await user.sees("There is nothing to compare")
        assert not user.engine.requests(protocol.Bench)


async def test_the_engine_dies_during_a_bench(drive: Drive) -> None:
    async with drive(size=(120, 36)) as user:
        await open_bench(user)
        await measure_quickly(user, runs=7)
        await user.sees("Pass 1, reply 8 of 40")
        user.engine.die("GGML_ASSERT(false) failed")
        await user.sees("The engine stopped by itself (signal 6, SIGABRT)")
        await user.press("escape", to=ChatScreen)
        await user.sees("engine stopped: Ctrl+L")
        await user.command("chat.bench")
        await user.sees("The engine is not running.")
        await user.press("ctrl+l")
        await user.sees("The models are loaded again")
        await user.command("chat.bench", to=BenchScreen)


async def test_another_pair_instead_stops_the_bench_before_it_loads(drive: Drive) -> None:
    async with drive(size=(120, 36)) as user:
        await open_bench(user)
        await measure_quickly(user, runs=3)
        await user.sees("Pass 1, reply 4 of 40")
        user.app.post_message(LoadInstead(pairs.builtin_pair()))
        await user.on(ChatScreen)
        kinds = [type(request) for request in user.engine.sent]
        cancel, load = (
            kinds.index(protocol.Cancel),
            len(kinds) - 1 - kinds[::-1].index(protocol.Load),
        )
        assert cancel < load


async def test_quitting_during_a_bench(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await open_bench(user)
        await measure_quickly(user, runs=3)
        await user.sees("Pass 1, reply 4 of 40")
        await user.press("ctrl+q")
    await user.until_closed()


@pytest.mark.parametrize("size", [(44, 12), WIDE])
async def test_a_bench_at_every_size_and_through_a_resize(
    drive: Drive, size: tuple[int, int]
) -> None:
    async with drive(size=size) as user:
        await open_bench(user)
        await measure_quickly(user, runs=7)
        await user.sees("Pass 1, reply 8 of 40")
        await user.pilot.resize_terminal(20, 5)
        await user.sees("too small")
        user.engine.budget = None
        await user.pilot.resize_terminal(*size)
        await user.sees("Worth it: 1.30x ±0.01 as fast as plain")
        keep = user.app.screen.query_one("#use")
        await user.until(lambda: user.inside(keep.region), "the button to keep it")
        await user.press("shift+tab", "enter")
        chart = user.app.screen.query_one("#chart")
        await user.until(lambda: chart.size.width, "the details")
        for shown in user.app.screen.query(Chart):
            assert max(map(len, str(shown.render()).splitlines())) <= shown.size.width
        await user.press("escape", to=ChatScreen)
        await user.press("ctrl+o", to=MenuScreen)


def measured(
    speeds: dict[str, dict[str, float]], repeats: int, noise: float = 0.003
) -> BenchReport:
    """Speeds by prompt and setting, a little off in each repeat."""
    return report_of(
        [
            BenchRun(
                prompt=prompt, setting=setting, repeat=repeat, tokens=100,
                generation_ms=100_000 / speed * (1 + noise * (-1) ** (repeat + place)),
                n_drafted=0, n_tested=0, n_accepted=0, mean_accepted_length=None, verify_ms={},
                n=None if setting == "plain" else setting if setting == "auto" else int(setting),
            )
            for prompt, by_setting in speeds.items()
            for repeat in range(repeats)
            for place, (setting, speed) in enumerate(by_setting.items())
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("chat", "code", "said", "advice"),
    [
        ({"1": 14, "3": 17}, {"1": 14, "3": 17.2},
         "Worth it: 1.7x ±0.3 as fast as plain with 3 tokens a round.", "length"),
        ({"1": 13.9, "auto": 14}, {"1": 13.9, "auto": 14},
         "Worth it: 1.40x ±0.01 as fast as plain with auto.", "auto"),
        # Two prompts that differ are no evidence for others, however exact each of them is.
        ({"1": 7, "3": 5}, {"1": 12, "3": 17},
         "Can't tell: 1x ±18 as fast as plain with 3 tokens a round. Worth it for code: "
         "1.70x ±0.03 as fast as plain; chat is faster plain.", "nothing"),
        ({"1": 7, "3": 5}, {"1": 7, "3": 5},
         "Not worth it on this machine: 0.70x ±0.01 as fast as plain with 1 token a round.",
         "plain"),
        ({"1": 10.05, "3": 9}, {"1": 10.05, "3": 8},
         "No gain on this machine: same as plain with 1 token a round.", "nothing"),
        ({"auto": 10.05, "3": 9}, {"auto": 10.05, "3": 8},
         "No gain on this machine: same as plain with auto.", "auto"),
    ],
)  # fmt: skip
def test_the_verdict_claims_no_noise(
    chat: dict[str, float], code: dict[str, float], said: str, advice: str
) -> None:
    speeds = {"chat": {"plain": 10, **chat}, "code": {"plain": 10, **code}}
    report = measured(speeds, 2)
    verdict = judge(report)
    assert verdict is not None
    assert verdict_in_words(verdict, length_labels(report)) == said
    assert verdict.advice == advice


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.1])
def test_auto_is_not_advised_where_another_length_was_measured_as_faster(noise: float) -> None:
    speeds = {"chat": {"plain": 10.0, "1": 10.9, "auto": 10.8}}
    verdict = judge(measured(speeds, 2, noise=noise))
    assert verdict is not None
    assert (verdict.best.setting, verdict.advice == "auto") == ("1", False)


def test_nothing_is_judged_without_plain_decoding_or_without_drafts() -> None:
    assert judge(measured({"chat": {"plain": 10.0}}, 2)) is None
    assert judge(measured({"chat": {"plain": 10.0, "0": 10.0}}, 2)) is None
    assert judge(measured({"chat": {"1": 10.0, "3": 12.0}}, 2)) is None


async def test_a_bench_that_cannot_tell_goes_on_until_its_time_is_up(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("eaglechat.tui.screens.bench.monotonic", lambda: now)
    monkeypatch.setattr(Verdict, "is_certain", False)
    async with drive(size=(120, 36)) as user:
        await open_bench(user)
        # One run of the third pass.
        await measure_quickly(user, runs=81)
        await user.sees("Pass 3, reply 2 of 40: chat, n = 1 + n-grams · at most 1:00 left")
        requests = user.engine.requests(protocol.Bench)
        assert [one.first_repeat for one in requests] == [0, 1, 2]
        now = 61.0
        user.engine.budget = None
        await user.sees("Time is up. Worth it: 1.30x ±0.01 as fast as plain")
        assert len(user.engine.requests(protocol.Cancel)) == 1
