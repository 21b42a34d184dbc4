"""The chat screen: transcript, prompt and speculation panel. It draws a ChatSession and is the view
that the session reports to. The classes that it extends have a subject each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from eaglechat.chat.refusals import cannot_continue
from eaglechat.chat.saved_chat import SavedChat
from eaglechat.chat.session import ChatSession
from eaglechat.chat.turns import Question, Turn
from eaglechat.chat.writing.roles import NO_ROLE, find_role, load_roles
from eaglechat.hub.local.pair import Pair, pair_of_server
from eaglechat.links.http.address import same_server
from eaglechat.tui.commands import slash
from eaglechat.tui.commands.bindings import bindings_of, moves
from eaglechat.tui.commands.command import Command
from eaglechat.tui.commands.registry import BY_ID, name_of, short_key_of, with_keys
from eaglechat.tui.export.formats import Format
from eaglechat.tui.screens.base import TitleBar, TooSmall
from eaglechat.tui.screens.chat.asking import AskingScreen
from eaglechat.tui.screens.chat.completing import Completer
from eaglechat.tui.screens.roles import RolesScreen
from eaglechat.tui.services.services import Services
from eaglechat.tui.services.settings import SettingsChange
from eaglechat.tui.widgets.find_bar import FindBar
from eaglechat.tui.widgets.key_line import KeyLine, Offer
from eaglechat.tui.widgets.notices import Notices
from eaglechat.tui.widgets.panel.panel import SpeculationPanel
from eaglechat.tui.widgets.prompt.completions import Completions
from eaglechat.tui.widgets.prompt.prompt import Prompt
from eaglechat.tui.widgets.status_line import StatusLine
from eaglechat.tui.widgets.transcript.token_styles import Legend
from eaglechat.tui.widgets.transcript.transcript import Transcript
from eaglechat.wire import protocol
from eaglechat.words import wording

SAVES_PER_SECOND = 1


class ChatScreen(AskingScreen):
    """A chat with a loaded pair, new or resumed. Without `info` no models are loaded, and the chat
    can only be read."""

    CSS_PATH = "chat.tcss"
    BINDINGS = [
        *bindings_of("chat"),
        # While a reply is written Ctrl+C stops it, whatever is selected.
        *moves(
            {
                "pageup": "page(-1)",
                "pagedown": "page(1)",
                "ctrl+home": "beginning",
                "ctrl+end": "end",
                "ctrl+c": "interrupt",
            },
            priority=True,
        ),
        *moves({"ctrl+c,super+c": "screen.copy_text"}),
    ]

    def __init__(
        self,
        services: Services,
        pair: Pair,
        info: protocol.PairInfo | None,
        saved: SavedChat | None = None,
    ) -> None:
        super().__init__()
        self.services = services
        self.pair, self._info, self._saved = pair, info, saved
        self._has_session = False

    def compose(self) -> ComposeResult:
        # Waiting for the first resize event would wrap and draw everything twice.
        self._fit(self.app.size)
        settings = self.services.settings.current
        completions = Completions(id="completions")
        prompt = Prompt(
            id="prompt",
            completions=completions,
            completer=Completer(self, lambda: self.editing is None, self._choices),
            placeholder=with_keys(
                "Ask something.  / commands  @ files  " + short_key_of("app.help") + " help"
            ),
        )
        yield TitleBar(wording.pair_in_short(self._info, self.pair.name), "ready")
        with Horizontal(id="body"):
            with Vertical(id="conversation"):
                transcript = Transcript(id="transcript")
                transcript.view = settings.interface.view
                yield transcript
                below = f"↓ new text below: {name_of('ctrl+end')}"
                yield Static(f"[@click=screen.end]{below}[/]", id="new-below")
                yield FindBar(
                    transcript, lambda: self.session.turns.path, self._end_finding, prompt.type_in
                )
                yield Notices()
                yield StatusLine(id="status")
                yield Legend()
                yield completions
                yield prompt
            yield SpeculationPanel(id="panel")
        yield KeyLine(self.offers)
        yield TooSmall()

    def on_mount(self) -> None:
        services = self.services
        self.set_class(not services.settings.current.interface.show_panel, "-panel-hidden")
        self.set_class(services.settings.current.interface.view == "trace", "-trace")
        services.settings.changed.subscribe(self, self._settings_changed)
        self.session = ChatSession(
            services.engine,
            self,
            pair=self.pair,
            info=self._info,
            settings=lambda: services.settings.current,
            store=services.chats,
            roles_dir=self._roles_dir,
            speeds=services.pairs.speeds,
            saved=self._saved,
        )
        self._has_session = True
        self.watch(self.transcript, "selected", self._follow_selection, init=False)
        self.watch(self.transcript, "has_new_below", self._follow_growth)
        self._show_opened()
        self._show_passage(self._saved.opened_at if self._saved else None)
        self.set_interval(1 / SAVES_PER_SECOND, self.save)
        self._take_typed_ahead()

    def on_unmount(self) -> None:
        if self._has_session:
            self.session.close()

    def on_resize(self, event: events.Resize) -> None:
        self._fit(event.size)
        self.refresh_bindings()
        if self._has_session:
            self.show_numbers()

    def _settings_changed(self, change: SettingsChange) -> None:
        self.session.follow_settings(change.before, change.after)
        interface = change.after.interface
        if interface != change.before.interface:
            self.transcript.view = interface.view
            self.set_class(interface.view == "trace", "-trace")
            self.refresh_bindings()
        if interface.show_panel != change.before.interface.show_panel:
            self.set_class(not interface.show_panel, "-panel-hidden")
        if interface.panel != change.before.interface.panel:
            self._fit(self.size)
            self.show_numbers()

    # Opening, leaving and saving chats

    def _show_opened(self) -> None:
        self._queue(None)
        self._end_edit()
        if self.query_one(FindBar).is_open:
            # The passages it found are those of the previous chat.
            self._end_finding()
        self.transcript.clear()
        for turn in self.session.turns.path:
            if isinstance(turn, Question):
                self.prompt.remember(slash.escaped(self.prompt.marks.text(turn.parts)))
        if self.session.chat.unsent:
            self.prompt.replace_all(self.prompt.marks.text(self.session.chat.unsent))
        self._draw()

    def leave(self, *, keep_prompt: bool = False) -> None:
        if self._has_session:
            self.session.leave("" if keep_prompt else self._unsent)
            self.services.away.forget()

    @property
    def is_unsaved(self) -> bool:
        if self._has_session:
            self.save()
        return self._has_session and self.session.recorder.is_behind

    def action_new_chat(self) -> None:
        def begin() -> None:
            self.leave(keep_prompt=True)
            self.session.open()
            self._show_opened()

        self.services.doors.leave_chat(begin)

    def action_menu(self) -> None:
        self.services.doors.open_menu()

    def action_past_chats(self, words: str | None) -> None:
        from eaglechat.tui.screens.past.chats import ChatsScreen

        self.open(ChatsScreen(self.services, self.session.recorder, words or ""), self._resume)

    def _resume(self, chat: SavedChat) -> None:
        if chat.name == self.session.recorder.name:
            self._show_passage(chat.opened_at)
        elif _is_of(chat, self.pair) and not self.session.is_engine_gone:

            def open_instead() -> None:
                self.leave()
                self.prompt.clear()
                self.session.open(chat)
                self._show_opened()
                self._show_passage(chat.opened_at)
                self._take_typed_ahead()

            self.services.doors.leave_chat(open_instead)
        else:
            self.services.doors.resume(chat)

    def action_load_again(self) -> None:
        """Load the pair again after the engine process has ended, and continue the chat."""

        def loaded(info: protocol.PairInfo) -> None:
            self.query_one(TitleBar).show(subject=wording.pair_in_short(info, self.pair.name))
            self.session.loaded(info)
            self._take_typed_ahead()

        if self.session.is_engine_gone:
            self.services.doors.load_again(self.pair, loaded)
        else:
            self.notify("The models are loaded.")

    def _take_typed_ahead(self) -> None:
        """Put the text that was typed while the models were loading into the prompt, and send it if
        the user had sent it."""
        typed = self.services.typeahead.take()
        text = self.prompt.marks.text(typed.parts)
        self.prompt.take_focus()
        if text:
            self.prompt.insert(text)
        if typed.is_sent and self.prompt.text == text:
            self.prompt.action_send()

    def action_export(self, format: Format | None) -> None:
        if not self.session.turns:
            self.notify("There is nothing to export yet.")
        else:
            from eaglechat.tui.screens.past.export import ExportScreen

            self.save()
            self.open(ExportScreen(self.session.recorder.reader(), format))

    def action_model(self, name: str | None) -> None:
        """Chat with another pair. Without a name the library opens, to choose one."""
        if name is None:
            from eaglechat.tui.screens.hub.library import LibraryScreen

            self.open(LibraryScreen(self.services), self.services.doors.load_instead)
            return
        pairs = self._named_pairs()
        if chosen := next((pair for pair in pairs if pair.name == name), None):
            self.services.doors.load_instead(chosen)
        else:
            known = ", ".join(pair.name for pair in pairs)
            self.notify(f"There is no pair “{name}”. There are: {known}.")

    # What can be done now

    def offers(self) -> Sequence[Offer]:
        if not self._has_session:
            return []
        if self.query_one(FindBar).is_open:
            return [Offer("dialog.back", "back"), Offer("chat.find", "stay here")]
        session = self.session
        offers = [Offer("chat.stop", to_stop[0])] if (to_stop := self._to_stop) else []
        last = session.turns.last
        if self.editing is None and self.transcript.selected is not None:
            by_turn_key = self.focused is self.transcript
            labels = {"edit": "edit", "again": "again", "copy": "copy", "inspect": "inside"}
            offers += [Offer(f"chat.{id}", label, by_turn_key) for id, label in labels.items()]
        elif session.is_engine_gone:
            offers.append(Offer("chat.load_again", "reload"))
        elif session.running is None and last is not None and self._is_cut_off(last):
            offers.append(Offer("chat.go_on", "continue"))
        return [*offers, *self._always_offered()]

    def _is_cut_off(self, turn: Turn) -> bool:
        """Whether a reply can be continued."""
        session = self.session
        return cannot_continue(session.turns, turn.id, session.terms, session.hello) is None

    def _always_offered(self) -> Iterator[Offer]:
        yield Offer("chat.view", f"view: {self.transcript.view}")
        yield Offer("chat.pane", "panel")
        if not self.has_class("-folded") and self.transcript.selected is None:
            yield Offer("chat.less", "-")
            yield Offer("chat.more", "+ length")
            yield Offer("chat.auto", "auto")
        for id in ("app.leader", "chats.open", "chat.new", "chat.menu", "app.quit"):
            yield Offer(id, BY_ID[id].footer)

    def state_of(self, id: str) -> str:
        controls = self.controls
        role = self.session.role
        length = controls.n_draft_max
        return {
            "chat.view": self.transcript.view,
            "chat.speculation": _on_or_off(controls.enabled),
            "chat.ngram": _on_or_off(controls.ngram),
            "chat.auto": _on_or_off(length == protocol.AUTO),
            "chat.pane": _on_or_off(self._shows_panel),
            "chat.role": role.name if role else NO_ROLE,
        }.get(id, "")

    def action_compare(self) -> None:
        session, info, hello = self.session, self.session.info, self.session.hello
        asked = session.to_compare()
        if asked is None or info is None or hello is None:
            return
        from eaglechat.tui.screens.compare import CompareScreen

        def use(speculation: protocol.Speculation) -> None:
            # Plain decoding has no length or drafter of its own.
            names = ["enabled", *(["n_draft_max", "drafter"] if speculation.enabled else [])]
            chosen = {name: getattr(speculation, name) for name in names}
            session.change_controls(replace(session.controls, **chosen))

        self.open(CompareScreen(self.services, session, asked, info, hello), use)

    # What the prompt completes, and roles

    def _choices(self, command: Command) -> Sequence[tuple[str, str]]:
        """The names that a command takes as its value, each with a short description."""
        if command.id == "chat.role":
            return [(role.name, role.description) for role in load_roles(self._roles_dir)[0]]
        if command.id == "chat.model":
            return [(pair.name, pair.source) for pair in self._named_pairs()]
        return ()

    def _named_pairs(self) -> list[Pair]:
        servers = self.services.settings.current.server
        return [*self.services.pairs.pairs(), *map(pair_of_server, servers)]

    @property
    def _roles_dir(self) -> Path:
        return self.services.settings.file.parent / "roles"

    def action_role(self, name: str | None) -> None:
        """Take another role. Without the name of one, a list opens to choose or write one."""
        if name == NO_ROLE or (name and find_role(self._roles_dir, name) is not None):
            self._take_role(name)
        else:
            self.save()
            self.open(RolesScreen(self._roles_dir, name or ""), self._take_role)

    def _take_role(self, name: str) -> None:
        role = None if name == NO_ROLE else find_role(self._roles_dir, name)
        if isinstance(role, str):
            self.notify(f"{role}.", severity="warning")
        else:
            self.session.choose_role(role)


def _on_or_off(value: bool) -> str:
    return "on" if value else "off"


def _is_of(chat: SavedChat, pair: Pair) -> bool:
    """Whether a saved chat ran on this pair."""
    server = pair.server.url if pair.server else ""
    header = chat.header
    return (header.target, header.draft) == pair.to_load and same_server(header.server, server)
