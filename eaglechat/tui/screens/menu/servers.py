"""The servers of the settings, and which models each of them last said it has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eaglechat.hub.local.pair import Pair, pair_of_server
from eaglechat.settings.servers import ServerSettings
from eaglechat.wire.errors import EngineError

if TYPE_CHECKING:
    from eaglechat.links.http.discovery import Found, ServedModel


ASKING_SERVER = "asking the server…"


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


class ServerWatch:
    """Keeps the last answer of each server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking: set[str] = set()
        self.news: dict[str, ServerNews] = {}
        """By the name of a server."""

    def question(self, server: ServerSettings) -> Callable[[], Iterator[ServerNews]] | None:
        """A function, for a thread, that asks a server and yields its news; None while it is
        already being asked."""
        with self._lock:
            if server.name in self._asking:
                return None
            self._asking.add(server.name)

        def ask_it() -> Iterator[ServerNews]:
            # Imports the HTTP client, for which the first paint does not wait.
            from eaglechat.links.http.discovery import ask

            try:
                yield ServerNews(server, ask(server), None)
            except EngineError as error:
                yield ServerNews(server, None, str(error))
            finally:
                with self._lock:
                    self._asking.discard(server.name)

        return ask_it

    def news_of(self, pair: Pair | None) -> ServerNews | None:
        """The last news of the server that has a pair."""
        return self.news.get(pair.server.name) if pair and pair.server else None

    def pairs(self, servers: Sequence[ServerSettings]) -> list[Pair]:
        """The pairs that can be chosen. A server with several models has one for each, unless its
        entry in the settings names a model."""
        pairs = []
        for server in servers:
            news = self.news.get(server.name)
            models = news.found.models if news and news.found and not server.model else ()
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
