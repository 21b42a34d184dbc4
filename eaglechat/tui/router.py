"""From screen to screen: what each message of `tui.navigation` opens and closes. Nothing else
imports screens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.screen import Screen

from eaglechat.chat.history.lines import ChatHeader
from eaglechat.chat.history.saved_chat import SavedChat
from eaglechat.hub.local.pair import Pair, pair_of_server
from eaglechat.links.http.address import same_server
from eaglechat.settings.servers import ServerSettings, key_variable
from eaglechat.tui.commands.active import Active
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.keys_in_order import KeysInOrder
from eaglechat.tui.navigation import (
    Ask,
    Confirm,
    Leave,
    LoadAgain,
    LoadInstead,
    LookInside,
    OpenBench,
    OpenChat,
    OpenExport,
    OpenPastChats,
    OpenPlan,
    OpenRoles,
    OpenSearch,
    Resume,
    Say,
    ShowPrompt,
)
from eaglechat.tui.screens.base import EagleModal, EagleScreen, is_again
from eaglechat.tui.services.services import Services
from eaglechat.tui.texts import wording
from eaglechat.wire.protocol import Auto, PairInfo


class Router(KeysInOrder):
    """An app that opens and closes its screens; `services` are handed to them."""

    services: Services
    n_draft_max: int | Auto | None = None
    """What the command line asks of every pair."""

    def get_default_screen(self) -> Screen[Any]:
        from eaglechat.tui.screens.menu.screen import MenuScreen

        return MenuScreen(self.services)

    def leave_all(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, EagleScreen):
                screen.leave()

    def _show(self, screen: Screen[Any], then: Callable[[Any], None] | None = None) -> None:
        """Open a screen unless one of its kind is open: a key may come twice before it is there.

        `then` gets what is chosen there, if anything is.
        """

        def closed(chosen: Any) -> None:
            if chosen and then is not None:
                then(chosen)

        if not any(is_again(shown, screen) for shown in self.screen_stack):
            self.push_screen(screen, closed)

    def _back_to_menu(self) -> None:
        """Leave and close all there is above the menu, whose models are freed."""
        if len(self.screen_stack) > 1:
            self.leave_all()
            self.services.engine.unload()
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def load_and_chat(self, pair: Pair, saved: SavedChat | None = None) -> None:
        """Load a pair and chat with it, in a saved chat or a new one."""
        from eaglechat.tui.screens.loading import LoadingScreen

        def loaded(info: PairInfo) -> None:
            from eaglechat.tui.screens.chat.screen import ChatScreen

            self._remember(pair)
            chosen = self.services.pairs.as_kept(pair)
            if pair.server is not None:
                chosen = pair_of_server(pair.server, info.target.path)
            if self.n_draft_max is not None:
                chosen = replace(chosen, n_draft_max=self.n_draft_max)
            self.switch_screen(ChatScreen(self.services, chosen, info, saved))

        self._show(LoadingScreen(self.services, pair, loaded))

    def _remember(self, pair: Pair) -> None:
        self.services.pairs.remember(pair)
        if self.services.pairs.problem:
            self.notify(self.services.pairs.problem, severity="warning", markup=False)

    def unless_lost(self, then: Callable[[], None]) -> None:
        """Do what leaves the open chat, once the user agrees where that would lose it."""
        if any(
            isinstance(screen, EagleScreen) and screen.is_unsaved for screen in self.screen_stack
        ):
            self.on_confirm(Confirm("Unsaved chat", with_keys(wording.UNSAVED), "Leave", then))
        else:
            then()

    def on_leave(self, message: Leave) -> None:
        self.unless_lost(message.then)

    def _load_instead(self, pair: Pair) -> None:
        def load() -> None:
            self._back_to_menu()
            self.load_and_chat(pair)

        self.unless_lost(load)

    def on_open_menu(self) -> None:
        self.unless_lost(self._back_to_menu)

    def on_open_chat(self, message: OpenChat) -> None:
        if len(self.screen_stack) == 1:
            self.load_and_chat(message.pair)

    def on_load_instead(self, message: LoadInstead) -> None:
        self._load_instead(message.pair)

    def on_load_again(self, message: LoadAgain) -> None:
        from eaglechat.tui.screens.loading import LoadingScreen

        def loaded(info: PairInfo) -> None:
            self.pop_screen()
            message.then(info)

        self._show(LoadingScreen(self.services, message.pair, loaded))

    def on_resume(self, message: Resume) -> None:
        self.unless_lost(lambda: self._resume(message.chat))

    def _resume(self, chat: SavedChat) -> None:
        header = chat.header
        if header.server:
            self._back_to_menu()
            self.load_and_chat(self._served_again(header), chat)
            return
        draft = Path(header.draft) if header.draft else None
        pair = self.services.pairs.resolve(header.pair, Path(header.target), draft)
        self._back_to_menu()
        is_here = not self.services.settings.current.engine.command
        if is_here and not pair.target.is_file():
            self._read_chat(pair, chat)
        else:
            self.load_and_chat(pair, chat)

    def _served_again(self, header: ChatHeader) -> Pair:
        """The model of a server that a chat was with, by the entry that has its address now."""
        servers = self.services.settings.current.server
        known = (server for server in servers if same_server(server.url, header.server))
        adhoc = ServerSettings(name=header.pair, url=header.server, key_env=key_variable())
        return pair_of_server(next(known, adhoc), header.target)

    def _read_chat(self, pair: Pair, saved: SavedChat) -> None:
        """Show a chat whose models are not on this machine any more."""
        from eaglechat.tui.screens.chat.screen import ChatScreen

        self._show(ChatScreen(self.services, pair, None, saved))

    def on_open_past_chats(self, message: OpenPastChats) -> None:
        from eaglechat.tui.screens.past.chats import ChatsScreen

        chats = ChatsScreen(self.services, message.open_chat, message.words)
        self._show(chats, message.then)

    def on_open_export(self, message: OpenExport) -> None:
        from eaglechat.tui.screens.past.export import ExportScreen

        self._show(ExportScreen(message.read, message.format))

    def on_open_files(self) -> None:
        from eaglechat.tui.screens.menu.open_files import OpenFilesScreen

        self._show(OpenFilesScreen(), self._load_instead)

    def on_open_roles(self, message: OpenRoles) -> None:
        from eaglechat.tui.screens.roles import RolesScreen

        self._show(RolesScreen(message.directory), message.then)

    def on_open_bench(self, message: OpenBench) -> None:
        from eaglechat.tui.screens.bench import BenchScreen

        screen = BenchScreen(
            self.services, message.pair, message.info, message.controls, message.keep
        )
        self._show(screen)

    def on_show_prompt(self, message: ShowPrompt) -> None:
        from eaglechat.tui.screens.chat.seen import SeenScreen

        self._show(SeenScreen(message.prompt, message.summary))

    def on_look_inside(self, message: LookInside) -> None:
        from eaglechat.tui.screens.chat.inside import InsideScreen

        self._show(InsideScreen(message.recording, message.index, message.unreported))

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

    def on_ask(self, message: Ask) -> None:
        from eaglechat.tui.screens.ask import AskDialog

        def closed(written: str | None) -> None:
            if written is not None:
                message.then(written)

        self.push_screen(AskDialog(message.title, message.text, message.written), closed)

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
            self.notify(
                with_keys("That screen is already open behind this one; {dialog.back} goes back.")
            )
        else:
            self._show(screen, then)

    def action_downloads(self) -> None:
        from eaglechat.tui.screens.hub.downloads import DownloadsScreen

        self._toggle(DownloadsScreen(self.services), self._load_instead)

    def action_load_newest(self) -> None:
        if self.services.installs.newest is None:
            self.notify("Nothing has been installed since you started eaglechat.")
        else:
            self._load_instead(self.services.installs.newest)

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
