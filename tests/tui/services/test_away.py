"""What the terminal is told while its user looks elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from textual import events

from eaglechat.settings.model import InterfaceSettings, Settings
from eaglechat.tui.services.desktop import Away
from tests.tui.driving import Driver

Drive = Callable[..., Driver]


@dataclass
class Desk:
    """A terminal, its user, and the time."""

    interface: InterfaceSettings = field(default_factory=InterfaceSettings)
    written: list[str] = field(default_factory=list)
    is_watched: bool = False
    now: float = 0.0

    def away(self) -> Away:
        return Away(
            self.written.append,
            lambda: self.is_watched,
            lambda: Settings(interface=self.interface),
            clock=lambda: self.now,
        )

    def write_for(self, seconds: float) -> None:
        """A reply that takes so long."""
        away = self.away()
        away.follow("writing…", "pair")
        self.now += seconds
        away.follow(None, "pair")


def test_the_title_says_what_goes_on_once() -> None:
    desk = Desk(is_watched=True)
    away = desk.away()
    away.follow("writing…", "pair")
    away.follow("writing…", "pair")
    away.follow(None, "pair")
    away.follow(None, "pair")
    titles = ["writing… · eaglechat", "done · eaglechat", "pair · eaglechat"]
    assert desk.written == [f"\x1b]2;{title}\x07" for title in titles]


def test_nothing_in_a_title_ends_its_sequence() -> None:
    desk = Desk()
    desk.away().show("a\x1b\\b\x07c\nd")
    assert desk.written == ["\x1b]2;a\\bcd · eaglechat\x07"]


@pytest.mark.parametrize(
    ("how", "environment", "told"),
    [
        ("bell", {}, "\x07"),
        ("off", {}, ""),
        ("desktop", {}, "\x1b]9;Reply finished: pair\x07"),
        (
            "desktop",
            {"TMUX": "/tmp/tmux"},
            "\x1bPtmux;\x1b\x1b]9;Reply finished: pair\x07\x1b\\",
        ),
    ],
)
def test_the_end_of_a_long_reply_is_told(
    how: str, environment: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    desk = Desk(InterfaceSettings(notify=how, notify_after=10))  # type: ignore[arg-type]
    desk.write_for(10)
    assert "".join(desk.written[2:]) == told


@pytest.mark.parametrize(("seconds", "is_watched"), [(9.0, False), (60.0, True)])
def test_a_short_reply_or_a_watched_one_is_not_told(seconds: float, is_watched: bool) -> None:
    desk = Desk(is_watched=is_watched)
    desk.write_for(seconds)
    assert "\x07" not in desk.written


async def test_a_reply_that_was_left_rings_in_no_other_chat(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = drive(settings=Settings(interface=InterfaceSettings(notify_after=0)))
    written: list[str] = []
    monkeypatch.setattr(user.app.services.away, "write", written.append)
    async with user:
        await user.open_chat()
        await user.ask("hello", rounds=2)
        await user.until(lambda: any("writing" in one for one in written), "the title")
        user.app.post_message(events.AppBlur())
        await user.until(lambda: not user.app.app_focus, "another window")
        await user.command("chat.new")
        await user.until(lambda: not user.messages, "a new chat")
        user.chat.show_numbers()
        assert "\x07" not in written
        assert not any("done" in one for one in written)


async def test_the_app_tells_its_terminal(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    interface = InterfaceSettings(notify_after=0)
    user = drive(settings=Settings(interface=interface))
    written: list[str] = []
    monkeypatch.setattr(user.app.services.away, "write", written.append)
    async with user:
        await user.open_chat()
        assert any("loading smollm2-135m" in one for one in written)
        await user.ask("hello", rounds=2)
        await user.until(lambda: any("writing" in one for one in written), "the title")
        user.app.post_message(events.AppBlur())
        await user.until(lambda: not user.app.app_focus, "another window")
        user.engine.budget = None
        await user.until(lambda: "\x07" in written, "a bell")
        assert any("done" in one for one in written)
