"""The app: the theme, the engine's events at frame rate, and the way from screen to screen."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.screen import Screen
from textual.theme import Theme

from eaglechat.chat.history.reading import SavedChat
from eaglechat.hub.desk import HubDesk
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import PairLibrary
from eaglechat.links.base import Link
from eaglechat.settings import Problem, Settings
from eaglechat.tui.commands.active import Active
from eaglechat.tui.commands.bindings import bindings_of, textual_keymap
from eaglechat.tui.commands.command import LEADER
from eaglechat.tui.commands.keymap import read_keymap
from eaglechat.tui.commands.palette import ScreenCommands
from eaglechat.tui.commands.registry import key_of, keys_of, use, with_keys
from eaglechat.tui.navigation import (
    Confirm,
    LoadAgain,
    LoadInstead,
    OpenBench,
    OpenChat,
    OpenPastChats,
    OpenPlan,
    OpenSearch,
    Resume,
    Say,
)
from eaglechat.tui.screens.base import EagleModal, EagleScreen
from eaglechat.tui.services.engine import FRAMES_PER_SECOND, EngineService
from eaglechat.tui.services.installs import InstallWatch
from eaglechat.tui.services.services import Services
from eaglechat.tui.services.settings import SettingsChange, SettingsService
from eaglechat.tui.services.typeahead import Typeahead
from eaglechat.tui.themes import choose_theme, load_themes, token_variable_defaults
from eaglechat.wire.protocol import Auto, PairInfo

if TYPE_CHECKING:
    from eaglechat.hub.downloads.installs import InstallSnapshot

INSTALL_LOOKS_PER_SECOND = 3


class EagleApp(App[None]):
    """Chats with a pair of models behind a Link.

    `start` is the pair to load at once; without one the menu opens. Settings that are changed in
    the app are written to `config_file`, chats to `chats_dir`.
    """

    TITLE = "eaglechat"
    # The menu is the default screen, whose own CSS_PATH Textual does not read.
    CSS_PATH = ["app.tcss", "screens/menu/menu.tcss"]
    COMMANDS = App.COMMANDS | {ScreenCommands}
    # Narrower or lower than the first step, screens show that the terminal is too small.
    HORIZONTAL_BREAKPOINTS = [(0, "-too-narrow"), (44, "-narrow"), (100, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-too-low"), (12, "-low"), (20, "-high")]
    ENABLE_COMMAND_PALETTE = True

    BINDINGS = bindings_of("app")

    def __init__(
        self,
        *,
        settings: Settings,
        problems: Sequence[Problem] = (),
        engine: Link,
        pairs: PairLibrary,
        config_file: Path,
        chats_dir: Path,
        theme_dirs: Sequence[Path],
        desk: HubDesk | None = None,
        start: Pair | None = None,
        n_draft_max: int | Auto | None = None,
    ) -> None:
        loaded, theme_problems = load_themes(*theme_dirs)
        chosen = choose_theme(settings.interface.theme, loaded)
        self._loaded_themes = loaded
        # Textual chooses the filter for NO_COLOR in its constructor and never again, so the kind
        # of theme must be known by then, and stays.
        no_color_kind = chosen.ansi if chosen and "NO_COLOR" in os.environ else None
        super().__init__(ansi_color=no_color_kind)
        keymap, key_problems = read_keymap(settings.keys, config_file)
        use(keymap)
        self.set_keymap(textual_keymap(keymap))
        for theme in loaded:
            self.register_theme(theme.theme)
        if chosen is not None:
            self.theme = chosen.name
        desk = desk or HubDesk()
        settings_service = SettingsService(self, settings, config_file, self._complain)
        self.services = Services(
            engine=EngineService(engine, lambda: not settings_service.current.engine.command),
            settings=settings_service,
            pairs=pairs,
            desk=desk,
            installs=InstallWatch(self, desk, self._announce),
            chats_dir=chats_dir,
            typeahead=Typeahead(),
        )
        self._notices = list(map(str, (*problems, *key_problems, *theme_problems)))
        if chosen is None or chosen.name != settings.interface.theme:
            self._notices.append(f"There is no theme “{settings.interface.theme}”.")
        if pairs.problem:
            self._notices.append(pairs.problem)
        self._start = start
        self._n_draft_max = n_draft_max

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return token_variable_defaults(self._loaded_themes, self.current_theme.dark)

    def get_key_display(self, binding: Binding) -> str:
        leader, _, second = binding.key.rpartition(" ")
        shown = super().get_key_display(binding.with_key(second))
        if leader != LEADER:
            return shown
        return f"{super().get_key_display(binding.with_key(keys_of('app.leader')[0]))} {shown}"

    def get_default_screen(self) -> Screen[Any]:
        from eaglechat.tui.screens.menu.screen import MenuScreen

        return MenuScreen(self.services)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        # Textual's other commands are among the keys already.
        yield SystemCommand("Theme", "Choose a theme", self.action_change_theme)
        yield SystemCommand("Picture", "Save the screen as an SVG file", self.deliver_screenshot)

    def on_mount(self) -> None:
        self.set_interval(1 / FRAMES_PER_SECOND, self._follow_engine)
        self.set_interval(1 / INSTALL_LOOKS_PER_SECOND, self.services.installs.look)
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        self.services.settings.changed.subscribe(self, self._follow_settings)
        if self._notices:
            self.notify(
                "\n".join(self._notices),
                title="Not everything could be used",
                severity="warning",
                timeout=20,
                markup=False,
            )
        if self._start is not None:
            self._load_and_chat(self._start)

    def on_unmount(self) -> None:
        # Not a daemon: the interpreter waits for it, a second at most, so that no engine is left
        # behind; the terminal is given back before.
        threading.Thread(target=self.services.engine.close, name="engine-close").start()
        self.services.desk.close()

    def _follow_engine(self) -> None:
        # While the app closes, its screens have no widgets to show anything.
        if self.is_running:
            self.services.engine.tick()

    # From screen to screen

    def _show(self, screen: Screen[Any], then: Callable[[Any], None] | None = None) -> None:
        """Open a screen unless one of its kind is open: a key may come twice before it is there.

        `then` gets what is chosen there, if anything is.
        """

        def closed(chosen: Any) -> None:
            if chosen and then is not None:
                then(chosen)

        if all(type(shown) is not type(screen) for shown in self.screen_stack):
            self.push_screen(screen, closed)

    def _back_to_menu(self) -> None:
        """Leave and close all there is above the menu, whose models are freed."""
        if len(self.screen_stack) > 1:
            self._leave_all()
            self.services.engine.unload()
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def _leave_all(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, EagleScreen):
                screen.leave()

    def _load_and_chat(self, pair: Pair, saved: SavedChat | None = None) -> None:
        """Load a pair and chat with it, in a saved chat or a new one."""
        from eaglechat.tui.screens.loading import LoadingScreen

        def loaded(info: PairInfo) -> None:
            from eaglechat.tui.screens.chat.screen import ChatScreen

            self._remember(pair)
            chosen = self.services.pairs.as_kept(pair)
            if self._n_draft_max is not None:
                chosen = replace(pair, n_draft_max=self._n_draft_max)
            self.switch_screen(ChatScreen(self.services, chosen, info, saved))

        self._show(LoadingScreen(self.services, pair, loaded))

    def _remember(self, pair: Pair) -> None:
        self.services.pairs.remember(pair)
        if self.services.pairs.problem:
            self.notify(self.services.pairs.problem, severity="warning", markup=False)

    def _load_instead(self, pair: Pair) -> None:
        self._back_to_menu()
        self._load_and_chat(pair)

    def on_open_menu(self) -> None:
        self._back_to_menu()

    def on_open_chat(self, message: OpenChat) -> None:
        if len(self.screen_stack) == 1:
            self._load_and_chat(message.pair)

    def on_load_instead(self, message: LoadInstead) -> None:
        self._load_instead(message.pair)

    def on_load_again(self, message: LoadAgain) -> None:
        from eaglechat.tui.screens.loading import LoadingScreen

        def loaded(info: PairInfo) -> None:
            self.pop_screen()
            message.then(info)

        self._show(LoadingScreen(self.services, message.pair, loaded))

    def on_resume(self, message: Resume) -> None:
        header = message.chat.header
        draft = Path(header.draft) if header.draft else None
        pair = self.services.pairs.resolve(header.pair, Path(header.target), draft)
        self._back_to_menu()
        is_here = not self.services.settings.current.engine.command
        if is_here and not pair.target.is_file():
            self._read_chat(pair, message.chat)
        else:
            self._load_and_chat(pair, message.chat)

    def _read_chat(self, pair: Pair, saved: SavedChat) -> None:
        """Show a chat whose models are not on this machine any more."""
        from eaglechat.tui.screens.chat.screen import ChatScreen

        self._show(ChatScreen(self.services, pair, None, saved))

    def on_open_past_chats(self, message: OpenPastChats) -> None:
        from eaglechat.tui.screens.chat.chats import ChatsScreen

        self._show(ChatsScreen(self.services), message.then)

    def on_open_files(self) -> None:
        from eaglechat.tui.screens.menu.open_files import OpenFilesScreen

        self._show(OpenFilesScreen(), self._load_instead)

    def on_open_bench(self, message: OpenBench) -> None:
        from eaglechat.tui.screens.bench.screen import BenchScreen

        self._show(BenchScreen(self.services, message.pair, message.info, message.keep))

    def on_open_plan(self, message: OpenPlan) -> None:
        from eaglechat.tui.screens.hub.plan import PlanScreen

        plan = PlanScreen(self.services, message.entry)
        self._show(plan, lambda _started: self.on_open_downloads())

    def on_open_search(self, message: OpenSearch) -> None:
        from eaglechat.tui.screens.hub.search import SearchScreen

        search = SearchScreen(self.services, message.words)
        self._show(search, lambda entry: self.on_open_plan(OpenPlan(entry)))

    def on_open_library(self) -> None:
        from eaglechat.tui.screens.hub.library import LibraryScreen

        self._show(LibraryScreen(self.services), self._load_instead)

    def on_open_downloads(self) -> None:
        from eaglechat.tui.screens.hub.downloads import DownloadsScreen

        self._show(DownloadsScreen(self.services), self._load_instead)

    def on_say(self, message: Say) -> None:
        from eaglechat.tui.screens.message import MessageDialog

        self._show(MessageDialog(message.title, message.text))

    def on_confirm(self, message: Confirm) -> None:
        from eaglechat.tui.screens.confirm import ConfirmDialog

        dialog = ConfirmDialog(message.title, message.text, message.agree)
        self._show(dialog, lambda _agreed: message.then())

    # What the keys do

    def _toggle(self, screen: EagleModal[Any], then: Callable[[Any], None] | None = None) -> None:
        """Open a dialog, or close it."""
        if isinstance(self.screen, EagleModal) and type(self.screen) is type(screen):
            self.screen.action_back()
        elif any(type(shown) is type(screen) for shown in self.screen_stack):
            self.notify(with_keys("That is open already, below: {dialog.back} goes back."))
        else:
            self._show(screen, then)

    def action_downloads(self) -> None:
        from eaglechat.tui.screens.hub.downloads import DownloadsScreen

        self._toggle(DownloadsScreen(self.services), self._load_instead)

    def action_load_newest(self) -> None:
        if self.services.installs.newest is None:
            self.notify("Nothing was installed since you started.")
        else:
            self._load_instead(self.services.installs.newest)

    async def action_quit(self) -> None:
        self._leave_all()
        self.exit()

    def action_settings(self) -> None:
        from eaglechat.tui.screens.settings import SettingsScreen

        self._toggle(SettingsScreen(self.services))

    def action_leader(self) -> None:
        from eaglechat.tui.screens.more import MoreScreen

        self._toggle(MoreScreen(self.screen), self._run)

    def _run(self, chosen: Active) -> None:
        self.call_next(self.run_action, chosen.command.call(), chosen.node)

    def action_help(self) -> None:
        from eaglechat.tui.screens.help import HelpScreen

        self._toggle(HelpScreen(self.screen))

    # What the services say

    def _complain(self, sentence: str) -> None:
        self.notify(sentence, severity="error", markup=False)

    def _announce(self, install: InstallSnapshot) -> None:
        name = install.entry.name
        if install.pair is not None:
            self.notify(
                f"{name} is installed. {key_of('app.load_newest')} loads it.",
                timeout=15,
                markup=False,
            )
        else:
            self.notify(
                f"{install.error}\n{key_of('app.downloads')}: try again.",
                title=name,
                severity="error",
                timeout=20,
                markup=False,
            )

    def _follow_settings(self, change: SettingsChange) -> None:
        theme = change.after.interface.theme
        if theme != self.theme and theme in self.available_themes:
            self.theme = theme

    def _keep_theme(self, theme: Theme) -> None:
        if theme.name != self.services.settings.current.interface.theme:
            self.services.settings.change("interface", "theme", theme.name)
