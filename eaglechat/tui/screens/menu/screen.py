"""The menu, which is the first screen: the last chats, and the models that are here, that can be
had and that servers have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual import on, work
from textual.app import ComposeResult
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from eaglechat.chat.saved_chat import SavedChat
from eaglechat.chat.store import ChatSummary
from eaglechat.hub.errors import HubError, OfflineError
from eaglechat.hub.facts import Facts
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import (
    BUILTIN_NAME,
    InspectedPair,
    OfferedPair,
    inspect,
    offers,
)
from eaglechat.links.base import Lifecycle, Ready
from eaglechat.tui.commands.bindings import bindings_of, moves
from eaglechat.tui.commands.registry import TAB, with_keys
from eaglechat.tui.navigation import LoadInstead, Resume
from eaglechat.tui.screens.base import EagleScreen, TitleBar, TooSmall, Update
from eaglechat.tui.screens.dialogs import Ask
from eaglechat.tui.screens.menu import files, rows, sections
from eaglechat.tui.screens.menu.known import Known
from eaglechat.tui.screens.menu.servers import ServerNews, ServerWatch
from eaglechat.tui.services.services import Services
from eaglechat.tui.widgets.filter import Filter, Rows
from eaglechat.tui.widgets.key_line import KeyLine
from eaglechat.tui.widgets.readouts import Line
from eaglechat.words import wording

if TYPE_CHECKING:
    from eaglechat.hub.catalogue import CatalogueEntry
    from eaglechat.hub.downloads.queue import InstallSnapshot
    from eaglechat.hub.local.installed import Status

ASKED_EVERY_S = 20.0
"""Servers, and the Hub while it does not answer."""
CHATS = 3
"""Of the last ones that can be resumed."""
_NEW = f"New here? {{list.choose}} starts {BUILTIN_NAME}; ↓ goes to larger models to download."
_NEW_WITHOUT = "New here? Choose under Get: what it takes is said before the download."


class MenuScreen(EagleScreen[None]):
    """A list that typing filters. The filter keeps the focus; arrows move in the list."""

    BINDINGS = [*bindings_of("menu"), *moves({"tab": "complete"}, priority=True)]

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services
        self._servers = ServerWatch()
        self._chats: list[ChatSummary] | None = None
        self._offers: dict[str, OfferedPair] = {}
        self._catalogue: list[tuple[CatalogueEntry, Status]] | None = None
        self._here: list[tuple[str, Pair]] | None = None
        """None until the files on this machine have been looked at."""
        self._statuses: dict[tuple[str, str], InspectedPair] = {}
        self._places: list[files.Place] | None = None
        """What completes a typed path; None while none is typed."""
        self._facts: dict[str, Facts] = {}
        self._troubles: dict[str, str] = {}
        self._offline: HubError | None = None
        self._moving: dict[str, InstallSnapshot] = {}
        self._notices_said = False
        self._wanted_first: str | None = None
        """The highlighted row, for the thread that asks the Hub."""
        self._asking = self._asked = 0
        """The number of the last round of questions to the Hub, and of the last one that ended."""

    def compose(self) -> ComposeResult:
        yield TitleBar("a target writes, a small draft guesses ahead, the target checks")
        yield Line(id="hint")
        pairs = Rows(id="pairs")
        words = Filter(pairs, id="filter")
        words.placeholder = f"type to filter, or the path of a GGUF file ({TAB} completes it)"
        yield words
        yield Line(id="banner")
        yield pairs
        yield KeyLine()
        yield TooSmall()

    def on_mount(self) -> None:
        self._services.models_changed.subscribe(self, self._models_changed)
        self._list_anew()
        self.query_one(Filter).focus()
        self._unwatch = self._services.engine.watch(self._follow_engine)
        self.call_after_refresh(self._services.engine.warm)
        self.set_interval(1.0, self._draw_moving)
        self._ask_servers()
        self.set_interval(ASKED_EVERY_S, self._ask_again)
        self._find_models()

    def on_unmount(self) -> None:
        self._unwatch()

    def on_screen_resume(self) -> None:
        self._services.away.show("")
        if self.is_mounted:
            self._read_catalogue()
            self._ask_servers()
            self._read_chats()

    # What is on offer

    def _follow_engine(self, news: Lifecycle) -> None:
        if isinstance(news, Ready):
            # Now it is known how much memory there is.
            self._read_catalogue()

    def _read_catalogue(self) -> None:
        self._list_anew()

        def read() -> Iterator[Update]:
            desk, library = self._services.desk, self._services.pairs
            # Reads the file of what was measured: the rows ask it in the app's thread.
            self._services.gain(library.pairs()[0])
            catalogue, problems = desk.catalogue()
            unfinished = [entry.name for entry, _ in desk.unfinished()]
            yield partial(self._take_catalogue, catalogue, [*map(str, problems)], unfinished)

        self.in_background(read)

    def _models_changed(self, _: object) -> None:
        self._read_catalogue()
        self._find_models()

    def _find_models(self) -> None:
        """Look for what is here beside the catalogue's pairs, such as other programs' models."""
        folders = self._services.settings.current.library.folders

        def find() -> Iterator[Update]:
            targets = self._services.desk.targets(folders)
            found = [(model.short_name, pair) for model, pair in targets]
            yield partial(self._take_models, found)

        self.in_background(find)

    def _take_models(self, found: list[tuple[str, InspectedPair]]) -> None:
        self._here = [(name, status.pair) for name, status in found]
        for _, status in found:
            self._statuses[str(status.pair.target), str(status.pair.draft)] = status
        self._list_anew()
        self._say()

    def _take_catalogue(
        self,
        catalogue: list[tuple[CatalogueEntry, Status]],
        problems: list[str],
        unfinished: list[str],
    ) -> None:
        self._catalogue = catalogue
        if not self._notices_said:
            self._notices_said = True
            self._say_notices(problems, unfinished)
        self._list_anew()
        self._say()
        pairs = [offer.pair for offer in self._offers.values() if offer.label != "here"]
        self._inspect_all([pair for pair in pairs if pair is not None and pair.server is None])
        self._ask_facts()

    def _say_notices(self, problems: list[str], unfinished: list[str]) -> None:
        """Once a session: entries that were left out, and downloads that were not finished."""
        if problems:
            text = "\n".join(problems)
            self.notify(text, title="Left out of the catalogue", severity="warning")
        if unfinished:
            names = ", ".join(unfinished)
            resume = with_keys("{app.downloads} resumes.")
            self.notify(f"Unfinished: {names}. {resume}", timeout=10)

    @work(thread=True, exclusive=True, group="inspect", exit_on_error=True)
    def _inspect_all(self, pairs: list[Pair]) -> None:
        for pair in pairs:
            self.call_later(self._take_status, inspect(pair))

    def _take_status(self, status: InspectedPair) -> None:
        pair = status.pair
        self._statuses[str(pair.target), str(pair.draft)] = status
        self._say()
        self._draw(
            [offer for offer in self._offers.values() if offer.pair and _same(offer.pair, pair)]
        )

    def _read_chats(self) -> None:
        chats, older = self._services.chats, self._services.older_chats

        def read() -> Iterator[Update]:
            yield partial(self._take_chats, chats.latest(CHATS))
            older.wait()
            yield partial(self._take_chats, chats.latest(CHATS))

        self.in_background(read)

    def _take_chats(self, chats: list[ChatSummary]) -> None:
        if chats != self._chats:
            self._chats = chats
            self._list_anew()
            self._say()

    def _ask_again(self) -> None:
        self._ask_servers()
        if self.is_current and self._offline is not None and self._asking == self._asked:
            self._ask_facts()

    def _ask_servers(self) -> None:
        """Ask each server in a thread of its own, unless it has not answered yet; and the RPC
        servers."""
        if not self.is_current:
            return
        for server in self._services.settings.current.server:
            if ask := self._servers.question(server):
                self.in_background(partial(self._server_updates, ask))
        rpc_servers = self._services.settings.current.engine.rpc_servers
        if ask_lent := self._services.engine.ask_lent(rpc_servers):
            self.in_background(lambda: iter([partial(self._take_lent, ask_lent())]))

    def _server_updates(self, ask: Callable[[], Iterator[ServerNews]]) -> Iterator[Update]:
        for news in ask():
            yield partial(self._take_news, news)

    def _take_news(self, news: ServerNews) -> None:
        self._servers.news[news.server.name] = news
        self._list_anew()

    def _take_lent(self, free_bytes: int) -> None:
        """What the RPC servers have free together."""
        self._services.engine.lent = free_bytes
        self._list_anew()

    def _ask_facts(self) -> None:
        """Ask the Hub about the pairs that are not here, the highlighted one first. A new round of
        questions ends the round before."""
        n_ctx = self._services.settings.current.engine.n_ctx
        wanted = []
        for entry in (offer.entry for offer in self._offers.values() if offer.pair is None):
            assert entry is not None
            known = self._services.desk.known_facts(entry, n_ctx)
            if known is not None:
                self._take_facts(entry.name, known)
            else:
                wanted.append(entry)
        self._asking += 1
        this_round = self._asking
        self.in_background(lambda: self._fact_updates(wanted, n_ctx, this_round))

    def _fact_updates(
        self, wanted: list[CatalogueEntry], n_ctx: int, this_round: int
    ) -> Iterator[Update]:
        desk = self._services.desk
        while wanted and this_round == self._asking:
            entry = next((e for e in wanted if f"entry:{e.name}" == self._wanted_first), wanted[0])
            try:
                facts = desk.ask_facts(entry, n_ctx)
                yield partial(self._take_answer, entry.name, facts)
            except (HubError, ValueError) as error:
                if isinstance(error, HubError) and (
                    error.transient or isinstance(error, OfflineError)
                ):
                    seen = {e.name: desk.known_facts(e, n_ctx, however_old=True) for e in wanted}
                    yield partial(self._take_offline, error, seen)
                    break
                yield partial(self._take_answer, entry.name, None, str(error))
            wanted.remove(entry)
        yield partial(self._end_round, this_round)

    def _end_round(self, this_round: int) -> None:
        self._asked = this_round

    def _take_answer(self, name: str, facts: Facts | None, trouble: str = "") -> None:
        """`trouble` says why the Hub gave no facts of this pair."""
        if self._offline is not None:
            self._offline = None
            self._say()
        self._take_facts(name, facts, trouble)

    def _take_offline(self, error: HubError, seen: dict[str, Facts | None]) -> None:
        self._offline = error
        self._say()
        for name, facts in seen.items():
            self._take_facts(name, facts)

    def _take_facts(self, name: str, facts: Facts | None, trouble: str = "") -> None:
        if facts is not None:
            self._facts[name] = facts
        self._troubles[name] = trouble
        offer = self._offers.get(f"entry:{name}")
        self._draw([offer] if offer else [])

    def _known(self, offer: OfferedPair) -> Known:
        pair = offer.pair
        return Known(
            offer=offer,
            machine=self._services.engine.machine,
            n_ctx=self._services.settings.current.engine.n_ctx,
            kv_types=(
                self._services.settings.current.engine.kv_type,
                self._services.settings.current.engine.draft_kv_type,
            ),
            status=self._statuses.get((str(pair.target), str(pair.draft))) if pair else None,
            facts=self._facts.get(offer.name),
            trouble=self._troubles.get(offer.name) or None,
            moving=self._moving.get(offer.name),
            news=self._servers.news_of(pair),
            gain=self._services.gain(pair) if pair and self._catalogue is not None else None,
        )

    def _say(self) -> None:
        """What blocks, and at the first start what to press."""
        said = []
        if self._offline is not None:
            is_away = isinstance(self._offline, OfflineError)
            hub = "offline" if is_away else "not answering"
            said.append(f"Hub {hub}: sizes as in the built-in list")
        if self._here is None:
            said.append("Looking for models on this machine…")
        self.query_one("#banner", Line).show(" · ".join(said))
        hint = ""
        builtin = self._services.pairs.pairs()[0]
        status = self._statuses.get((str(builtin.target), str(builtin.draft)))
        runnable = sum(offer.pair is not None for offer in self._offers.values())
        is_read = None not in (self._chats, self._catalogue, self._here)
        if is_read and not self._chats and runnable == 1 and status is not None:
            hint = _NEW_WITHOUT if status.problem else with_keys(_NEW)
        line = self.query_one("#hint", Line)
        line.show(hint)
        line.display = bool(hint)

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
        def find() -> Iterator[Update]:
            yield partial(self._take_places, typed, files.places(typed))
            if then_choose:
                yield self._choose_place

        self.in_background(find)

    def _take_places(self, typed: str, places: list[files.Place]) -> None:
        if typed != self.query_one(Filter).value:
            return
        if places != self._places:
            self._places = places
            self._list_anew(is_filtered_anew=True)
        pairs = [place.pair for place in places if place.pair is not None]
        unread = [one for one in pairs if (str(one.target), str(one.draft)) not in self._statuses]
        if unread:
            self._inspect_all(unread)

    def _list_anew(self, *, is_filtered_anew: bool = False) -> None:
        """Build the list, and highlight what was highlighted, or what matches the filter best."""
        options = self.query_one("#pairs", OptionList)
        before, place = options.highlighted_option, options.highlighted or 0
        served = self._servers.pairs(self._services.settings.current.server)
        typed = self.query_one(Filter).value
        if self._places is None:
            listed = offers(self._services.pairs, self._catalogue or [], served, self._here or [])
            self._offers = {offer.key: offer for offer in listed}
            models = map(self._known, self._offers.values())
            lines = sections.lines(typed, self._chats or (), models)
        else:
            pairs = (place.pair for place in self._places)
            listed = [_offered(pair) for pair in pairs if pair is not None]
            self._offers = {offer.key: offer for offer in listed}
            models = map(self._known, self._offers.values())
            directories = [place.name for place in self._places if place.pair is None]
            lines = sections.lines_of_path(directories, models)
        options.clear_options()
        options.add_options(
            Option(line.row, id=line.id, disabled=line.id is None) for line in lines
        )
        ranks = {index: line.rank for index, line in enumerate(lines) if line.id is not None}
        best = min(ranks, key=lambda index: ranks[index], default=None)
        if best is not None and before is not None and not is_filtered_anew:
            best = min(ranks, key=lambda index: (lines[index].id != before.id, abs(index - place)))
        options.highlighted = best

    def _draw(self, known: list[OfferedPair]) -> None:
        """Draw the rows of some offers again."""
        options = self.query_one("#pairs", OptionList)
        shown = {option.id for option in options.options}
        for offer in known:
            if offer.key in shown:
                options.replace_option_prompt(offer.key, rows.model(self._known(offer)))

    def _draw_moving(self) -> None:
        """Draw the rows of installations that move, and of those that have just ended."""
        before = self._moving
        self._moving = {
            one.name: one for one in self._services.desk.snapshots() if one.pair is None
        }
        changed = before.keys() | self._moving.keys()
        if changed:
            self._draw([offer for offer in self._offers.values() if offer.name in changed])

    @on(OptionList.OptionHighlighted)
    def _follow_highlight(self) -> None:
        options = self.query_one("#pairs", OptionList)
        self._wanted_first = self._looked_at
        if options.highlighted is not None and options.highlighted <= 1:
            # With the heading above it.
            options.scroll_home(animate=False)

    @property
    def _looked_at(self) -> str | None:
        option = self.query_one("#pairs", OptionList).highlighted_option
        return option.id if option else None

    def _highlighted_offer(self) -> OfferedPair | None:
        return self._offers.get(self._looked_at or "")

    def _highlighted_chat(self) -> ChatSummary | None:
        chats = {f"chat:{chat.name}": chat for chat in self._chats or ()}
        return chats.get(self._looked_at or "")

    # What the keys do

    @on(Input.Submitted, "#filter")
    @on(OptionList.OptionSelected)
    async def _choose(self) -> None:
        if (chat := self._highlighted_chat()) is not None:
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
        elif offer.entry is not None:
            self._show_plan(offer.entry)

    def action_complete(self) -> None:
        """Put the highlighted directory or file behind what is typed."""
        looked_at, words = self._looked_at, self.query_one(Filter)
        for place in self._places or ():
            key = f"in:{place.name}" if place.pair is None else _offered(place.pair).key
            if looked_at == key:
                words.value = place.typed
                words.action_end()

    def _choose_place(self) -> None:
        offer = self._highlighted_offer()
        if offer is not None and offer.pair is not None:
            self._choose_pair(offer, offer.pair)
        else:
            self.action_complete()

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
            self.post_message(LoadInstead(pair))

    def _resume(self, row: ChatSummary) -> None:
        def read() -> Iterator[Update]:
            try:
                chat = self._services.chats.read(row.name)
            except OSError as error:
                said = f"“{row.title}” cannot be read: {wording.why(error)}."
                yield partial(self.notify, said, severity="error")
                yield self._read_chats
            else:
                yield partial(self._resume_read, chat)

        self.in_background(read)

    def _resume_read(self, chat: SavedChat) -> None:
        # Its key may come twice before the chat is read.
        if self.is_on_top:
            self.post_message(Resume(chat))

    # Other screens are imported when they are opened: the menu is shown before that.

    def action_past_chats(self, words: str | None = None) -> None:
        from eaglechat.tui.screens.past.chats import ChatsScreen

        self.open(
            ChatsScreen(self._services, words=words or ""),
            lambda chat: self.post_message(Resume(chat)),
        )

    def action_search(self) -> None:
        from eaglechat.tui.screens.hub.search import SearchScreen

        search = SearchScreen(self._services, self.query_one(Filter).value)
        self.open(search, self._load)

    def action_drafts(self) -> None:
        from eaglechat.tui.screens.hub.search import SearchScreen

        offer = self._highlighted_offer()
        if offer is None or (offer.pair is not None and offer.pair.server is not None):
            self.notify("Drafts are found for models on this machine and on the Hub.")
            return
        of = offer.pair.target if offer.pair is not None else offer.entry
        self.open(SearchScreen(self._services, of=of), self._load)

    def _show_plan(self, entry: CatalogueEntry) -> None:
        from eaglechat.tui.screens.hub.plan import PlanScreen

        plan = PlanScreen(self._services, entry)
        self.open(plan, lambda _started: self._show_downloads(entry.name))

    def action_library(self) -> None:
        from eaglechat.tui.screens.hub.library import LibraryScreen

        self.open(LibraryScreen(self._services), self._load)

    def _show_downloads(self, loads: str = "") -> None:
        from eaglechat.tui.screens.hub.downloads import DownloadsScreen

        self.open(DownloadsScreen(self._services, loads), self._load)

    def action_remove(self) -> None:
        offer = self._highlighted_offer()
        if offer is None or offer.label != "recent" or offer.pair is None:
            self.notify(
                "Only recent pairs can be removed; “Models on this machine” deletes models."
            )
            return
        self._services.pairs.forget(offer.pair)
        self._list_anew()


def _offered(pair: Pair) -> OfferedPair:
    """The row of a file whose path is typed."""
    return OfferedPair((pair.draft or pair.target).name, "file", pair)


def _same(one: Pair, other: Pair) -> bool:
    return (one.target, one.draft) == (other.target, other.draft)
