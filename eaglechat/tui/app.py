"""The app: its services, theme and keys, and what loads a pair or leaves the open chat."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App
from textual.filter import LineFilter
from textual.screen import Screen
from textual.signal import Signal
from textual.timer import Timer

import eaglechat.tui.textual_fixes  # noqa: F401
from eaglechat.chat.writing.question import typed
from eaglechat.hub.desk import HubDesk
from eaglechat.hub.local.pair_library import PairLibrary
from eaglechat.hub.local.pairs import Pair, pair_of_server
from eaglechat.links.base import Link
from eaglechat.settings.config_file import Problem
from eaglechat.settings.model import ServerSettings, Settings, key_variable
from eaglechat.tui.commands.keys import (
    SEARCH_KEY,
    active_commands,
    bindings_of,
    key_of,
    keys_of,
    read_keymap,
    textual_keymap,
    use,
    with_keys,
)
from eaglechat.tui.safe_lines import SafeLines
from eaglechat.tui.screens.base import EagleModal, EagleScreen, open_screen
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.services import desktop
from eaglechat.tui.services.desktop import Away
from eaglechat.tui.services.engine import EngineService
from eaglechat.tui.services.services import Services, SettingsService
from eaglechat.tui.themes import choose_theme, load_themes, readable, token_variable_defaults
from eaglechat.tui.widgets.filter import Filter
from eaglechat.wire.protocol import Auto

if TYPE_CHECKING:
    from eaglechat.chat.saved_chat import SavedChat
    from eaglechat.tui.screens.more import MoreScreen

COLUMNS_AFTER_S = 0.4
"""The leader's key shows its columns when no second key has come for so long."""
_SAFE_LINES = SafeLines()


class EagleApp(App[None]):
    """The terminal app. It talks to models through `engine`, a Link.

    `start` is the pair to load at once; without one the menu opens. Settings that are changed in
    the app are written to `config_file`, chats to `chats_file`.
    """

    TITLE = "eaglechat"
    # The menu is the default screen, whose own CSS_PATH Textual does not read. A dialog with which
    # its sheet were read would not grow with its text.
    CSS_PATH = ["app.tcss", "screens/menu/menu.tcss", "screens/dialogs.tcss"]
    ENABLE_COMMAND_PALETTE = False
    # Narrower or lower than the first step, screens show that the terminal is too small.
    HORIZONTAL_BREAKPOINTS = [(0, "-too-narrow"), (44, "-narrow"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-too-low"), (12, "-low"), (20, "-high")]

    BINDINGS = bindings_of("app")

    def __init__(
        self,
        *,
        settings: Settings,
        problems: Sequence[Problem] = (),
        engine: Link,
        pairs: PairLibrary,
        config_file: Path,
        chats_file: Path,
        theme_dirs: Sequence[Path],
        desk: HubDesk | None = None,
        start: Pair | None = None,
        n_draft_max: int | Auto | None = None,
    ) -> None:
        loaded, theme_problems = load_themes(*theme_dirs)
        chosen = choose_theme(settings.interface.theme, loaded)
        self._loaded_themes = loaded
        # Textual chooses the filter for NO_COLOR once, in its constructor, by the kind of theme.
        no_color_kind = chosen.ansi if "NO_COLOR" in os.environ else None
        super().__init__(ansi_color=no_color_kind)
        keymap, key_problems = read_keymap(settings.keys, config_file)
        use(keymap)
        self.set_keymap(textual_keymap(keymap))
        for theme in loaded:
            self.register_theme(theme)
        if chosen.ansi:
            self.theme = chosen.name
        else:
            # Unwatched: every style sheet would be parsed a second time before the first row.
            self.set_reactive(App.theme, chosen.name)
            self.stylesheet.set_variables(self.get_css_variables())
        settings_service = SettingsService(self, settings, config_file)
        self.services = Services(
            engine=EngineService(
                engine, lambda: settings_service.current.engine, ask_for_tick=self._ask_for_tick
            ),
            settings=settings_service,
            pairs=pairs,
            n_draft_max=n_draft_max,
            desk=desk or HubDesk(),
            leave_chat=self.leave_chat,
            open_menu=self.open_menu,
            load_instead=self.load_instead,
            resume=self.resume,
            models_changed=Signal(self, "models"),
            chats_changed=Signal(self, "chats"),
            chats_file=chats_file,
            say_of_chats=self._say_of_chats,
            typed_ahead=[],
            away=Away(
                self._write_past_screen, lambda: self.app_focus, lambda: settings_service.current
            ),
        )
        self._notices = list(map(str, (*problems, *key_problems, *theme_problems)))
        if chosen.name != settings.interface.theme:
            self._notices.append(f"There is no theme “{settings.interface.theme}”.")
        if pairs.problem:
            self._notices.append(pairs.problem)
        self._start = start
        self._stages: dict[str, str] = {}
        """The last seen stage of each installation, by the name of its pair."""
        self._leader: MoreScreen | None = None
        """The columns of the commands of which one's second key is next; None if none is."""
        self._columns_timer: Timer | None = None

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), _SAFE_LINES]

    def notify(self, message: str, **options: Any) -> None:
        """Show a notice. It is never read as markup: it may quote what others wrote. The same text
        stands once, as the newest."""
        for shown in [*self._notifications]:
            if shown.message == message:
                self._unnotify(shown, refresh=False)
        super().notify(message, **{**options, "markup": False})

    def copy_to_clipboard(self, text: str) -> None:
        desktop.copy(self, text, "the selection")

    def open_url(self, url: str, *, new_tab: bool = True) -> None:
        """Open an address, but not in a browser of the console: it would take the terminal."""
        try:
            browser = webbrowser.get()
        except webbrowser.Error:
            browser = None
        is_of_console = type(browser) is webbrowser.GenericBrowser or not getattr(
            browser, "redirect_stdout", True
        )
        if browser is None or is_of_console:
            desktop.copy(self, url, "the address, as there is no browser with a window here")
        else:
            super().open_url(url, new_tab=new_tab)

    def get_default_screen(self) -> Screen[Any]:
        from eaglechat.tui.screens.menu.screen import MenuScreen

        return MenuScreen(self.services)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return token_variable_defaults(self._loaded_themes, self.current_theme.dark)

    def get_css_variables(self) -> dict[str, str]:
        self.theme_variables = readable(super().get_css_variables(), self.current_theme.variables)
        return self.theme_variables

    def on_mount(self) -> None:
        if sys.platform != "win32":
            # Save the chat and restore the terminal also when a signal ends the program, or when
            # its terminal window is closed.
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, self._end, 128 + number)
        self.services.away.show("")
        self.set_interval(1.0, self._announce_installs)
        self.services.settings.changed.subscribe(self, self._follow_settings)
        if self._notices:
            self.notify(
                "\n".join(self._notices),
                title="Some of your configuration was ignored",
                severity="warning",
                timeout=20,
            )
        if self._start is not None:
            self.open_chat(self._start)

    def _say_of_chats(self, sentence: str) -> None:
        with suppress(RuntimeError):  # the app ended meanwhile
            self.call_later(self.notify, sentence, severity="warning", timeout=20)

    def on_unmount(self) -> None:
        self.services.away.close()
        # Not a daemon: the interpreter waits for it, a second at most, so that the engine ends.
        # The terminal is restored before that.
        threading.Thread(target=self.services.engine.close, name="engine-close").start()
        self.services.desk.close()

    def _write_past_screen(self, sequence: str) -> None:
        if self._driver is not None:
            self._driver.write(sequence)

    def _ask_for_tick(self) -> None:
        with suppress(RuntimeError):  # the app ended meanwhile
            self.call_later(self._follow_engine)

    def _follow_engine(self) -> None:
        # While the app closes, its screens have no widgets left.
        if self.is_running and (wait_s := self.services.engine.tick()):
            # A timer of Textual's that is due before it begins to wait never fires.
            asyncio.get_running_loop().call_later(wait_s, self._ask_for_tick)

    def action_suspend(self) -> None:
        if sys.platform == "win32" or self.is_headless:
            self.notify("There is no shell here that could resume eaglechat.")
        else:
            self.action_suspend_process()

    async def action_quit(self) -> None:
        self.leave_chat(lambda: self._end(0), "quits")

    def _end(self, return_code: int) -> None:
        self._leave_all(ends=True)
        self.exit(return_code=return_code)

    # Loading a pair, and leaving the chat

    def _leave_all(self, *, ends: bool) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, EagleScreen):
                screen.leave(ends=ends)

    def _back_to_menu(self) -> None:
        """Leave and close every screen above the menu, and free the models' memory."""
        if len(self.screen_stack) > 1:
            self._leave_all(ends=False)
            self.services.engine.unload()
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def open_chat(
        self, pair: Pair, saved: SavedChat | None = None, *, only_reads: bool = False
    ) -> None:
        """Open a chat, a saved one or a new one, which loads its pair unless it `only_reads`."""
        from eaglechat.tui.screens.chat.screen import ChatScreen

        for words in self.screen.query(Filter):
            self.services.typed_ahead.extend(typed(words.take_ahead()))
        open_screen(self, ChatScreen(self.services, pair, saved, only_reads=only_reads))

    def leave_chat(self, then: Callable[[], None], does: str = "leaves it") -> None:
        if any(one.is_unsaved for one in self.screen_stack if isinstance(one, EagleScreen)):
            said = with_keys(
                "This chat cannot be saved to disk: when you leave it, everything unsaved is lost. "
                "{chat.export} in the chat writes it to another folder, or copies it."
            )
            open_screen(self, Ask("Unsaved chat", said, does), lambda _yes: then())
        else:
            then()

    def open_menu(self) -> None:
        def open_it() -> None:
            self._back_to_menu()
            # What was typed led to the chat that was left.
            self.screen.query_one(Filter).clear()

        self.leave_chat(open_it)

    def load_instead(self, pair: Pair) -> None:
        def load() -> None:
            self._back_to_menu()
            self.open_chat(pair)

        self.leave_chat(load)

    def resume(self, chat: SavedChat) -> None:
        self.leave_chat(lambda: self._resume(chat))

    def _resume(self, chat: SavedChat) -> None:
        from eaglechat.links.http.address import same_server

        header, settings = chat.header, self.services.settings.current
        if header.server:
            # The entry of the settings that has this address may have another name by now.
            known = (one for one in settings.server if same_server(one.url, header.server))
            unknown = ServerSettings(name=header.pair, url=header.server, key_env=key_variable())
            self._back_to_menu()
            self.open_chat(pair_of_server(next(known, unknown), header.target), chat)
            return
        draft = Path(header.draft) if header.draft else None
        pair = self.services.pairs.resolve(header.pair, Path(header.target), draft)
        self._back_to_menu()
        # Where the engine runs on this machine, and the models are gone, it can only be read.
        is_gone = not settings.engine.command and not pair.target.is_file()
        self.open_chat(pair, chat, only_reads=is_gone)

    # What the keys do

    def _toggle(self, screen: EagleModal[Any], then: Callable[[Any], None] | None = None) -> None:
        """Open a dialog, or close it if it is on top."""
        if isinstance(self.screen, EagleModal) and type(self.screen) is type(screen):
            self.screen.action_back()
        else:
            open_screen(self, screen, then)

    def action_downloads(self) -> None:
        from eaglechat.tui.screens.hub.downloads import DownloadsScreen

        self._toggle(DownloadsScreen(self.services), self.load_instead)

    def action_settings(self, at: str = "") -> None:
        """`at` names the setting to show."""
        from eaglechat.tui.screens.settings import SettingsScreen

        if at and isinstance(self.screen, SettingsScreen):
            self.screen.go_to(at)
        else:
            self._toggle(SettingsScreen(self.services, at))

    async def action_run_command(self, id: str) -> None:
        """Run a command that holds now: its name on a border was clicked."""
        for active in active_commands(self.screen):
            if active.command.id == id and active.enabled:
                await self.run_action(active.command.call(), active.node)

    def action_leader(self) -> None:
        from eaglechat.tui.screens.more import MoreScreen

        is_second = self._leader is not None
        self._end_leader()
        if isinstance(self.screen, EagleScreen) and not is_second:
            self._leader = MoreScreen(self.screen, self._end_leader)
            self._columns_timer = self.set_timer(COLUMNS_AFTER_S, self._show_columns)

    def _show_columns(self) -> None:
        if self._leader is not None and self.screen is self._leader.about:
            self.push_screen(self._leader)

    def _end_leader(self, leader: MoreScreen | None = None) -> None:
        """Wait for no second key, or not for one of this `leader`."""
        leader = leader or self._leader
        if leader is None or leader is not self._leader:
            return
        self._leader = None
        if self._columns_timer is not None:
            self._columns_timer.stop()
        if self.screen is leader:
            self.pop_screen()

    async def on_event(self, event: events.Event) -> None:
        is_typed = isinstance(event, events.Key | events.Paste) and not event.is_forwarded
        if not (is_typed and self._leader is not None and await self._take_second(event)):
            await super().on_event(event)

    async def _take_second(self, event: events.Event) -> bool:
        """Run the command of which this is the key behind the leader's. Whether the event is done:
        it is taken here, before any that follows it goes to a screen that the command opens."""
        leader = self._leader
        assert leader is not None
        if not isinstance(event, events.Key) or self.screen not in (leader, leader.about):
            self._end_leader()
            return False
        if (chosen := leader.chosen_by(event.key)) is not None:
            self._end_leader()
            await self.run_action(chosen.command.call(), chosen.node)
        elif event.key == SEARCH_KEY:
            self.action_help()
        elif self.screen is leader or event.key in keys_of("app.leader"):
            return False
        elif event.key == "escape":
            self._end_leader()
        else:
            self._show_columns()
        return True

    def action_help_quit(self) -> None:
        self.notify(with_keys("Nothing is selected to copy; {app.quit} quits."))

    def action_help(self, words: str = "") -> None:
        from eaglechat.tui.screens.help import HelpScreen

        # It searches what holds on the screen below the leader's columns.
        self._end_leader()
        self._toggle(HelpScreen(self.screen, words), self.call_next)

    # What the services say

    def _announce_installs(self) -> None:
        """Say which pairs were installed, or failed to, since the last call."""
        for install in self.services.desk.snapshots():
            name, stage = install.name, install.stage
            if self._stages.get(name) == stage:
                continue
            self._stages[name] = stage
            if install.pair is not None:
                noted = ", and shows what its conversion decided" if install.notes else ""
                self.notify(
                    f"{name} is installed. {key_of('app.downloads')} loads it{noted}.", timeout=15
                )
                self.services.models_changed.publish(None)
            elif install.error is not None:
                self.notify(
                    f"{install.error}\n{key_of('app.downloads')} to try again.",
                    title=name,
                    severity="error",
                    timeout=20,
                )

    def _follow_settings(self, change: tuple[Settings, Settings]) -> None:
        theme = change[1].interface.theme
        if theme != self.theme and theme in self.available_themes:
            self.theme = theme
