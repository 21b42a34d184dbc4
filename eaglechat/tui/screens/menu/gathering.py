"""What the menu knows, gathered in the background: pairs, models, chats, servers, the Hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from eaglechat.gguf.memory import MemoryNeed, default_context, memory_need
from eaglechat.hub import fit
from eaglechat.hub.errors import HubError, OfflineError
from eaglechat.hub.facts import Facts
from eaglechat.hub.fit import Fit, Machine
from eaglechat.hub.local.pair import Pair, pair_of_server
from eaglechat.hub.local.pairs import (
    CataloguePair,
    InspectedPair,
    OfferedPair,
    inspect,
    offers,
)
from eaglechat.hub.local.speeds import Gain
from eaglechat.links.base import Lifecycle
from eaglechat.settings.servers import ServerSettings
from eaglechat.tui.commands.keys import with_keys
from eaglechat.tui.screens.base import EagleScreen
from eaglechat.tui.services.services import Services
from eaglechat.wire.drafters import DrafterKind
from eaglechat.wire.errors import EngineError
from eaglechat.wire.protocol import Hello
from eaglechat.wire.records import KvType
from eaglechat.words import drafting

if TYPE_CHECKING:
    from eaglechat.chat.store import ChatSummary
    from eaglechat.hub.catalogue import CatalogueEntry
    from eaglechat.hub.downloads.queue import Install
    from eaglechat.hub.local.model import LocalModel
    from eaglechat.links.http.discovery import Found, ServedModel

CHATS = 3
"""Of the last ones that can be resumed."""
ASKING_SERVER = "asking the server…"


class Gathering:
    """Asks in the background of a screen, and calls what draws there when it knows more."""

    def __init__(
        self,
        screen: EagleScreen[None],
        services: Services,
        *,
        list_anew: Callable[[], None],
        draw: Callable[[Sequence[OfferedPair]], None],
        say: Callable[[], None],
    ) -> None:
        self._screen, self._services = screen, services
        self._list_anew, self._draw, self._say = list_anew, draw, say
        self.offers: dict[str, OfferedPair] = {}
        """The rows that are models, by their keys."""
        self.chats: list[ChatSummary] | None = None
        self.catalogue: list[CataloguePair] | None = None
        self.here: list[tuple[str, Pair]] | None = None
        """None until the files on this machine have been looked at."""
        self.statuses: dict[tuple[str, str | None], InspectedPair] = {}
        self.moving: dict[str, Install] = {}
        self._notices_said = False
        self.news: dict[str, ServerNews] = {}
        """The last answer of each server, by its name."""
        self._being_asked: set[str] = set()
        self._facts: dict[str, Facts] = {}
        self._troubles: dict[str, str] = {}
        self.offline: HubError | None = None
        self._is_asking_hub = False
        self._wanted: list[CatalogueEntry] = []
        """The pairs that the Hub has still to be asked about."""

    def listed(self) -> list[OfferedPair]:
        """What is to be listed as far as it is known, in order."""
        served = pairs_of(self._services.settings.current.server, self.news)
        pairs = self._services.pairs.pairs()
        return offers(pairs, self.catalogue or [], served, self.here or [])

    def known(self, offer: OfferedPair) -> Known:
        pair = offer.pair
        return Known(
            offer=offer,
            machine=lambda: self._services.engine.machine,
            n_ctx=self._services.settings.current.engine.n_ctx,
            kv_types=(
                self._services.settings.current.engine.kv_type,
                self._services.settings.current.engine.draft_kv_type,
            ),
            status=self.statuses.get(pair.to_load) if pair else None,
            facts=self._facts.get(offer.name),
            trouble=self._troubles.get(offer.name) or None,
            moving=self.moving.get(offer.name),
            news=self.news.get(pair.server.name) if pair and pair.server else None,
            gain=self._services.gain(pair) if pair and self.catalogue is not None else None,
        )

    # On this machine

    def look_again(self) -> None:
        self._read_catalogue()
        self._ask_servers()
        self.read_chats()

    def follow_engine(self, news: Lifecycle) -> None:
        if isinstance(news, Hello):
            # Now it is known how much memory there is.
            self._list_anew()
            self._ask_facts()

    def _read_catalogue(self) -> None:
        self._list_anew()
        desk, services = self._services.desk, self._services

        def read() -> tuple[list[CataloguePair], list[str], list[str]]:
            # Reads the file of what was measured: the rows ask it in the app's thread.
            services.gain(services.pairs.pairs()[0])
            catalogue, problems = desk.catalogue()
            return catalogue, [*map(str, problems)], [pair.name for pair in desk.unfinished()]

        self._screen.in_background(read, lambda found: self._take_catalogue(*found))

    def models_changed(self, _: object) -> None:
        self._read_catalogue()
        self.find_models()

    def find_models(self) -> None:
        """Look for what is here beside the catalogue's pairs, such as other programs' models."""
        folders = self._services.settings.current.library.folders
        self._screen.in_background(lambda: self._services.desk.targets(folders), self._take_models)

    def _take_models(self, found: list[tuple[LocalModel, InspectedPair]]) -> None:
        self.here = [(model.short_name, status.pair) for model, status in found]
        for _, status in found:
            self.statuses[status.pair.to_load] = status
        self._list_anew()
        self._say()

    def _take_catalogue(
        self,
        catalogue: list[CataloguePair],
        problems: list[str],
        unfinished: list[str],
    ) -> None:
        self.catalogue = catalogue
        if not self._notices_said:
            self._notices_said = True
            self._say_notices(problems, unfinished)
        self._list_anew()
        self._say()
        pairs = [offer.pair for offer in self.offers.values() if offer.state != "here"]
        self.inspect_all([pair for pair in pairs if pair is not None and pair.server is None])
        self._ask_facts()

    def _say_notices(self, problems: list[str], unfinished: list[str]) -> None:
        """Once a session: entries that were left out, and downloads that were not finished."""
        if problems:
            text = "\n".join(problems)
            self._screen.notify(text, title="Left out of the catalogue", severity="warning")
        if unfinished:
            names = ", ".join(unfinished)
            resume = with_keys("{app.downloads} resumes.")
            self._screen.notify(f"Unfinished: {names}. {resume}", timeout=10)

    def inspect_all(self, pairs: list[Pair]) -> None:
        def inspect_all() -> None:
            for pair in pairs:
                self._screen.later(self._take_status, inspect(pair))

        self._screen.in_background(inspect_all)

    def _take_status(self, status: InspectedPair) -> None:
        key = status.pair.to_load
        self.statuses[key] = status
        self._say()
        self._draw([one for one in self.offers.values() if one.pair and one.pair.to_load == key])

    def read_chats(self) -> None:
        chats, older = self._services.chats, self._services.older_chats

        def read() -> list[ChatSummary]:
            self._screen.later(self._take_chats, chats.latest(CHATS))
            older.wait()
            return chats.latest(CHATS)

        self._screen.in_background(read, self._take_chats)

    def _take_chats(self, chats: list[ChatSummary]) -> None:
        if chats != self.chats:
            self.chats = chats
            self._list_anew()
            self._say()

    # Servers

    def ask_again(self) -> None:
        self._ask_servers()
        if self._screen.is_current and self.offline is not None:
            self._ask_facts()

    def _ask_servers(self) -> None:
        """Ask each server in a thread of its own, unless it has not answered yet; and the RPC
        servers."""
        if not self._screen.is_current:
            return
        for server in self._services.settings.current.server:
            if server.name not in self._being_asked:
                self._being_asked.add(server.name)
                self._screen.in_background(partial(ask, server), self._take_news)
        rpc_servers = self._services.settings.current.engine.rpc_servers
        if ask_lent := self._services.engine.ask_lent(rpc_servers):
            self._screen.in_background(ask_lent, self._take_lent)

    def _take_news(self, news: ServerNews) -> None:
        self._being_asked.discard(news.server.name)
        self.news[news.server.name] = news
        self._list_anew()

    def _take_lent(self, free_bytes: int) -> None:
        """What the RPC servers have free together."""
        self._services.engine.lent = free_bytes
        self._list_anew()

    # The Hub

    def _ask_facts(self) -> None:
        """Ask the Hub about the pairs that are not here, one after the other."""
        desk, n_ctx = self._services.desk, self._services.settings.current.engine.n_ctx
        self._wanted.clear()
        for entry in [one.entry for one in self.offers.values() if one.pair is None and one.entry]:
            kept = desk.known_facts(entry, n_ctx)
            if kept is not None:
                self._take_facts(entry.name, kept.facts)
            if kept is None or not kept.is_fresh:
                self._wanted.append(entry)
        if not self._is_asking_hub and self._wanted:
            self._is_asking_hub = True
            self._screen.in_background(self._ask_hub, self._asked_hub)

    def _ask_hub(self) -> HubError | None:
        """Returns why the Hub does not answer, if it does not."""
        # The list may be another one by the next look at it.
        while wanted := self._wanted[:1]:
            (entry,) = wanted
            with suppress(ValueError):
                self._wanted.remove(entry)
            try:
                n_ctx = self._services.settings.current.engine.n_ctx
                facts = self._services.desk.ask_facts(entry, n_ctx)
                self._screen.later(self._take_facts, entry.name, facts)
            except (HubError, ValueError) as error:
                is_away = isinstance(error, OfflineError)
                if isinstance(error, HubError) and (error.transient or is_away):
                    return error
                self._screen.later(self._take_facts, entry.name, None, str(error))
        return None

    def _asked_hub(self, offline: HubError | None) -> None:
        self._is_asking_hub, self.offline = False, offline
        self._say()
        if offline is None and self._wanted:
            self._ask_facts()

    def _take_facts(self, name: str, facts: Facts | None, trouble: str = "") -> None:
        """`trouble` says why the Hub gave no facts of this pair."""
        if facts is not None:
            self._facts[name] = facts
        self._troubles[name] = trouble
        offer = self.offers.get(f"entry:{name}")
        self._draw([offer] if offer else [])


@dataclass(frozen=True)
class Known:
    """A row of the menu that is a model, and what is known of it."""

    offer: OfferedPair
    machine: Callable[[], Machine]
    n_ctx: int
    kv_types: tuple[KvType, KvType] = ("f16", "f16")
    """KV cache types of the target and of the draft."""
    status: InspectedPair | None = None
    facts: Facts | None = None
    trouble: str | None = None
    """Why the Hub has no facts of this pair."""
    moving: Install | None = None
    news: ServerNews | None = None
    """The last answer of the server that has it."""
    gain: Gain | None = None

    @property
    def problem(self) -> str | None:
        """Why the pair cannot run here."""
        if self.status is not None and self.status.problem:
            return self.status.problem
        judged = self.fit
        return judged.text if judged is not None and judged.fits is False else None

    @property
    def drafters(self) -> tuple[DrafterKind, ...] | None:
        """What drafts, besides n-grams; None if that is not known."""
        entry = self.offer.entry
        if self.status is not None and self.status.target is not None:
            return self.status.drafters
        if self.facts is not None and self.facts.drafters is not None:
            return self.facts.drafters
        if entry is None:
            return None
        kind = entry.drafter or ("eagle3" if entry.draft.checkpoint else None)
        return (kind,) if kind else None

    @property
    def need(self) -> MemoryNeed | None:
        """The memory that the pair needs, by its headers, which the Hub may have told, else by its
        size; None if nothing is known."""
        if self.status is not None and self.status.loaded_target is not None:
            models = self.status.loaded_target, self.status.draft
            n_ctx = self.n_ctx or default_context(*models, fit.free(self.machine()), *self.kv_types)
            return memory_need(*models, n_ctx, *self.kv_types)
        if self.facts is not None and self.facts.memory is not None:
            return self.facts.memory
        return fit.need_by_size(self.seen_bytes) if self.seen_bytes else None

    @property
    def fit(self) -> Fit | None:
        need = self.need
        return fit.judge(need, self.machine()) if need is not None else None

    @property
    def seen_bytes(self) -> int | None:
        """What the catalogue says of the size of a pair that is not here: of both files, or of the
        target alone."""
        entry = self.offer.entry if self.offer.pair is None else None
        return (entry.size or entry.target.size) if entry else None

    def rank(self, words: Sequence[str]) -> int | None:
        """How well it matches the words: 0 by its whole name, 1 by a part of it, 2 by something
        else; None if a word is missing."""
        name = self.offer.name.casefold()
        if name.split() == [*words]:
            return 0
        if all(word in name for word in words):
            return 1
        return 2 if all(word in self._searched for word in words) else None

    @property
    def _searched(self) -> str:
        """The text that typing filters."""
        offer, entry = self.offer, self.offer.entry
        words = [offer.name, offer.state, offer.pair.target.name if offer.pair else ""]
        if entry is not None:
            words += [entry.title, entry.licence, entry.architecture or ""]
            words += [str(entry.target), entry.base_model or ""]
            words += [entry.draft.of_hub]
        if self.status is not None:
            headers = filter(None, (self.status.target, self.status.draft))
            words += [f"{header.architecture} {header.quantization}" for header in headers]
        if self.drafters is not None:
            words.append(drafting.badge(self.drafters))
        return " ".join(words).casefold()


@dataclass(frozen=True)
class ServerNews:
    """What a server answered, or in `trouble` why it did not."""

    server: ServerSettings
    found: Found | None
    trouble: str | None

    def model(self, name: str) -> ServedModel | None:
        """The model of this name; without one the only one there is."""
        models = self.found.models if self.found else ()
        if not name and len(models) == 1:
            return models[0]
        return next((model for model in models if model.id == name), None)


def ask(server: ServerSettings) -> ServerNews:
    """Ask a server which models it has. May take seconds."""
    # Imports the HTTP client, for which the first paint does not wait.
    from eaglechat.links.http import discovery

    try:
        return ServerNews(server, discovery.ask(server), None)
    except EngineError as error:
        return ServerNews(server, None, str(error))


def pairs_of(servers: Sequence[ServerSettings], news: Mapping[str, ServerNews]) -> list[Pair]:
    """The pairs that can be chosen, with the last news by the name of each server. A server with
    several models has one for each, unless its entry in the settings names a model."""
    pairs = []
    for server in servers:
        said = news.get(server.name)
        models = said.found.models if said and said.found and not server.model else ()
        if len(models) > 1:
            pairs += [pair_of_server(server, model.id) for model in models]
        else:
            pairs.append(pair_of_server(server))
    return pairs


def served(pair: Pair, news: ServerNews | None) -> str:
    """In one line: the model of a server, or why it has none."""
    if news is None:
        return ASKING_SERVER
    if news.trouble:
        return news.trouble
    model = news.model(pair.model)
    if model is None:
        return f"it has no model named {pair.model}" if pair.model else "it has no model"
    context = f" · {model.n_ctx:,} tokens of context" if model.n_ctx else ""
    state = f" · {model.state}" if model.state != "loaded" else ""
    return f"{model.id.rsplit('/', 1)[-1]}{context}{state}"
