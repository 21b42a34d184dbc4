"""The app: the theme, the engine's events at frame rate, and the way from screen to screen."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.screen import Screen
from textual.theme import Theme

from eaglechat.chat.history import SavedChat
from eaglechat.engine.loading.machine import memory
from eaglechat.hub.catalogue.fit import Machine, machine_of
from eaglechat.hub.desk import HubDesk
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import PairLibrary
from eaglechat.links.process import Died, EngineLink, EngineStartError
from eaglechat.settings import Problem, Settings
from eaglechat.settings.writing import SettingsFileError, save_setting
from eaglechat.tui.commands import ScreenCommands
from eaglechat.tui.messages import EngineEvents, InstallsChanged, MachineKnown, SettingsChanged
from eaglechat.tui.pace import drawing_pace
from eaglechat.tui.themes import LoadedTheme, load_themes, token_variable_defaults
from eaglechat.wire.protocol import (
    PROTOCOL_VERSION,
    AnyRequest,
    Auto,
    Hello,
    PairInfo,
    Unload,
)

if TYPE_CHECKING:
    from eaglechat.hub.catalogue.entries import Entry

FRAMES_PER_SECOND = 30
FEWEST_FRAMES_PER_SECOND = 8
INSTALL_LOOKS_PER_SECOND = 3
FALLBACK_THEME = "eagle-dark"


class EagleApp(App[None]):
    """Chats with a pair of models behind an EngineLink.

    `start` is the pair to load at once; without one the menu opens. Settings that are changed in
    the app are written to `config_file`, chats to `chats_dir`.
    """

    TITLE = "eaglechat"
    # The menu is the default screen, whose own CSS_PATH Textual does not read.
    CSS_PATH = ["app.tcss", "screens/menu.tcss"]
    COMMANDS = App.COMMANDS | {ScreenCommands}
    # Narrower or lower than the first step, screens show that the terminal is too small.
    HORIZONTAL_BREAKPOINTS = [(0, "-too-narrow"), (44, "-narrow"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-too-low"), (12, "-low"), (20, "-high")]
    ENABLE_COMMAND_PALETTE = True

    BINDINGS = [
        Binding("ctrl+q", "quit", "Quit", id="app.quit", tooltip="Leave eaglechat", priority=True),
        Binding(
            "ctrl+g",
            "downloads",
            "Downloads",
            id="app.downloads",
            tooltip="What is being downloaded and converted",
            priority=True,
            show=False,
        ),
        Binding(
            "f10",
            "load_newest",
            "Load it",
            id="app.load_newest",
            tooltip="Load the pair that was installed last",
            priority=True,
            show=False,
        ),
        Binding("f1", "help", "Help", id="app.help", tooltip="Every key of this screen"),
        Binding(
            "f9",
            "settings",
            "Settings",
            id="app.settings",
            tooltip="Change the settings",
            priority=True,
            show=False,
        ),
    ]

    def __init__(
        self,
        *,
        settings: Settings,
        problems: Sequence[Problem] = (),
        engine: EngineLink,
        pairs: PairLibrary,
        config_file: Path,
        chats_dir: Path,
        theme_dirs: Sequence[Path],
        desk: HubDesk | None = None,
        start: Pair | None = None,
        n_draft_max: int | Auto | None = None,
    ) -> None:
        loaded, theme_problems = load_themes(*theme_dirs)
        chosen = _choose_theme(settings.interface.theme, loaded)
        self._loaded_themes = loaded
        # Textual chooses the filter for NO_COLOR in its constructor and never again, so the kind
        # of theme must be known by then, and stays.
        no_color_kind = chosen.ansi if chosen and "NO_COLOR" in os.environ else None
        super().__init__(ansi_color=no_color_kind)
        for theme in loaded:
            self.register_theme(theme.theme)
        if chosen is not None:
            self.theme = chosen.name
        self.settings = settings
        self.pairs = pairs
        self.config_file = config_file
        self.chats_dir = chats_dir
        self._notices = [*map(str, problems), *map(str, theme_problems)]
        if chosen is None or chosen.name != settings.interface.theme:
            self._notices.append(f"There is no theme “{settings.interface.theme}”.")
        if pairs.problem:
            self._notices.append(pairs.problem)
        self.desk = desk or HubDesk()
        self._stages: dict[str, str] = {}
        self._newest: Pair | None = None
        self._engine = engine
        self._pace = drawing_pace(FEWEST_FRAMES_PER_SECOND)
        self._engine_runs = False
        self.hello: Hello | None = None
        self._request_ids = itertools.count(1)
        self._start = start
        self._n_draft_max = n_draft_max

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return token_variable_defaults(self._loaded_themes, self.current_theme.dark)

    def get_default_screen(self) -> Screen[Any]:
        from eaglechat.tui.screens.menu.screen import MenuScreen

        return MenuScreen()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        # Textual's other commands are among the keys already.
        yield SystemCommand("Theme", "Choose a theme", self.action_change_theme)
        yield SystemCommand("Picture", "Save the screen as an SVG file", self.deliver_screenshot)

    def on_mount(self) -> None:
        self.set_interval(1 / FRAMES_PER_SECOND, self._drain_engine)
        self.set_interval(1 / INSTALL_LOOKS_PER_SECOND, self._watch_installs)
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        if self._notices:
            self.notify(
                "\n".join(self._notices),
                title="Not everything could be used",
                severity="warning",
                timeout=20,
                markup=False,
            )
        if self._start is not None:
            self.open_chat(self._start)

    def on_unmount(self) -> None:
        # Not a daemon: the interpreter waits for it, a second at most, so that no engine is left
        # behind; the terminal is given back before.
        threading.Thread(target=self._engine.close, name="engine-close").start()
        self.desk.close()

    # The engine

    def next_request_id(self) -> int:
        return next(self._request_ids)

    def start_engine(self) -> None:
        """Start the engine unless it runs. Raises EngineStartError."""
        if self.hello is not None and self.hello.protocol != PROTOCOL_VERSION:
            # Another version may have been installed since.
            self._engine.close()
            self._engine_runs, self.hello = False, None
        if not self._engine_runs:
            self._engine.start()
            self._engine_runs = True

    def warm_engine(self) -> None:
        """Start an engine on this machine while the user chooses, and learn what the machine has.

        What goes wrong is said when a pair is loaded.
        """
        if not self.settings.engine.command:
            with suppress(EngineStartError):
                self.start_engine()

    @property
    def machine(self) -> Machine:
        """The engine's machine; before it has said, the RAM of this one if it runs here."""
        if self.hello is not None and self.hello.memory is not None:
            return machine_of(self.hello.memory)
        return Machine(None) if self.settings.engine.command else machine_of(memory())

    def send(self, request: AnyRequest) -> bool:
        """Send a request to the engine; False if it is gone."""
        return self._engine_runs and self._engine.send(request)

    def _drain_engine(self) -> None:
        events = self._engine.drain() if self._pace.is_due() else []
        if not events:
            return
        if any(isinstance(event, Died) for event in events):
            self._engine_runs = False
            self.hello = None
        for event in events:
            if isinstance(event, Hello):
                self.hello = event
                for screen in self.screen_stack:
                    screen.post_message(MachineKnown())
        for screen in reversed(self.screen_stack):
            if hasattr(screen, "on_engine_events"):
                screen.post_message(EngineEvents(events))
                return

    # From screen to screen

    def open_chat(self, pair: Pair, saved: SavedChat | None = None) -> None:
        """Load a pair and chat with it, in a saved chat or a new one."""
        from eaglechat.tui.screens.loading import Loaded, LoadingScreen

        def loaded(result: Loaded | None) -> None:
            from eaglechat.tui.screens.chat.screen import ChatScreen

            if result is not None:
                self._remember(pair)
                chosen = self.pairs.as_kept(pair)
                if self._n_draft_max is not None:
                    chosen = replace(pair, n_draft_max=self._n_draft_max)
                self.push_screen(ChatScreen(chosen, result.info, saved))

        self.push_screen(LoadingScreen(pair), loaded)

    def _remember(self, pair: Pair) -> None:
        self.pairs.remember(pair)
        if self.pairs.problem:
            self.notify(self.pairs.problem, severity="warning", markup=False)

    def open_bench(self, pair: Pair, info: PairInfo, keep: Callable[[int | Auto], None]) -> None:
        """Measure the loaded pair; `keep` puts the length that is kept in force in its chat."""
        from eaglechat.tui.screens.bench import BenchScreen

        self.push_screen(BenchScreen(pair, info, keep))

    def go_on(self, chat: SavedChat) -> None:
        """Go on with a saved chat, on the pair it ran on."""
        header = chat.header
        draft = Path(header.draft) if header.draft else None
        self.open_chat(self.pairs.resolve(header.pair, Path(header.target), draft), chat)

    def load_instead(self, pair: Pair) -> None:
        """From wherever the user is: back to the menu, and into a chat with a pair."""
        from eaglechat.tui.screens.bench import BenchScreen
        from eaglechat.tui.screens.chat.screen import ChatScreen

        for screen in self.screen_stack:
            if isinstance(screen, ChatScreen):
                screen.leave()
                self.send(Unload())
            elif isinstance(screen, BenchScreen):
                screen.leave()
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self.open_chat(pair)

    # The Hub

    def open_plan(self, entry: Entry) -> None:
        """Show what installing a pair takes; the user starts it there."""
        from eaglechat.tui.screens.hub.plan import PlanScreen

        def answered(started: bool | None) -> None:
            if started:
                self.action_downloads()

        self.push_screen(PlanScreen(entry), answered)

    def open_search(self) -> None:
        from eaglechat.tui.screens.hub.search import SearchScreen

        def found(entry: Entry | None) -> None:
            if entry is not None:
                self.open_plan(entry)

        self.push_screen(SearchScreen(), found)

    def open_library(self) -> None:
        from eaglechat.tui.screens.hub.library import LibraryScreen

        self.push_screen(LibraryScreen(), self._load_if_chosen)

    def action_downloads(self) -> None:
        from eaglechat.tui.screens.hub.downloads import DownloadsScreen

        if not isinstance(self.screen, DownloadsScreen):
            self.push_screen(DownloadsScreen(), self._load_if_chosen)

    def _load_if_chosen(self, pair: Pair | None) -> None:
        if pair is not None:
            self.load_instead(pair)

    def action_load_newest(self) -> None:
        if self._newest is None:
            self.notify("Nothing was installed since you started.")
        else:
            self.load_instead(self._newest)

    def _watch_installs(self) -> None:
        """Say it once when a pair is ready, or cannot be had."""
        for install in self.desk.snapshots():
            name, stage = install.entry.name, install.stage.value
            if self._stages.get(name) == stage:
                continue
            self._stages[name] = stage
            if install.pair is not None:
                self._newest = install.pair
                self.notify(f"{name} is installed. F10 loads it.", timeout=15, markup=False)
                for screen in self.screen_stack:
                    screen.post_message(InstallsChanged())
            elif install.error is not None:
                self.notify(
                    f"{install.error}\nCtrl+G: try again.",
                    title=name,
                    severity="error",
                    timeout=20,
                    markup=False,
                )

    async def action_quit(self) -> None:
        from eaglechat.tui.screens.chat.screen import ChatScreen

        for screen in self.screen_stack:
            if isinstance(screen, ChatScreen):
                screen.leave()
        self.exit()

    def action_settings(self) -> None:
        from eaglechat.tui.screens.settings import SettingsScreen

        if not isinstance(self.screen, SettingsScreen):
            self.push_screen(SettingsScreen())

    def action_help(self) -> None:
        from eaglechat.tui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    # Settings

    def change_setting(self, table: str, key: str, value: Any) -> None:
        """Put a valid value in force and in the configuration file."""
        before = self.settings
        section = msgspec.structs.replace(getattr(before, table), **{key: value})
        self.settings = msgspec.structs.replace(before, **{table: section})
        try:
            save_setting(self.config_file, table, key, value)
        except SettingsFileError as error:
            self.notify(
                f"{error}. The change holds until you quit.", severity="error", markup=False
            )
        if (table, key) == ("interface", "theme") and value in self.available_themes:
            self.theme = value
        for screen in self.screen_stack:
            screen.post_message(SettingsChanged(before, self.settings))

    def _keep_theme(self, theme: Theme) -> None:
        if theme.name != self.settings.interface.theme:
            self.change_setting("interface", "theme", theme.name)


def _choose_theme(name: str, loaded: Sequence[LoadedTheme]) -> Theme | None:
    themes = {theme.theme.name: theme.theme for theme in loaded}
    return themes.get(name) or themes.get(FALLBACK_THEME) or next(iter(themes.values()), None)
