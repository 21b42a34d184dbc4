"""The menu, which is the first screen: the pairs that are here and those that can be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from eaglechat.hub.errors import HubError, OfflineError
from eaglechat.hub.facts import Facts
from eaglechat.hub.local.pair import Pair
from eaglechat.hub.local.pairs import InspectedPair, OfferedPair, inspect, offers
from eaglechat.links.base import Lifecycle, Ready
from eaglechat.tui.commands.bindings import bindings_of
from eaglechat.tui.commands.registry import with_keys
from eaglechat.tui.navigation import LoadInstead, Resume
from eaglechat.tui.screens.base import EagleScreen, TitleBar, TooSmall, Update
from eaglechat.tui.screens.dialogs import ConfirmDialog, MessageDialog
from eaglechat.tui.screens.menu import offer_rows
from eaglechat.tui.screens.menu.offer_rows import Known, without_hub
from eaglechat.tui.screens.menu.servers import ServerNews, ServerWatch
from eaglechat.tui.services.services import Services
from eaglechat.tui.texts import wording
from eaglechat.tui.widgets.filter import Filter
from eaglechat.tui.widgets.key_line import KeyLine

if TYPE_CHECKING:
    from eaglechat.hub.catalogue import CatalogueEntry
    from eaglechat.hub.downloads.queue import InstallSnapshot
    from eaglechat.hub.local.installed import Status

SERVERS_ASKED_EVERY_S = 20.0
DOORS = {
    "search": ("Search the Hub…", "other targets, and drafts that fit them"),
    "library": ("Models on this machine…", "load, pair up or delete what is here"),
    "open_files": ("Open GGUF files…", "any target, with or without a draft"),
    "past_chats": ("Past chats…", "resume an earlier chat"),
}


class MenuScreen(EagleScreen[None]):
    """A list of pairs that typing filters. The filter keeps the focus; arrows move in the list."""

    BINDINGS = bindings_of("menu")

    def __init__(self, services: Services) -> None:
        super().__init__()
        self._services = services
        self._servers = ServerWatch()
        self._offers: dict[str, OfferedPair] = {}
        self._catalogue: list[tuple[CatalogueEntry, Status]] = []
        self._statuses: dict[tuple[str, str], InspectedPair] = {}
        self._facts: dict[str, Facts] = {}
        self._troubles: dict[str, str] = {}
        self._moving: dict[str, InstallSnapshot] = {}
        self._notices_said = False
        self._asking = 0

    def compose(self) -> ComposeResult:
        yield TitleBar("a target writes, a small draft guesses ahead, the target checks")
        yield Static("Which models do you want to chat with?", id="question")
        pairs = OptionList(id="pairs", compact=True)
        yield Filter(pairs, id="filter")
        with Horizontal(id="choice"):
            yield pairs
            with VerticalScroll(id="details-scroll", can_focus=False):
                yield Static("", id="details")
        yield KeyLine()
        yield TooSmall()

    def on_mount(self) -> None:
        self._services.models_changed.subscribe(self, self._read_catalogue)
        self._list_anew()
        self.query_one(Filter).focus()
        self._unwatch = self._services.engine.watch(self._follow_engine)
        self.call_after_refresh(self._services.engine.warm)
        self.set_interval(1.0, self._draw_moving)
        self._ask_servers()
        self.set_interval(SERVERS_ASKED_EVERY_S, self._ask_servers)

    def on_unmount(self) -> None:
        self._unwatch()

    def on_screen_resume(self) -> None:
        self._services.away.show("")
        if self.is_mounted:
            self._read_catalogue()
            self._ask_servers()

    # What is on offer

    def _follow_engine(self, news: Lifecycle) -> None:
        if isinstance(news, Ready):
            # Now it is known how much memory there is.
            self._read_catalogue()

    def _read_catalogue(self, _: object = None) -> None:
        self._list_anew()

        def read() -> Iterator[Update]:
            desk = self._services.desk
            catalogue, problems = desk.catalogue()
            unfinished = [entry.name for entry, _ in desk.unfinished()]
            yield partial(self._take_catalogue, catalogue, [*map(str, problems)], unfinished)

        self.in_background(read)

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
        pairs = [offer.pair for offer in self._offers.values() if offer.pair]
        self._inspect_all([pair for pair in pairs if pair.server is None])
        self._ask_facts()

    def _say_notices(self, problems: list[str], unfinished: list[str]) -> None:
        """Once a session: entries that were left out, and downloads that were not finished."""
        if problems:
            text = "\n".join(problems)
            self.notify(text, title="Left out of the catalogue", severity="warning", markup=False)
        if unfinished:
            names = ", ".join(unfinished)
            resume = with_keys("{app.downloads} resumes.")
            self.notify(f"Unfinished: {names}. {resume}", timeout=10, markup=False)

    @work(thread=True, exclusive=True, group="inspect", exit_on_error=True)
    def _inspect_all(self, pairs: list[Pair]) -> None:
        for pair in pairs:
            self.call_later(self._take_status, inspect(pair))

    def _take_status(self, status: InspectedPair) -> None:
        pair = status.pair
        self._statuses[str(pair.target), str(pair.draft)] = status
        self._draw(
            [offer for offer in self._offers.values() if offer.pair and _same(offer.pair, pair)]
        )

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
        if wanted:
            this_round = self._asking
            self.in_background(lambda: self._fact_updates(wanted, n_ctx, this_round))

    def _fact_updates(
        self, wanted: list[CatalogueEntry], n_ctx: int, this_round: int
    ) -> Iterator[Update]:
        while wanted and this_round == self._asking:
            entry = next((e for e in wanted if f"entry:{e.name}" == self._looked_at), wanted[0])
            wanted.remove(entry)
            try:
                facts = self._services.desk.ask_facts(entry, n_ctx)
                yield partial(self._take_facts, entry.name, facts)
            except OfflineError:
                for left in (entry, *wanted):
                    old = self._services.desk.known_facts(left, n_ctx, however_old=True)
                    yield partial(self._take_facts, left.name, old, without_hub(left))
                return
            except (HubError, ValueError) as error:
                yield partial(self._take_facts, entry.name, None, str(error))

    def _take_facts(self, name: str, facts: Facts | None, trouble: str = "") -> None:
        """`trouble` says why the Hub gave no facts."""
        if facts is not None:
            self._facts[name] = facts
            self._troubles.pop(name, None)
        else:
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
            trouble=self._troubles.get(offer.name),
            moving=self._moving.get(offer.name),
            news=self._servers.news_of(pair),
        )

    # The list

    @on(Input.Changed, "#filter")
    def _filtered(self) -> None:
        self._list_anew()
        self.query_one("#pairs", OptionList).highlighted = 0

    def _list_anew(self) -> None:
        options = self.query_one("#pairs", OptionList)
        before = options.highlighted_option
        highlighted = options.highlighted or 0
        wanted = self.query_one(Filter).words
        served = self._servers.pairs(self._services.settings.current.server)
        listed = offers(self._services.pairs, self._catalogue, served)
        self._offers = {offer.key: offer for offer in listed}
        matching = offer_rows.matching(map(self._known, self._offers.values()), wanted)
        rows = [Option(offer_rows.row(known), id=known.offer.key) for known in matching]
        rows += [Option(offer_rows.door(*text), id=door) for door, text in DOORS.items()]
        options.clear_options()
        options.add_options(rows)
        same = next((i for i, r in enumerate(rows) if before and r.id == before.id), highlighted)
        options.highlighted = min(same, len(rows) - 1)

    def _draw(self, known: list[OfferedPair]) -> None:
        """Draw the rows of some offers again."""
        options = self.query_one("#pairs", OptionList)
        shown = {option.id for option in options.options}
        for offer in known:
            if offer.key in shown:
                options.replace_option_prompt(offer.key, offer_rows.row(self._known(offer)))
        self._show_details()

    def _draw_moving(self) -> None:
        """Draw the rows of installations that move, and of those that have just ended."""
        before = self._moving
        self._moving = {
            one.name: one for one in self._services.desk.snapshots() if one.pair is None
        }
        changed = before.keys() | self._moving.keys()
        if changed:
            self._draw([offer for offer in self._offers.values() if offer.name in changed])

    @on(events.Resize)
    @on(OptionList.OptionHighlighted)
    def _show_details(self) -> None:
        offer = self._highlighted_offer()
        width = self.query_one("#details").content_size.width or 40
        self.query_one("#details", Static).update(
            offer_rows.details(self._known(offer), width)
            if offer
            else Content("Models of your own, from the Hub, or a chat to resume.")
        )

    @property
    def _looked_at(self) -> str | None:
        option = self.query_one("#pairs", OptionList).highlighted_option
        return option.id if option else None

    def _highlighted_offer(self) -> OfferedPair | None:
        return self._offers.get(self._looked_at or "")

    # What the keys do

    @on(Input.Submitted, "#filter")
    @on(OptionList.OptionSelected)
    async def _choose(self) -> None:
        offer = self._highlighted_offer()
        self._draw_moving()
        if offer is not None and offer.name in self._moving:
            self._show_downloads()
        elif offer is None:
            await self.run_action(self._looked_at or "")
        elif offer.pair is not None:
            if offer.pair.server is not None:
                self._load(offer.pair)
            else:
                self._choose_pair(offer, offer.pair)
        elif offer.entry is not None:
            self._show_plan(offer.entry)

    def _choose_pair(self, offer: OfferedPair, pair: Pair) -> None:
        known = self._known(offer)
        problem = (known.status or inspect(pair)).problem
        title = f"{pair.name} cannot run here"
        if problem:
            self.open(MessageDialog(title, wording.sentence(problem)))
        elif known.problem:
            advice = with_keys("A smaller engine.n_ctx ({app.settings}) needs less.")
            text = f"{wording.sentence(known.problem)} {advice}"
            dialog = ConfirmDialog(title, text, "Load anyway")
            self.open(dialog, lambda _agreed: self._load(pair))
        else:
            self._load(pair)

    def _load(self, pair: Pair) -> None:
        # Its key may come twice before the loading screen is there.
        if self.is_on_top:
            self.post_message(LoadInstead(pair))

    # Other screens are imported when they are opened: the menu is shown before that.

    def action_open_files(self) -> None:
        from eaglechat.tui.screens.menu.open_files import OpenFilesScreen

        self.open(OpenFilesScreen(), self._load)

    def action_past_chats(self) -> None:
        from eaglechat.tui.screens.past.chats import ChatsScreen

        self.open(ChatsScreen(self._services), lambda chat: self.post_message(Resume(chat)))

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

    def action_details(self) -> None:
        """In a narrow terminal the pane takes the list's place; arrows still move."""
        self.toggle_class("-details")
        self.call_after_refresh(self._show_details)

    def action_forget(self) -> None:
        offer = self._highlighted_offer()
        if offer is None or offer.label != "recent" or offer.pair is None:
            self.notify(
                "Only recent pairs can be removed; “Models on this machine” deletes models."
            )
            return
        self._services.pairs.forget(offer.pair)
        self._list_anew()


def _same(one: Pair, other: Pair) -> bool:
    return (one.target, one.draft) == (other.target, other.draft)
