"""The menu, which is the first screen: the last chats, and the models that are here, that can be
had and that servers have."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from eaglechat.hub.local.pairs import (
    BUILTIN_NAME,
    CataloguePair,
    InspectedPair,
    OfferedPair,
    Pair,
    inspect,
    offers,
)
from eaglechat.links.base import Lifecycle
from eaglechat.tui.commands.keys import TAB, bindings_of, moves, with_keys
from eaglechat.tui.screens.base import EagleScreen, TitleBar, TooSmall
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.screens.menu import files, rows
from eaglechat.tui.screens.menu.rows import Known
from eaglechat.tui.screens.menu.servers import ServerNews, ask, pairs_of
from eaglechat.tui.services.services import Services
from eaglechat.tui.widgets.filter import Filter, Rows
from eaglechat.tui.widgets.key_line import KeyLine
from eaglechat.wire.protocol import Hello
from eaglechat.words import wording
from eaglechat.words.gain import measured_here

if TYPE_CHECKING:
    from eaglechat.chat.saved_chat import SavedChat
    from eaglechat.chat.store import ChatSummary
    from eaglechat.hub.downloads.queue import Install
    from eaglechat.hub.local.model import LocalModel
    from eaglechat.settings.config_file import Problem


class MenuScreen(EagleScreen[None]):
    """A list that typing filters. The filter keeps the focus; arrows move in the list."""

    BINDINGS = [*bindings_of("menu"), *moves({"tab": "complete"}, priority=True)]

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services
        self._offers: dict[str, OfferedPair] = {}
        """The rows that are models, by their keys."""
        self._chats: list[ChatSummary] | None = None
        self._catalogue: list[CataloguePair] | None = None
        self._here: list[tuple[str, Pair]] | None = None
        """None until the files on this machine have been looked at."""
        self._statuses: dict[tuple[str, str | None], InspectedPair] = {}
        self._moving: dict[str, Install] = {}
        self._news: dict[str, ServerNews] = {}
        """The last answer of each server, by its name."""
        self._being_asked: set[str] = set()
        self._places: list[files.Place] | None = None
        """What completes a typed path; None while none is typed."""

    def compose(self) -> ComposeResult:
        yield TitleBar("a target writes, a small draft guesses ahead, the target checks")
        pairs = Rows(id="pairs")
        yield Filter(pairs, f"type to filter, or the path of a GGUF file ({TAB} completes it)")
        yield Static(id="banner", markup=False)
        yield pairs
        yield KeyLine()
        yield TooSmall()

    def on_mount(self) -> None:
        self._services.models_changed.subscribe(self, self._models_changed)
        self._services.chats_changed.subscribe(self, lambda _: self._read_chats())
        self._list_anew()
        self.query_one(Filter).focus()
        self._unwatch = self._services.engine.watch(self._follow_engine)
        self.set_interval(1.0, self._draw_moving)
        self.set_interval(20.0, self._ask_servers)
        # The first rows are painted before anything else is read.
        self.call_after_refresh(self._services.engine.warm)
        self.call_after_refresh(self._find_models)
        self.call_after_refresh(self._tidy_chats)

    def on_unmount(self) -> None:
        self._unwatch()

    def on_screen_resume(self) -> None:
        self._services.away.show("")
        self.call_after_refresh(self._look_again)

    def _say(self) -> None:
        """Above the list: what was measured of the highlighted row, and what is looked for; else,
        at the first start, what to press."""
        offer = self._highlighted_offer()
        gain = self._known(offer).gain if offer is not None else None
        said = [measured_here(gain, time.time())] if gain is not None else []
        if self._here is None:
            said.append("Looking for models on this machine…")
        hint = ""
        builtin = self._services.pairs.pairs()[0]
        status = self._statuses.get(builtin.to_load)
        runnable = sum(offer.pair is not None for offer in self._offers.values())
        is_read = None not in (self._chats, self._catalogue, self._here)
        if is_read and not self._chats and runnable == 1 and status is not None:
            starts = f"{{list.choose}} starts {BUILTIN_NAME}; ↓ goes to larger models to download."
            get = "Choose under Get: what it takes is said before the download."
            hint = with_keys(f"New here? {get if status.problem else starts}")
        self.query_one("#banner", Static).update(" · ".join(said) or hint)

    # The list

    @on(Input.Changed, "#filter")
    def _filtered(self) -> None:
        typed = self.query_one(Filter).value
        if files.is_path(typed):
            self._places = self._places or []
            self._find_places(typed)
        else:
            self._places = None
        self._list_anew(is_filtered_anew=True)

    def _find_places(self, typed: str, *, then_choose: bool = False) -> None:
        def take(places: list[files.Place]) -> None:
            if typed != self.query_one(Filter).value:
                return
            if places != self._places:
                self._places = places
                self._list_anew(is_filtered_anew=True)
            pairs = [place.pair for place in places if place.pair is not None]
            self._inspect_all([pair for pair in pairs if pair.to_load not in self._statuses])
            offer = self._highlighted_offer()
            if then_choose and offer is not None and offer.pair is not None:
                self._choose_pair(offer, offer.pair)
            elif then_choose:
                self.action_complete()

        self.in_background(lambda: files.places(typed), take)

    def _list_anew(self, *, is_filtered_anew: bool = False) -> None:
        """Build the list, and highlight what was highlighted, or what matches the filter best."""
        options = self.query_one("#pairs", OptionList)
        before, place = options.highlighted_option, options.highlighted or 0
        typed = self.query_one(Filter).value
        if self._places is None:
            served = pairs_of(self._services.settings.current.server, self._news)
            known = self._services.pairs.pairs()
            listed = offers(known, self._catalogue or [], served, self._here or [])
        else:
            pairs = (place.pair for place in self._places)
            listed = [_offered(pair) for pair in pairs if pair is not None]
        self._offers = {offer.key: offer for offer in listed}
        models = map(self._known, self._offers.values())
        if self._places is None:
            lines = rows.lines(typed, self._chats or (), models)
        else:
            directories = [place.name for place in self._places if place.pair is None]
            lines = rows.lines_of_path(directories, models)
        options.clear_options()
        options.add_options(
            Option(line.row, id=line.id, disabled=line.id is None) for line in lines
        )
        ranks = {index: line.rank for index, line in enumerate(lines) if line.id is not None}
        best = min(ranks, key=lambda index: ranks[index], default=None)
        if best is not None and before is not None and not is_filtered_anew:
            best = min(ranks, key=lambda index: (lines[index].id != before.id, abs(index - place)))
        options.highlighted = best
        self._say()

    def _draw_moving(self) -> None:
        """Draw the rows of installations that move, and of those that have just ended."""
        before, snapshots = self._moving, self._services.desk.snapshots()
        self._moving = {one.name: one for one in snapshots if one.pair is None}
        changed, options = before.keys() | self._moving.keys(), self.query_one("#pairs", OptionList)
        for option in options.options if changed else ():
            offer = self._offers.get(option.id or "")
            if offer is not None and offer.name in changed:
                options.replace_option_prompt(offer.key, self._known(offer).row())

    @on(OptionList.OptionHighlighted)
    def _follow_highlight(self) -> None:
        options = self.query_one("#pairs", OptionList)
        self._say()
        if options.highlighted is not None and options.highlighted <= 1:
            # With the heading above it.
            options.scroll_home(animate=False)

    @property
    def _looked_at(self) -> str | None:
        option = self.query_one("#pairs", OptionList).highlighted_option
        return option.id if option else None

    def _highlighted_offer(self) -> OfferedPair | None:
        return self._offers.get(self._looked_at or "")

    def _known(self, offer: OfferedPair) -> Known:
        pair, settings = offer.pair, self._services.settings.current.engine
        return Known(
            offer=offer,
            machine=lambda: self._services.engine.machine,
            settings=settings,
            status=self._statuses.get(pair.to_load) if pair else None,
            moving=self._moving.get(offer.name),
            news=self._news.get(pair.server.name) if pair and pair.server else None,
            gain=self._services.gain(pair) if pair and self._catalogue is not None else None,
        )

    # On this machine

    def _look_again(self) -> None:
        self._read_catalogue()
        self._ask_servers()
        self._read_chats()

    def _follow_engine(self, news: Lifecycle) -> None:
        if isinstance(news, Hello):
            # Now it is known how much memory there is.
            self._list_anew()

    def _read_catalogue(self) -> None:
        self._list_anew()
        services = self._services

        def read() -> tuple[list[CataloguePair], list[Problem]]:
            # Here, because the rows ask for it in the app's thread.
            services.pairs.read_measured()
            return services.desk.catalogue()

        self.in_background(read, lambda found: self._take_catalogue(*found))

    def _models_changed(self, _: object) -> None:
        self._read_catalogue()
        self._find_models()

    def _find_models(self) -> None:
        """Look for what is here beside the catalogue's pairs, such as other programs' models."""
        folders = self._services.settings.current.library.folders
        self.in_background(lambda: self._services.desk.targets(folders), self._take_models)

    def _take_models(self, found: list[tuple[LocalModel, InspectedPair]]) -> None:
        self._here = [(model.short_name, status.pair) for model, status in found]
        self._statuses |= {status.pair.to_load: status for _, status in found}
        self._list_anew()

    def _take_catalogue(self, catalogue: list[CataloguePair], problems: list[Problem]) -> None:
        if problems and self._catalogue is None:
            text = "\n".join(map(str, problems))
            self.notify(text, title="Left out of the catalogue", severity="warning")
        self._catalogue = catalogue
        self._list_anew()
        pairs = [offer.pair for offer in self._offers.values() if offer.state != "here"]
        self._inspect_all([pair for pair in pairs if pair is not None and pair.server is None])

    def _inspect_all(self, pairs: list[Pair]) -> None:
        def take(statuses: list[InspectedPair]) -> None:
            self._statuses |= {status.pair.to_load: status for status in statuses}
            self._list_anew()

        self.in_background(lambda: [*map(inspect, pairs)], take)

    def _read_chats(self) -> None:
        chats = self._services.chats
        self.in_background(lambda: chats.latest(3), self._take_chats)

    def _tidy_chats(self) -> None:
        """Take over the chats of earlier versions, and empty the trash."""
        store = self._services.chats

        def tidy() -> None:
            # Only the first start after an update has chats to take over.
            from eaglechat.chat.older import take_over

            if take_over(store):
                self.later(self._services.chats_changed.publish, None)
            store.empty_trash()

        def fail(error: Exception) -> None:
            store.say(f"Chats cannot be kept in {store.file}: {error}.")

        self.in_background(tidy, fails=fail)

    def _take_chats(self, chats: list[ChatSummary]) -> None:
        if chats != self._chats:
            self._chats = chats
            self._list_anew()

    # Servers

    def _ask_servers(self) -> None:
        """Ask each server in a thread of its own, unless it has not answered yet."""
        if not self.is_current:
            return
        for server in self._services.settings.current.server:
            if server.name not in self._being_asked:
                self._being_asked.add(server.name)
                self.in_background(partial(ask, server), self._take_news)

    def _take_news(self, news: ServerNews) -> None:
        self._being_asked.discard(news.server.name)
        self._news[news.server.name] = news
        self._list_anew()

    # What the keys do

    @on(Input.Submitted, "#filter")
    @on(OptionList.OptionSelected)
    async def _choose(self) -> None:
        for chat in self._chats or ():
            if self._looked_at == f"chat:{chat.name}":
                self._resume(chat)
                return
        offer = self._highlighted_offer()
        self._draw_moving()
        if self._places is not None:
            # They may still be those of the text before.
            self._find_places(self.query_one(Filter).value, then_choose=True)
        elif offer is not None and offer.name in self._moving:
            self._show_downloads()
        elif offer is None:
            if self._looked_at is not None:
                await self.run_action(self._looked_at)
        elif offer.pair is not None:
            if offer.pair.server is not None:
                self._load(offer.pair)
            else:
                self._choose_pair(offer, offer.pair)
        elif (entry := offer.entry) is not None:
            from eaglechat.tui.screens.hub.plan import PlanScreen

            plan = PlanScreen(self._services, entry)
            self.open(plan, lambda _started: self._show_downloads(entry.name))

    def action_complete(self) -> None:
        """Put the highlighted directory or file behind what is typed."""
        looked_at, words = self._looked_at, self.query_one(Filter)
        for place in self._places or ():
            key = f"in:{place.name}" if place.pair is None else _offered(place.pair).key
            if looked_at == key:
                words.value = place.typed
                words.action_end()

    def _choose_pair(self, offer: OfferedPair, pair: Pair) -> None:
        known = self._known(offer)
        problem = (known.status or inspect(pair)).problem
        title = f"{pair.name} cannot run here"
        if problem:
            self.open(Ask(title, wording.sentence(problem)))
        elif known.problem:
            advice = with_keys("A smaller engine.n_ctx ({app.settings}) needs less.")
            text = f"{wording.sentence(known.problem)} {advice}"
            self.open(Ask(title, text, "loads it anyway"), lambda _yes: self._load(pair))
        else:
            self._load(pair)

    def _load(self, pair: Pair) -> None:
        # Its key may come twice before the loading screen is there.
        if self.is_on_top:
            self._services.load_instead(pair)

    def _resume(self, row: ChatSummary) -> None:
        def fail(error: Exception) -> None:
            said = f"“{row.title}” cannot be read: {wording.why(error)}."
            self.notify(said, severity="error")
            self._read_chats()

        def take(chat: SavedChat) -> None:
            # Its key may come twice before the chat is read.
            if self.is_on_top:
                self._services.resume(chat)

        self.in_background(lambda: self._services.chats.read(row.name), take, fail)

    # Other screens are imported when they are opened: the menu is shown before that.

    def action_past_chats(self, words: str | None = None) -> None:
        from eaglechat.tui.screens.past.chats import ChatsScreen

        self.open(ChatsScreen(self._services, words=words or ""), self._services.resume)

    def action_search(self) -> None:
        from eaglechat.tui.screens.hub.search import SearchScreen

        search = SearchScreen(self._services, self.query_one(Filter).value)
        self.open(search, self._load)

    def action_drafts(self) -> None:
        from eaglechat.tui.screens.hub.search import DraftsScreen

        offer = self._highlighted_offer()
        if offer is None or (offer.pair is not None and offer.pair.server is not None):
            self.notify("Drafts are found for models on this machine and on the Hub.")
        elif (of := offer.pair.target if offer.pair is not None else offer.entry) is not None:
            self.open(DraftsScreen(self._services, of), self._load)

    def action_library(self) -> None:
        from eaglechat.tui.screens.hub.library import LibraryScreen

        self.open(LibraryScreen(self._services), self._load)

    def _show_downloads(self, loads: str = "") -> None:
        from eaglechat.tui.screens.hub.downloads import DownloadsScreen

        self.open(DownloadsScreen(self._services, loads), self._load)

    def action_remove(self) -> None:
        offer = self._highlighted_offer()
        if offer is None or offer.state != "recent" or offer.pair is None:
            self.notify(
                "Only recent pairs can be removed; “Models on this machine” deletes models."
            )
            return
        self._services.pairs.forget(offer.pair)
        self._list_anew()


def _offered(pair: Pair) -> OfferedPair:
    """The row of a file whose path is typed."""
    return OfferedPair((pair.draft or pair.target).name, "file", pair)
