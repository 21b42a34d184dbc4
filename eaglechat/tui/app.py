"""The app: what it is made of, its theme and keys, the ticks of its services."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.binding import Binding
from textual.theme import Theme

from eaglechat.hub.desk import HubDesk
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import PairLibrary
from eaglechat.links.base import Link
from eaglechat.settings import Problem, Settings
from eaglechat.tui.commands.bindings import bindings_of, textual_keymap
from eaglechat.tui.commands.command import LEADER
from eaglechat.tui.commands.keymap import read_keymap
from eaglechat.tui.commands.palette import ScreenCommands
from eaglechat.tui.commands.registry import key_of, keys_of, use
from eaglechat.tui.router import Router
from eaglechat.tui.services.away import Away
from eaglechat.tui.services.chats import ChatsService
from eaglechat.tui.services.engine import FRAMES_PER_SECOND, EngineService
from eaglechat.tui.services.installs import InstallWatch
from eaglechat.tui.services.servers import ServerWatch
from eaglechat.tui.services.services import Services
from eaglechat.tui.services.settings import SettingsChange, SettingsService
from eaglechat.tui.services.typeahead import Typeahead
from eaglechat.tui.stylesheet import KeptStylesheet
from eaglechat.tui.themes import choose_theme, load_themes, token_variable_defaults
from eaglechat.wire.protocol import Auto

if TYPE_CHECKING:
    from eaglechat.hub.downloads.queue import InstallSnapshot

INSTALL_LOOKS_PER_SECOND = 3


class EagleApp(Router):
    """Chats with a pair of models behind a Link.

    `start` is the pair to load at once; without one the menu opens. Settings that are changed in
    the app are written to `config_file`, chats to `chats_dir`.
    """

    TITLE = "eaglechat"
    # The menu is the default screen, whose own CSS_PATH Textual does not read.
    CSS_PATH = ["app.tcss", "screens/menu/menu.tcss"]
    COMMANDS = {ScreenCommands}
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
        self.stylesheet = KeptStylesheet(variables=self.get_css_variables())
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
            chats=ChatsService(chats_dir),
            typeahead=Typeahead(),
            away=Away(
                self._write_past_screen, lambda: self.app_focus, lambda: settings_service.current
            ),
            servers=ServerWatch(),
        )
        self._notices = list(map(str, (*problems, *key_problems, *theme_problems)))
        if chosen is None or chosen.name != settings.interface.theme:
            self._notices.append(f"There is no theme “{settings.interface.theme}”.")
        if pairs.problem:
            self._notices.append(pairs.problem)
        self._start = start
        self.n_draft_max = n_draft_max

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return token_variable_defaults(self._loaded_themes, self.current_theme.dark)

    def get_key_display(self, binding: Binding) -> str:
        leader, _, second = binding.key.rpartition(" ")
        shown = super().get_key_display(binding.with_key(second))
        if leader != LEADER:
            return shown
        return f"{super().get_key_display(binding.with_key(keys_of('app.leader')[0]))} {shown}"

    def on_mount(self) -> None:
        self._follow_termination()
        self.services.away.open()
        self.set_interval(1 / FRAMES_PER_SECOND, self._follow_engine)
        self.set_interval(1 / INSTALL_LOOKS_PER_SECOND, self.services.installs.look)
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        self.services.settings.changed.subscribe(self, self._follow_settings)
        if self._notices:
            self.notify(
                "\n".join(self._notices),
                title="Some of your configuration was ignored",
                severity="warning",
                timeout=20,
                markup=False,
            )
        if self._start is not None:
            self.load_and_chat(self._start)

    def on_unmount(self) -> None:
        self.services.away.close()
        # Not a daemon: the interpreter waits for it, a second at most, so that no engine is left
        # behind; the terminal is given back before.
        threading.Thread(target=self.services.engine.close, name="engine-close").start()
        self.services.desk.close()

    def _write_past_screen(self, sequence: str) -> None:
        if self._driver is not None:
            self._driver.write(sequence)

    def _follow_engine(self) -> None:
        # While the app closes, its screens have no widgets to show anything.
        if self.is_running:
            self.services.engine.tick()

    def action_suspend(self) -> None:
        if sys.platform == "win32" or self.is_headless:
            self.notify("There is no shell here that could resume eaglechat.")
        else:
            self.action_suspend_process()

    async def action_quit(self) -> None:
        self.unless_lost(self._quit)

    def _quit(self) -> None:
        self.leave_all()
        self.exit()

    def _follow_termination(self) -> None:
        """Give the terminal back and save the chat when the program is terminated, too: by a
        signal, or because its terminal window was closed."""
        if sys.platform != "win32":
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, self._terminate, number)

    def _terminate(self, number: int) -> None:
        self.leave_all()
        self.exit(return_code=128 + number)

    # What the services say

    def _complain(self, sentence: str) -> None:
        self.notify(sentence, severity="error", markup=False)

    def _announce(self, install: InstallSnapshot) -> None:
        name = install.name
        if install.pair is not None:
            self.notify(
                f"{name} is installed. {key_of('app.load_newest')} loads it.",
                timeout=15,
                markup=False,
            )
        else:
            self.notify(
                f"{install.error}\n{key_of('app.downloads')} to try again.",
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
