"""What is known of a row of the menu that is a model, and what servers say of theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eaglechat.gguf.memory import MemoryNeed, default_context, memory_need
from eaglechat.hub import fit
from eaglechat.hub.facts import Facts
from eaglechat.hub.fit import Fit, Machine
from eaglechat.hub.local.pair import Pair, pair_of_server
from eaglechat.hub.local.pairs import InspectedPair, OfferedPair
from eaglechat.hub.local.speeds import Gain
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.drafters import DrafterKind
from eaglechat.wire.errors import EngineError
from eaglechat.wire.records import KvType
from eaglechat.words import drafting

if TYPE_CHECKING:
    from eaglechat.hub.downloads.queue import Install
    from eaglechat.links.http.discovery import Found, ServedModel

ASKING_SERVER = "asking the server…"


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
