"""The bench screen, on a scripted engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import DataTable, Input, SelectionList

from eaglechat.engine.bench.report import SettingResult, report_of
from eaglechat.hub.local import pairs
from eaglechat.hub.local.pairs import PairLibrary
from eaglechat.settings import load
from eaglechat.tui.navigation import LoadInstead
from eaglechat.tui.screens.bench import BenchScreen
from eaglechat.tui.screens.chat.screen import ChatScreen
from eaglechat.tui.screens.menu.screen import MenuScreen
from eaglechat.tui.texts.bench import length_labels, prompt_table, verdict
from eaglechat.wire import protocol
from eaglechat.wire.bench_records import BenchRun
from tests.tui.driving import WIDE, Driver

Drive = Callable[..., Driver]


async def open_bench(user: Driver) -> None:
    await user.open_chat()
    await user.command("chat.bench")
    await user.on(BenchScreen)


async def measure_quickly(user: Driver, runs: int | None = None) -> None:
    """Start a quick bench; let it finish, or stop the script after some runs."""
    user.engine.budget = runs
    await user.command("bench.quick")


def request_of(user: Driver) -> protocol.Bench:
    request = user.engine.requests(protocol.Bench)[-1]
    assert isinstance(request, protocol.Bench)
    return request


async def test_a_bench_from_choosing_to_keeping(drive: Drive, tmp_path: Path) -> None:
    async with drive(size=(120, 36)) as user:
        await user.open_chat()
        await user.ask("hello")
        await user.type("not yet sent")
        await user.command("chat.bench")
        await user.on(BenchScreen)
        screen = user.app.screen
        await user.sees("192 replies")
        screen.query_one("#prompts", SelectionList).deselect_all()
        await user.sees("Choose at least one prompt.")
        screen.query_one("#prompts", SelectionList).select(2)
        screen.query_one("#lengths", Input).value = "0, 3, 17"
        await user.sees("A draft length is 0 to 16 or auto, not 17.")
        screen.query_one("#lengths", Input).value = "0, 3, auto"
        screen.query_one("#repeats", Input).value = "2"
        await user.sees("8 replies of")
        user.engine.budget = 3
        await user.command("bench.measure")
        await user.sees("Reply 4 of 8: mathematics, n = auto")
        await user.sees("left")
        assert screen.query_one(DataTable).row_count == 1

        user.engine.budget = None
        await user.sees("Fastest draft length: 3 (108.5 tok/s, 1.30x plain decoding")
        request = request_of(user)
        assert [prompt.name for prompt in request.prompts] == ["mathematics"]
        assert (request.n, request.repeats, request.max_tokens) == ((0, 3, "auto"), 2, 128)
        await user.sees("108.5 ±0.5")
        await user.press("enter")
        await user.on(ChatScreen)
        await user.sees("smollm2-135m starts with n_draft_max 3 from now on.")
        assert user.chat.controls.n_draft_max == 3
        assert user.prompt.text == "not yet sent"
        assert len(user.messages) == 2
        await user.press("enter")
        await user.idle()
        assert len(user.messages) == 4
    assert PairLibrary(tmp_path / "state").kept_length(pairs.builtin_pair()) == 3


async def test_the_best_length_kept_for_all_pairs(drive: Drive, tmp_path: Path) -> None:
    async with drive(size=(120, 36)) as user:
        user.app.services.pairs.keep_length(pairs.builtin_pair(), 7)
        await open_bench(user)
        await user.sees("This pair starts with n_draft_max 7.")
        assert user.chat.controls.n_draft_max == 7
        await measure_quickly(user)
        await user.sees("Fastest draft length: 3")
        await user.click("#keep-all")
        await user.on(ChatScreen)
        assert user.chat.controls.n_draft_max == 3
        assert user.app.services.pairs.kept_length(pairs.builtin_pair()) is None
        await user.sees("drafts 7 tokens per round")
        await user.command("chat.new")
        await user.sees("drafts 3 tokens per round")
    assert load(tmp_path / "config.toml")[0].speculation.n_draft_max == 3


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
        await user.sees("Reply 8 of 12")
        await user.press("escape")
        await user.sees("Stopped. The tables show what was measured so far.")
        assert len(user.engine.requests(protocol.Cancel)) == 1
        await user.sees("Fastest draft length: 3")
        await user.press("escape")
        await user.on(ChatScreen)


async def test_stopped_before_anything_was_measured_there_is_nothing_to_keep(drive: Drive) -> None:
    async with drive(size=(80, 24)) as user:
        await open_bench(user)
        await measure_quickly(user, runs=0)
        await user.press("escape")
        await user.sees("Stopped.")
        assert "Use for" not in user.text
        again = user.app.screen.query_one("#again")
        await user.until(lambda: again.has_focus, "the focus on Again")
        await user.press("enter")
        await user.sees("12 replies of")


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
        await user.sees("Reply 8 of 12")
        user.engine.die("GGML_ASSERT(false) failed")
        await user.sees("The engine stopped by itself (signal 6, SIGABRT)")
        await user.press("escape")
        await user.on(ChatScreen)
        await user.sees("engine stopped: Ctrl+L")
        await user.command("chat.bench")
        await user.sees("The engine is not running.")
        await user.press("ctrl+l")
        await user.sees("The models are loaded again")
        await user.command("chat.bench")
        await user.on(BenchScreen)


async def test_another_pair_instead_stops_the_bench_before_it_loads(drive: Drive) -> None:
    async with drive(size=(120, 36)) as user:
        await open_bench(user)
        await measure_quickly(user, runs=3)
        await user.sees("Reply 4 of 12")
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
        await user.sees("Reply 4 of 12")
        await user.press("ctrl+q")
    await user.until_closed()


@pytest.mark.parametrize("size", [(44, 12), WIDE])
async def test_a_bench_at_every_size_and_through_a_resize(
    drive: Drive, size: tuple[int, int]
) -> None:
    async with drive(size=size) as user:
        await open_bench(user)
        await measure_quickly(user, runs=7)
        await user.sees("Reply 8 of 12")
        await user.pilot.resize_terminal(20, 5)
        await user.sees("too small")
        user.engine.budget = None
        await user.pilot.resize_terminal(*size)
        await user.sees("Fastest draft length: 3")
        keep = user.app.screen.query_one("#keep-here")
        await user.until(lambda: user.inside(keep.region), "the button to keep it")
        chart = user.app.screen.query_one("#chart")
        lines = str(chart.render()).splitlines()
        assert max(map(len, lines)) <= chart.size.width
        await user.press("escape")
        await user.on(ChatScreen)
        await user.press("ctrl+o")
        await user.on(MenuScreen)


def result(setting: str, speed_up: float) -> SettingResult:
    return SettingResult(
        setting, int(setting), "chain", False, "auto",
        10.0 * speed_up, speed_up, speed_up, None, None, None, {},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("best", "repeats", "said"),
    [
        (result("0", 1.06), 3, "Not drafting is fastest here: n_draft_max 0 decodes plainly too"),
        (result("3", 1.06), 3, "Fastest draft length: 3"),
        (result("3", 0.9), 3, "Plain decoding is fastest here"),
        (result("3", 1.06), 1, "Measured once: repeats tell a difference from noise."),
    ],
)
def test_the_verdict_crowns_no_noise(best: SettingResult, repeats: int, said: str) -> None:
    runs = [
        BenchRun(
            prompt="chat", setting=setting, repeat=repeat, tokens=9, generation_ms=90.0,
            n_drafted=0, n_tested=0, n_accepted=0, mean_accepted_length=None, verify_ms={},
        )
        for setting in ("plain", "3")
        for repeat in range(repeats)
    ]  # fmt: skip
    report = report_of(runs)
    found = verdict(best, report)
    assert said in found
    assert ("Measured once" in found) == (repeats == 1)
    _, *rows = prompt_table(report, length_labels(report))
    assert all(("±" in cell) == (repeats > 1) for row in rows for cell in row[1:3])
